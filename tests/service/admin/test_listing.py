"""The endpoints that list access: pages, their tokens, and wrong requests."""

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from flask import Flask
from flask.testing import FlaskClient
from pydantic import SecretStr
from sqlalchemy import Engine
from werkzeug.test import TestResponse

from app.access.decision.decide import DecisionPolicy
from app.access.records import Record
from app.commands.schema import METADATA
from app.foundation.audit import Audit
from app.foundation.database.engine import open_engine
from app.http.errors import install_error_handlers
from app.http.request_id import install_request_ids
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet
from app.service.admin.auth import AdminAuth
from app.service.admin.listing import listing_blueprint
from app.service.refusals import Refusals
from tests.tables import make_tables
from tests.worlds.access_model import StoredDirectory, record_from_wire, records_from_wire
from tests.worlds.openapi_check import undocumented_responses

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOON_MS = 1795176000000
TOKEN = "let-me-in"
RESOURCES, USERS = "/permissions/list-resources", "/permissions/list-users"
ADA: dict[str, Any] = {"userId": "ada", "organizationId": "acme"}
ROADMAP: dict[str, Any] = {"resource": {"type": "document", "id": "roadmap", "organizationId": "acme"}}
DIRECTORY: Any = {
    "organizations": [
        {"organizationId": "acme", "organizationName": "Acme"},
        {"organizationId": "closed", "disabled": True},
    ],
    "users": [{"userId": "ada", "name": "Ada"}, {"userId": "bob", "name": "Bob"}, {"userId": "Zoe", "name": "Zoe"}],
    "memberships": [{"organizationId": "acme", "userId": "ada", "accessRole": "viewer", "expiresAt": NOON}],
    "folders": [
        {"organizationId": "acme", "folderId": "specs", "folderName": "Specs", "accessType": "restricted"},
        {"organizationId": "acme", "folderId": "plans", "parentFolderId": "specs"},
    ],
    "documents": [
        {"organizationId": "acme", "documentId": "roadmap", "documentName": "Roadmap", "folderId": "plans"},
        {"organizationId": "acme", "documentId": "Zebra", "accessType": "public"},
        {"organizationId": "acme", "documentId": "apple", "folderId": "specs"},
        {"organizationId": "acme", "documentId": "lost", "folderId": "gone"},
    ],
    "groups": [{"organizationId": "acme", "organizationUserGroupId": "eng"}],
    "groupMembers": [{"organizationId": "acme", "organizationUserGroupId": "eng", "userId": "ada"}],
    "grants": [
        {"organizationId": "acme", "folderId": "plans", "organizationUserGroupId": "eng", "accessRole": "editor"},
        {"organizationId": "acme", "documentId": "roadmap", "userId": "Zoe", "accessRole": "viewer"},
        {"organizationId": "acme", "documentId": "lost", "userId": "ada", "accessRole": "viewer"},
    ],
}

Post = Callable[..., TestResponse]


def records() -> list[Record]:
    return records_from_wire(DIRECTORY)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


@pytest.fixture
def directory(engine: Engine) -> StoredDirectory:
    directory = StoredDirectory(engine)
    directory.write(records())
    return directory


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = Flask("admin")
    undescribed = undocumented_responses(app)
    install_request_ids(app, lambda: "id")
    install_error_handlers(app)
    audit = Audit(lambda: NOW)
    auth = AdminAuth(TokenSet([SecretStr(TOKEN)], FailedCredentials()), audit, Refusals(audit, engine))
    app.register_blueprint(listing_blueprint(engine, auth, lambda: NOW, DecisionPolicy()))
    yield app.test_client()
    assert undescribed == []


@pytest.fixture
def post(client: FlaskClient) -> Post:
    def post(path: str, body: object, token: str = TOKEN) -> TestResponse:
        return client.post(path, json=body, headers={"Authorization": f"Bearer {token}"})

    return post


def answer(response: TestResponse) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    assert response.json is not None
    return dict(response.json)


@pytest.mark.usefixtures("directory")
def test_null_is_left_out(post: Post) -> None:
    nulls = dict.fromkeys(("types", "role", "at", "pageSize", "pageToken"))
    assert answer(post(RESOURCES, ADA | nulls)) == answer(post(RESOURCES, ADA))


@pytest.mark.usefixtures("directory")
def test_resources_of_a_user_are_listed(post: Post) -> None:
    listed = answer(post(RESOURCES, ADA))
    membership = {"accessRole": "viewer", "expiresAt": NOON_MS}
    assert listed == {
        "resources": [
            {"type": "organization", "id": "acme", "name": "Acme", "rule": "member", **membership},
            {"type": "folder", "id": "plans", "name": "", "accessRole": "editor", "rule": "group_grant"},
            {"type": "document", "id": "Zebra", "name": "", "rule": "member_access", **membership},
            {"type": "document", "id": "roadmap", "name": "Roadmap", "accessRole": "editor", "rule": "group_grant"},
        ],
        "revision": 1,
        "revisionChanged": False,
        "at": 1795168800000,
    }


@pytest.mark.usefixtures("directory")
def test_users_of_a_resource_are_listed(post: Post) -> None:
    listed = answer(post(USERS, ROADMAP))
    assert listed["users"] == [
        {"userId": "Zoe", "name": "Zoe", "accessRole": "viewer", "rule": "own_grant"},
        {"userId": "ada", "name": "Ada", "accessRole": "editor", "rule": "group_grant"},
    ]
    assert listed["openTo"] == {"accessType": "restricted", "to": "nobody", "records": 0}


@pytest.mark.usefixtures("directory")
def test_access_without_a_grant_is_stated(post: Post) -> None:
    zebra = {"resource": {"type": "document", "id": "Zebra", "organizationId": "acme"}}
    listed = answer(post(USERS, zebra))
    assert [(row["userId"], row["rule"]) for row in listed["users"]] == [
        ("Zoe", "public_access"),
        ("ada", "member_access"),
        ("bob", "public_access"),
    ]
    assert listed["openTo"]["to"] == "everyone"
    of_organization = answer(post(USERS, {"resource": {"type": "organization", "id": "acme"}}))
    assert [row["userId"] for row in of_organization["users"]] == ["ada"]
    assert of_organization["openTo"] == {"accessType": None, "to": "members", "records": 0}


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("at", ["2026-11-20T12:00:00Z", "2026-11-20T13:00:00+01:00", NOON_MS])
def test_lists_of_a_later_moment(post: Post, at: object) -> None:
    listed = answer(post(RESOURCES, ADA | {"at": at}))
    assert [(row["id"], row["rule"]) for row in listed["resources"]] == [
        ("plans", "group_grant"),
        ("Zebra", "public_access"),
        ("roadmap", "group_grant"),
    ]
    assert listed["at"] == NOON_MS


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_add_up(post: Post, size: int) -> None:
    for path, body, name in ((RESOURCES, ADA, "resources"), (USERS, ROADMAP, "users")):
        rows: list[object] = []
        token: dict[str, str] = {}
        while True:
            page = answer(post(path, body | token | {"pageSize": size}))
            rows += page[name]
            assert 0 < len(page[name]) <= size
            if "nextPageToken" not in page:
                break
            token = {"pageToken": page["nextPageToken"]}
        assert rows == answer(post(path, body))[name]


@pytest.mark.usefixtures("directory")
def test_types_and_roles(post: Post) -> None:
    def ids(**more: object) -> list[str]:
        return [row["id"] for row in answer(post(RESOURCES, ADA | more))["resources"]]

    assert ids(types=["document", "organization"]) == ["acme", "Zebra", "roadmap"]
    assert ids(role="editor") == ["plans", "roadmap"]
    assert ids(role="viewer", types=["document"]) == ["Zebra"]
    assert [row["userId"] for row in answer(post(USERS, ROADMAP | {"role": "editor"}))["users"]] == ["ada"]


def test_a_page_of_another_revision_is_marked(post: Post, directory: StoredDirectory) -> None:
    first = answer(post(RESOURCES, ADA | {"pageSize": 2}))
    more = {"organizationId": "acme", "documentId": "added", "accessType": "public"}
    directory.write([*records(), record_from_wire("document", more)])
    second = answer(post(RESOURCES, ADA | {"pageSize": 2, "pageToken": first["nextPageToken"]}))
    assert (first["revision"], first["revisionChanged"]) == (1, False)
    assert (second["revision"], second["revisionChanged"]) == (2, True)
    assert [row["id"] for row in second["resources"]] == ["Zebra", "added"]
    third = answer(post(RESOURCES, ADA | {"pageSize": 2, "pageToken": second["nextPageToken"]}))
    assert (third["revision"], third["revisionChanged"]) == (2, True)


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(("path", "body"), [(RESOURCES, ADA), (USERS, ROADMAP)])
def test_lists_may_require_a_revision(client: FlaskClient, path: str, body: object) -> None:
    def status(revision: str) -> int:
        headers = {"Authorization": f"Bearer {TOKEN}", "x-usher-min-revision": revision}
        return client.post(path, json=body, headers=headers).status_code

    assert [status(revision) for revision in ("1", "2", "next")] == [200, 503, 400]


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("path", "body", "rule", "reason"),
    [
        (RESOURCES, {"userId": "eve", "organizationId": "acme"}, "user_unknown", "user eve is not in the directory"),
        (RESOURCES, ADA | {"organizationId": "x"}, "organization_unknown", "organization x is not in the directory"),
        (RESOURCES, ADA | {"organizationId": "closed"}, "organization_disabled", "organization closed is disabled"),
        (
            USERS,
            {"resource": {"type": "document", "id": "nothing", "organizationId": "acme"}},
            "resource_unknown",
            "organization acme has no document nothing",
        ),
        (
            USERS,
            {"resource": {"type": "document", "id": "lost", "organizationId": "acme"}},
            "folder_unknown",
            "folder gone, in which document lost lies, is not in the directory",
        ),
    ],
)
def test_an_empty_list_has_a_reason(post: Post, path: str, body: object, rule: str, reason: str) -> None:
    listed = answer(post(path, body))
    assert listed["denied"] == {"rule": rule, "reason": reason}
    assert listed.get("resources", listed.get("users")) == []


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (RESOURCES, [], "the body must be a JSON object"),
        (RESOURCES, {}, "body.userId: field required"),
        (RESOURCES, ADA | {"user": "x"}, "body.user: not a field of this request"),
        (RESOURCES, ADA | {"userId": 7}, "body.userId: must be a string"),
        (RESOURCES, ADA | {"userId": ""}, "body.userId: must not be empty"),
        (RESOURCES, ADA | {"userId": "a\0b"}, ""),
        (RESOURCES, ADA | {"userId": "x" * 513}, "body.userId: "),
        (RESOURCES, ADA | {"userId": "ü" * 300}, "body.userId: must be at most 512 bytes"),
        (RESOURCES, ADA | {"types": []}, "body.types: must not be empty"),
        (RESOURCES, ADA | {"types": ["context"]}, "body.types[0]: must be "),
        (RESOURCES, ADA | {"types": ["folder"] * 4}, "body.types: must hold at most 3"),
        (RESOURCES, ADA | {"role": "owner"}, "body.role: must be "),
        (RESOURCES, ADA | {"at": "tomorrow"}, "body.at: write a time with a zone"),
        (RESOURCES, ADA | {"at": True}, "body.at: write a time with a zone"),
        (RESOURCES, ADA | {"at": 10**18}, "body.at: write a time with a zone"),
        (RESOURCES, ADA | {"pageSize": 0}, "body.pageSize: "),
        (RESOURCES, ADA | {"pageSize": 1001}, "body.pageSize: "),
        (RESOURCES, ADA | {"pageSize": "5"}, "body.pageSize: must be a whole number"),
        (RESOURCES, ADA | {"pageToken": "bm8"}, "pageToken: not a token of this list"),
        (RESOURCES, ADA | {"pageToken": "ü!"}, "pageToken: not a token of this list"),
        (RESOURCES, ADA | {"userId": None}, "body.userId: field required"),
        (USERS, {"resource": None}, "body.resource: field required"),
        (USERS, {"resource": {"type": "document", "id": "x"}}, "body.resource.organizationId: field required"),
        (
            USERS,
            {"resource": {"type": "folder", "id": "x", "organizationId": None}},
            "body.resource.organizationId: field required",
        ),
        (
            USERS,
            {"resource": {"type": "organization", "id": "x", "organizationId": "y"}},
            "body.resource.organizationId: must equal resource.id",
        ),
        (USERS, {"resource": {"type": "context", "id": "x", "organizationId": "y"}}, "body.resource.type: must be "),
        (
            USERS,
            {"resource": {"type": "folder", "id": "x", "organizationId": "y", "z": 1}},
            "body.resource.z: not a field",
        ),
        (USERS, {"resource": "roadmap"}, "body.resource: must be an object"),
        (USERS, ROADMAP | {"types": ["folder"]}, "body.types: not a field of this request"),
    ],
)
def test_wrong_requests(post: Post, path: str, body: object, message: str) -> None:
    response = post(path, body)
    assert response.status_code == 400, response.text
    assert response.json is not None
    assert response.json["error"]["status"] == "INVALID_ARGUMENT"
    assert response.json["error"]["message"].startswith(message)


@pytest.mark.usefixtures("directory")
def test_tokens_belong_to_their_list(post: Post) -> None:
    token = answer(post(RESOURCES, ADA | {"pageSize": 1}))["nextPageToken"]
    assert post(RESOURCES, ADA | {"pageToken": token, "pageSize": 9}).status_code == 200
    others: list[dict[str, Any]] = [{"userId": "bob"}, {"role": "viewer"}, {"at": NOON_MS}, {"types": ["folder"]}]
    for other in others:
        assert post(RESOURCES, ADA | other | {"pageToken": token}).status_code == 400
    query = orjson.loads(base64.urlsafe_b64decode(token + "=="))[0]
    forged: list[object] = [
        7,
        [],
        [query],
        [query, 1, NOON_MS, "folder"],
        [query, 1, NOON_MS, "user", "x"],
        [query, 1, NOON_MS, "folder", "a\0b"],
        [query, 1, NOON_MS, "folder", 7],
        [query, "1", NOON_MS, "folder", "x"],
        [query, 1, 10**18, "folder", "x"],
        [query, 1, True, "folder", "x"],
    ]
    for content in forged:
        wrong = base64.urlsafe_b64encode(orjson.dumps(content)).decode()
        response = post(RESOURCES, ADA | {"pageToken": wrong})
        assert response.status_code == 400, content
        assert "pageToken: not a token of this list" in response.text


@pytest.mark.usefixtures("directory")
def test_lists_are_for_admins(post: Post, client: FlaskClient) -> None:
    for path, body in ((RESOURCES, ADA), (USERS, ROADMAP)):
        assert post(path, body, token="wrong").status_code == 401
        assert client.post(path, json=body).status_code == 401


def test_lists_need_a_directory(post: Post) -> None:
    assert post(RESOURCES, ADA).status_code == 503
    assert post(USERS, ROADMAP).status_code == 503
