import pytest
from sqlalchemy import func, select

from app.backend.security.tables import WORKSPACE_ATTEMPT
from app.backend.workspaces.email_addresses import owner_address
from app.foundation.database.engine import reading

from .conftest import BackendWorld, WorldMaker


def test_create_workspace_fills_in_defaults(world: BackendWorld) -> None:
    wire = world.anonymous("create_workspace", ownerEmail="ada.lovelace@acme.example")

    assert wire["name"] == "ada.lovelace@acme.example workspace"
    assert wire["owner"]["email"] == "ada.lovelace@acme.example"
    assert wire["owner"]["name"] == "ada.lovelace@acme.example"
    assert wire["owner"]["id"]
    assert "avatar" not in wire["owner"]
    assert len(wire["authToken"]) >= 32
    ((key_id, key),) = wire["apiKeyList"].items()
    assert key == {"id": key_id, "apiKeyName": "Ada.lovelace Test API Key", "type": "testing"}


def test_create_workspace_names_it_after_its_owner(world: BackendWorld) -> None:
    wire = world.anonymous(
        "create_workspace", ownerEmail="ada@acme.example", name="Ada L.", avatar="https://pics.example/ada.png"
    )

    assert wire["name"] == "Ada L. workspace"
    assert wire["owner"]["name"] == "Ada L."
    assert wire["owner"]["avatar"] == "https://pics.example/ada.png"
    # From the address, not from the name.
    assert next(iter(wire["apiKeyList"].values()))["apiKeyName"] == "Ada Test API Key"


def test_create_workspace_uses_the_requested_name(world: BackendWorld) -> None:
    assert world.anonymous("create_workspace", ownerEmail="a@acme.example", workspaceName="W")["name"] == "W"


@pytest.mark.parametrize(
    ("email", "why"),
    [
        ("nobody", "must be an email address"),
        ("a b@acme.example", "must be an email address"),
        ("ada@localhost", "must be an email address"),
        ("a@mailinator.com", "disposable"),
        ("a@MAILINATOR.COM", "disposable"),
        ("a@deep.sub.mailinator.com", "disposable"),
    ],
)
def test_create_workspace_refuses_invalid_and_disposable_addresses(world: BackendWorld, email: str, why: str) -> None:
    code, status, message = world.anonymous.refused("create_workspace", ownerEmail=email)

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.ownerEmail: ")
    assert why in message


@pytest.mark.parametrize("data", [{"name": ""}, {"name": "x" * 201}, {"workspaceName": ""}, {"avatar": "ftp://x"}])
def test_create_workspace_refuses_invalid_fields(world: BackendWorld, data: dict[str, str]) -> None:
    code, status, message = world.anonymous.refused("create_workspace", ownerEmail="a@acme.example", **data)

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith(f"data.{next(iter(data))}: ")


def test_further_workspaces_need_a_production_key_and_are_limited_to_five(world: BackendWorld) -> None:
    root = world.workspace("ada@acme.example")

    assert world.anonymous.refused("create_workspace", ownerEmail="ADA@acme.example")[:2] == (403, "PERMISSION_DENIED")

    root("create_api_key", ownerEmail="ada@acme.example", type="production")
    for _ in range(4):
        world.workspace("Ada@ACME.example")
    assert world.anonymous.refused("create_workspace", ownerEmail="ada@acme.example")[:2] == (
        429,
        "RESOURCE_EXHAUSTED",
    )
    world.workspace("bob@acme.example")


def test_a_production_key_of_another_workspace_does_not_count(world: BackendWorld) -> None:
    root = world.workspace("ada@acme.example")
    root("create_api_key", ownerEmail="ada@acme.example", type="testing")

    assert world.anonymous.refused("create_workspace", ownerEmail="ada@acme.example")[0] == 403


@pytest.mark.parametrize(
    ("email", "other", "is_same"),
    [
        ("ada@acme.example", "ADA@Acme.Example", True),
        ("\u00e4da@acme.example", "\u00c4DA@acme.example", True),
        ("stra\u00dfe@acme.example", "strasse@acme.example", False),
    ],
)
def test_owners_are_identified_by_the_address_in_lower_case(email: str, other: str, is_same: bool) -> None:
    assert (owner_address(email).key == owner_address(other).key) is is_same


def test_create_workspace_is_limited_by_address(make_world: WorldMaker) -> None:
    world = make_world(workspaces_per_hour=3)
    for number in range(2):
        world.workspace(f"a{number}@acme.example")
    world.anonymous.refused("create_workspace", ownerEmail="nobody")

    response = world.anonymous.call("create_workspace", ownerEmail="b@acme.example")

    assert response.status_code == 429
    assert response.json is not None
    assert response.json["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert response.headers["Retry-After"] == "3600"
    other = world.app.test_client().post(
        "/v2/workspace/create",
        json={"data": {"ownerEmail": "c@acme.example"}},
        environ_overrides={"REMOTE_ADDR": "10.0.0.9"},
    )
    assert other.status_code == 200

    world.clock.move_on(hours=1)
    world.workspace("b@acme.example")


def test_the_limit_by_address_counts_an_ipv6_site_as_one(make_world: WorldMaker) -> None:
    world = make_world(workspaces_per_hour=1)
    codes = [
        world.app.test_client()
        .post(
            "/v2/workspace/create",
            json={"data": {"ownerEmail": f"a{number}@acme.example"}},
            environ_overrides={"REMOTE_ADDR": address},
        )
        .status_code
        for number, address in enumerate(["2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"])
    ]

    assert codes == [200, 429, 200]


def test_the_limit_by_address_ignores_the_port_that_some_proxies_add(make_world: WorldMaker) -> None:
    world = make_world(workspaces_per_hour=1)
    codes = [
        world.app.test_client()
        .post(
            "/v2/workspace/create",
            json={"data": {"ownerEmail": f"a{number}@acme.example"}},
            environ_overrides={"REMOTE_ADDR": address},
        )
        .status_code
        for number, address in enumerate(["192.0.2.1:1000", "192.0.2.1:1001", "[2001:db8::1]:5", "[2001:db8::2]:6"])
    ]

    assert codes == [200, 429, 200, 429]


def test_workspaces_per_hour_zero_refuses_all(make_world: WorldMaker) -> None:
    world = make_world(workspaces_per_hour=0)
    for _ in range(2):
        response = world.anonymous.call("create_workspace", ownerEmail="b@acme.example")
        assert response.status_code == 403
        assert response.json is not None
        assert "self_hosted_backend.workspaces_per_hour is 0" in response.json["error"]["message"]
    with reading(world.engine) as connection:
        assert connection.scalar(select(func.count()).select_from(WORKSPACE_ATTEMPT)) == 0


def test_forwarded_addresses_are_used_behind_trusted_proxies_only(make_world: WorldMaker) -> None:
    for trusted, codes in ((0, [200, 429]), (1, [200, 200])):
        world = make_world(workspaces_per_hour=1, trusted_proxies=trusted)
        world.clock.move_on(hours=2 + trusted * 2)
        answers = [
            world.anonymous.send(
                "/v2/workspace/create",
                b'{"data": {"ownerEmail": "%d%d@acme.example"}}' % (trusted, number),
                **{"X-Forwarded-For": f"203.0.113.{number}"},
            ).status_code
            for number in range(2)
        ]
        assert answers == codes


def test_get_workspace_returns_the_created_workspace(world: BackendWorld) -> None:
    created = world.anonymous("create_workspace", ownerEmail="ada@acme.example", avatar="https://pics.example/a")
    headers = {"x-service-workspace-id": created["id"], "x-service-workspace-auth-token": created["authToken"]}
    response = world.app.test_client().post("/v2/workspace/get", json={"data": {}}, headers=headers)

    assert response.json is not None
    assert response.json["result"]["data"] == created


def test_create_api_key_returns_a_usable_key(world: BackendWorld) -> None:
    owner = world.workspace("ada@acme.example")

    plain = owner("create_api_key", ownerEmail="ada@acme.example", type="production")["apiKey"]
    named = owner(
        "create_api_key", ownerEmail="Ada@Acme.Example", type="testing", createAuthToken=True, apiKeyName="CI"
    )["apiKey"]

    keys = owner("get_workspace")["apiKeyList"]
    assert keys[plain] == {"id": plain, "apiKeyName": "Ada Production API Key", "type": "production"}
    assert keys[named] == {"id": named, "apiKeyName": "CI", "type": "testing"}
    assert owner("get_auth_tokens", apiKey=plain)["authTokens"] == []
    (token,) = owner("get_auth_tokens", apiKey=named)["authTokens"]
    assert token["name"] == "CI"
    assert token["domains"] == []
    response = world.app.test_client().post(
        "/v1/organizations/get",
        json={"data": {}},
        headers={"x-service-api-key": named, "x-service-auth-token": token["token"]},
    )
    assert response.status_code == 200


def test_create_api_key_requires_the_owner(world: BackendWorld) -> None:
    owner = world.workspace("ada@acme.example")
    world.workspace("bob@acme.example")

    code, status, message = owner.refused("create_api_key", ownerEmail="bob@acme.example", type="testing")

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith("data.ownerEmail: ")


def test_reset_auth_token_revokes_the_old_token_on_every_node(world: BackendWorld) -> None:
    owner = world.workspace()
    key = owner.ids["api_key"]
    old = owner("get_auth_tokens", apiKey=key)["authTokens"][0]
    nodes = [world.app, world.another_node()]

    def works(token: str) -> list[int]:
        headers = {"x-service-api-key": key, "x-service-auth-token": token}
        return [
            node.test_client().post("/v1/organizations/get", json={"data": {}}, headers=headers).status_code
            for node in nodes
        ]

    assert works(old["token"]) == [200, 200]
    answer = owner("reset_auth_token", apiKey=key)

    assert answer["apiKey"] == key
    new = answer["newAuthToken"]
    assert (new["name"], new["domains"]) == (old["name"], old["domains"])
    assert works(old["token"]) == [403, 403]
    assert works(new["token"]) == [200, 200]
    assert owner("get_auth_tokens", apiKey=key)["authTokens"] == [new]


@pytest.mark.parametrize("operation", ["reset_auth_token", "get_auth_tokens"])
def test_auth_tokens_of_other_workspaces_are_not_found(world: BackendWorld, operation: str) -> None:
    owner, other = world.workspace(), world.workspace()

    assert owner.refused(operation, apiKey=other.ids["api_key"])[:2] == (404, "NOT_FOUND")
    assert owner.refused(operation, apiKey="nothing")[:2] == (404, "NOT_FOUND")
