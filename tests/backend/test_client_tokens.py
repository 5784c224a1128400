"""Client tokens and signatures: claims, published keys, expiry."""

import random
import re
import time
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from jwt.api_jws import PyJWS
from sqlalchemy import select
from werkzeug.serving import make_server

from app.backend.security.tables import SIGNING_KEY
from app.backend.security.vault import open_vault
from app.backend.tokens.token_handlers import canonical_json
from tests.worlds.clock import NOON

from .conftest import BackendWorld, Caller, WorldMaker

TWO_DAYS = 48 * 3600
README = Path(__file__).parents[2] / "app" / "backend" / "README.md"


def credentials(tenant: Caller) -> dict[str, str]:
    return {"apiKey": tenant.headers["x-service-api-key"], "authToken": tenant.headers["x-service-auth-token"]}


def keys_of(tenant: Caller) -> list[dict[str, str]]:
    response = tenant.app.test_client().get(f"/.well-known/jwks/{tenant.ids['api_key']}.json")
    assert response.status_code == 200
    assert response.json is not None
    keys: list[dict[str, str]] = response.json["keys"]
    return keys


def checked(tenant: Caller, token: str, **how: Any) -> dict[str, Any]:
    """The claims, verified with the published keys but not against the time, because the test's clock is fixed."""
    key = jwt.PyJWKSet(keys_of(tenant))[jwt.get_unverified_header(token)["kid"]]
    options: Any = {"verify_exp": False, "verify_iat": False, "require": ["exp", "iat", "sub", "jti", "aud", "iss"]}
    how = {"audience": tenant.ids["api_key"], "issuer": "http://127.0.0.1:8090", "options": options} | how
    return jwt.decode(token, key, algorithms=["EdDSA"], **how)


def test_a_token_contains_the_properties_of_its_user(world: BackendWorld, tenant: Caller) -> None:
    properties = {"organizationId": "acme", "isAdmin": True, "email": "ada@acme.example", "more": "x"}
    token = world.anonymous("generate_token", **credentials(tenant), userId="ada", userProperties=properties)["token"]

    claims = checked(tenant, token)

    assert jwt.get_unverified_header(token)["alg"] == "EdDSA"
    assert len(claims.pop("jti")) >= 20
    assert claims == {
        "iss": "http://127.0.0.1:8090",
        "aud": tenant.ids["api_key"],
        "sub": "ada",
        "userId": "ada",
        "organizationId": "acme",
        "isAdmin": True,
        "email": "ada@acme.example",
        "iat": int(NOON.timestamp()),
        "exp": int(NOON.timestamp()) + TWO_DAYS,
    }


def test_a_token_omits_missing_properties(world: BackendWorld, tenant: Caller) -> None:
    token = world.anonymous("generate_token", **credentials(tenant), userId="ada")["token"]

    assert set(checked(tenant, token)) == {"iss", "aud", "sub", "iat", "exp", "jti", "userId", "isAdmin"}
    assert checked(tenant, token)["isAdmin"] is False


def test_tokens_differ_and_share_a_key(world: BackendWorld, tenant: Caller) -> None:
    item, two = (world.anonymous("generate_token", **credentials(tenant), userId="ada")["token"] for _ in range(2))

    assert checked(tenant, item)["jti"] != checked(tenant, two)["jti"]
    assert len(keys_of(tenant)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"authToken": "not it"},
        {"authToken": "ë"},
        {"apiKey": "nobody"},
        {"apiKey": "ключ"},
        {"apiKey": "x" * 600},
        {"authToken": ""},
        {"authToken": None},
        {"userId": ""},
        {"userId": "x" * 513},
        {"userProperties": {}},
        {"userProperties": {"organizationId": "acme", "isAdmin": "yes"}},
        {"userProperties": {"organizationId": "acme", "email": "x" * 321}},
    ],
)
def test_generate_token_refuses(world: BackendWorld, tenant: Caller, wrong: dict[str, Any]) -> None:
    request = credentials(tenant) | {"userId": "ada"} | wrong

    code, status, message = world.anonymous.refused("generate_token", **request)

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.")
    assert tenant.headers["x-service-auth-token"] not in message
    assert keys_of(tenant) == []


def test_credentials_of_two_api_keys_cannot_be_mixed(world: BackendWorld) -> None:
    item, other = world.tenant(), world.tenant()
    mixed = credentials(item) | {"apiKey": other.ids["api_key"], "userId": "ada"}

    assert world.anonymous.refused("generate_token", **mixed)[1] == "INVALID_ARGUMENT"
    token = world.anonymous("generate_token", **credentials(item), userId="ada")["token"]
    world.anonymous("generate_token", **credentials(other), userId="ada")
    with pytest.raises(KeyError):
        checked(other, token)


def test_reset_revokes_the_auth_token_and_changes_the_signing_key(world: BackendWorld) -> None:
    owner = world.workspace()
    key = owner.ids["api_key"]
    old = owner("get_auth_tokens", apiKey=key)["authTokens"][0]["token"]
    before = world.anonymous("generate_token", apiKey=key, authToken=old, userId="ada")["token"]

    new = owner("reset_auth_token", apiKey=key)["newAuthToken"]["token"]

    for node in (world.app, world.another_node()):
        refused = Caller(node, {}).refused("generate_token", apiKey=key, authToken=old, userId="ada")
        assert refused == (400, "INVALID_ARGUMENT", "data.authToken: the auth token is not found")
    after = world.anonymous("generate_token", apiKey=key, authToken=new, userId="ada")["token"]
    assert jwt.get_unverified_header(before)["kid"] != jwt.get_unverified_header(after)["kid"]
    # Tokens signed before the reset stay valid until they expire.
    assert checked(owner, before)["sub"] == checked(owner, after)["sub"] == "ada"
    world.clock.move_on(hours=48)
    assert [published["kid"] for published in keys_of(owner)] == [jwt.get_unverified_header(after)["kid"]]


def test_retired_keys_lose_their_private_part_and_are_deleted(world: BackendWorld) -> None:
    owner = world.workspace()
    key = owner.ids["api_key"]
    for _ in range(3):
        token = owner("get_auth_tokens", apiKey=key)["authTokens"][0]["token"]
        world.anonymous("generate_token", apiKey=key, authToken=token, userId="ada")
        owner("reset_auth_token", apiKey=key)
        world.clock.move_on(hours=47)

    with world.engine.connect() as connection:
        rows = connection.execute(select(SIGNING_KEY)).all()
    # The first was retired 94 hours before the last reset, the second 47.
    assert len(rows) == 2
    assert [row.private_sealed for row in rows] == ["", ""]


def test_private_keys_are_stored_encrypted(world: BackendWorld, tenant: Caller) -> None:
    world.anonymous("generate_token", **credentials(tenant), userId="ada")

    with world.engine.connect() as connection:
        row = connection.execute(select(SIGNING_KEY)).one()
    vault = open_vault(world.settings, random.SystemRandom())
    seed = vault.stored.open(row.private_sealed, f"signing key {row.api_key_id} {row.key_id}")
    assert seed not in str(row)
    assert len(seed) == 43


@pytest.mark.parametrize("path", ["nobody.json", "%00.json", "%C3%A9.json", "x" * 2000 + ".json"])
def test_an_unknown_api_key_has_no_keys(world: BackendWorld, path: str) -> None:
    response = world.app.test_client().get(f"/.well-known/jwks/{path}")

    assert response.status_code == 200
    assert response.json == {"keys": []}


def test_v2_grants_permissions_with_the_token(tenant: Caller) -> None:
    tenant("add_users", organizationId="acme", users=[{"userId": "bob"}])
    tenant("add_documents", organizationId="acme", documents=[{"documentId": "d"}])
    resource = {"type": "document", "id": "d", "organizationId": "acme", "accessRole": "viewer"}

    token = tenant("generate_token_v2", userId="ada", permissions={"resources": [resource]})["token"]

    assert checked(tenant, token)["organizationId"] == "acme"
    may = tenant("get_permissions", organizationId="acme", userIds=["ada"], documentIds=["d"])
    assert may["ada"]["documents"]["d"]["accessRole"] == "viewer"


def test_v2_grants_all_permissions_or_none(tenant: Caller) -> None:
    tenant("add_users", organizationId="acme", users=[{"userId": "bob"}])
    resources = [
        {"type": "organization", "id": "acme"},
        {"type": "document", "id": "nothing", "organizationId": "acme"},
    ]

    refused = tenant.refused("generate_token_v2", userId="ada", permissions={"resources": resources})

    assert refused[:2] == (404, "NOT_FOUND")
    assert [user["userId"] for user in tenant("get_users", organizationId="acme")] == ["bob"]


def test_v2_needs_no_permissions(tenant: Caller) -> None:
    token = tenant("generate_token_v2", userId="ada", userProperties={"isAdmin": True})["token"]

    claims = checked(tenant, token)
    assert claims["isAdmin"] is True
    assert "organizationId" not in claims


def test_a_disabled_organization_gets_no_tokens(world: BackendWorld, tenant: Caller) -> None:
    tenant("add_organizations", organizations=[{"organizationId": "acme", "disabled": True}])
    properties = {"userId": "ada", "userProperties": {"organizationId": "acme"}}
    message = "data.userProperties.organizationId: the organization is disabled"

    assert world.anonymous.refused("generate_token", **credentials(tenant), **properties)[1:] == (
        "INVALID_ARGUMENT",
        message,
    )
    assert tenant.refused("generate_token_v2", **properties)[1:] == ("INVALID_ARGUMENT", message)
    tenant("disable_organizations", organizationIds=["acme"], disabled=False)
    assert tenant("generate_token_v2", **properties)["token"]


def test_a_signature_covers_the_canonical_results(tenant: Caller) -> None:
    results = [
        {"userId": "ada", "resourceId": "d", "type": "document", "hasAccess": True, "expiresAt": 1795212345000.0},
        {"userId": "ë\U0001f600", "hasAccess": False, "\uffff": 1, "\U00010000": 2},
    ]

    signature = tenant("generate_signature", permissions=results)["signature"]

    assert canonical_json(results).startswith(b'[{"expiresAt":1795212345000,"hasAccess":true,"resourceId":"d"')
    assert canonical_json(results).index("\U00010000".encode()) < canonical_json(results).index("\uffff".encode())
    header = jwt.get_unverified_header(signature)
    assert (header["typ"], header["iat"]) == ("permissions+jws", int(NOON.timestamp()))
    key = jwt.PyJWKSet(keys_of(tenant))[header["kid"]]
    PyJWS().decode_complete(signature, key, algorithms=["EdDSA"], detached_payload=canonical_json(results))
    changed = [results[0] | {"hasAccess": False}, results[1]]
    with pytest.raises(jwt.InvalidSignatureError):
        PyJWS().decode_complete(signature, key, algorithms=["EdDSA"], detached_payload=canonical_json(changed))
    with pytest.raises(jwt.InvalidTokenError):
        jwt.decode(signature, key, algorithms=["EdDSA"], audience=tenant.ids["api_key"])


def test_the_verifier_in_the_readme_works_over_http(make_world: WorldMaker) -> None:
    world = make_world()
    world.clock.now = world.clock.now.fromtimestamp(time.time(), world.clock.now.tzinfo)
    tenant = world.tenant()
    server = make_server("127.0.0.1", 0, world.app, threaded=True)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        code = re.search(r"```python\n(import jwt\n.*?)```", README.read_text(), re.DOTALL)
        assert code is not None
        names: dict[str, Any] = {}
        exec(code[1], names)  # the page's own code
        url = f"http://127.0.0.1:{server.port}"
        token = world.anonymous("generate_token", **credentials(tenant), userId="ada")["token"]
        claims = names["verified_claims"](token, url, tenant.ids["api_key"], "http://127.0.0.1:8090")
        assert claims["userId"] == "ada"
        with pytest.raises(jwt.InvalidIssuerError):
            names["verified_claims"](token, url, tenant.ids["api_key"], "http://elsewhere")
        # Almost 48 hours old (ten minutes are far more than the test takes), then a second more than that.
        world.clock.move_on(hours=-48, minutes=10)
        aged = world.anonymous("generate_token", **credentials(tenant), userId="ada")["token"]
        assert names["verified_claims"](aged, url, tenant.ids["api_key"], "http://127.0.0.1:8090")["userId"] == "ada"
        world.clock.move_on(minutes=-10, seconds=-1)
        old = world.anonymous("generate_token", **credentials(tenant), userId="ada")["token"]
        with pytest.raises(jwt.ExpiredSignatureError):
            names["verified_claims"](old, url, tenant.ids["api_key"], "http://127.0.0.1:8090")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_wrong_auth_tokens_are_throttled(world: BackendWorld, tenant: Caller) -> None:
    request = credentials(tenant) | {"userId": "ada", "authToken": "a guess"}
    responses = [world.anonymous.call("generate_token", **request) for _ in range(200)]

    codes = [response.status_code for response in responses]
    assert codes[0] == 400
    assert codes[-1] == 429
    assert sorted(codes) == codes
    assert int(responses[-1].headers["Retry-After"]) > 0
    # Valid tokens are never throttled.
    assert world.anonymous("generate_token", **credentials(tenant), userId="ada")["token"]
