"""Invalid requests get an error envelope, never a 5xx, and change no row."""

from typing import Any

import orjson
import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from app.backend.embedders.hashing import HashingEmbedder
from app.backend.handlers import all_handlers
from app.backend.http.dispatch import install_operations
from app.backend.judgments.index import JudgmentIndexes
from app.backend.judgments.judgment_handlers import JudgmentSearcher
from app.backend.schema import METADATA
from app.contract.operation import AuthLevel
from app.contract.operations import OPERATIONS, by_name
from app.http.body import ANONYMOUS_BYTES

from .conftest import BackendWorld, Caller, error_of

BUILT = sorted(
    handler.operation.name for handler in all_handlers(JudgmentSearcher(HashingEmbedder(), JudgmentIndexes(0)))
)
WITH_FIELDS = [name for name in BUILT if by_name(name).request.model_fields and by_name(name).auth is AuthLevel.K]


@pytest.fixture(scope="module")
def caller(standing: BackendWorld) -> Caller:
    """One caller for all tests of the module."""
    return standing.tenant()


def everything(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=str)
            for table in METADATA.sorted_tables
        }


RAW_BODIES = {
    "empty": b"",
    "blank": b"  \n",
    "not JSON": b"{",
    "a list": b"[]",
    "a string": b'"data"',
    "no data": b"{}",
    "null data": b'{"data": null}',
    "list data": b'{"data": []}',
    "duplicate keys": b'{"data": {"organizationId": "a", "organizationId": "b", "users": []}}',
    "duplicate data": b'{"data": {}, "data": {"organizationId": "a", "users": [{"userId": "u"}]}}',
    "NUL": b'{"data": {"organizationId": "a\\u0000b", "users": [{"userId": "u"}]}}',
    "NUL in an unknown field": b'{"data": {"organizationId": "a", "users": [{"userId": "u", "x": ["\\u0000"]}]}}',
    "NUL in a key": b'{"data": {"organizationId": "a", "users": [{"userId": "u", "\\u0000": 1}]}}',
    "half a surrogate": b'{"data": {"organizationId": "a", "users": [{"userId": "\\ud800"}]}}',
    "invalid UTF-8": b'{"data": {"organizationId": "\xff", "users": [{"userId": "u"}]}}',
    "a byte order mark": b'\xef\xbb\xbf{"data": {"organizationId": "a", "users": []}}',
    "NaN": b'{"data": {"organizationId": "a", "users": [{"userId": "u", "x": NaN}]}}',
    "a huge number": b'{"data": {"organizationId": "a", "users": [{"userId": "u", "x": 1e999}]}}',
    "a long integer": b'{"data": {"organizationId": "a", "users": [{"userId": "u", "x": 99999999999999999999999}]}}',
    "deep nesting": b'{"data": {"organizationId": "a", "users": [{"userId": "u", "x": '
    + b"[" * 5000
    + b"]" * 5000
    + b"}]}}",
    "a huge string": b'{"data": {"organizationId": "' + b"x" * 100_000 + b'", "users": [{"userId": "u"}]}}',
    "an empty id": b'{"data": {"organizationId": "", "users": [{"userId": "u"}]}}',
    "a number as id": b'{"data": {"organizationId": 1, "users": [{"userId": "u"}]}}',
    "one bad item": b'{"data": {"organizationId": "a", "users": [{"userId": "u"}, {"userId": ["v"]}]}}',
    "users no list": b'{"data": {"organizationId": "a", "users": {"userId": "u"}}}',
    "a bad role": b'{"data": {"organizationId": "a", "users": [{"userId": "u", "accessRole": "owner"}]}}',
    "too many items": orjson.dumps(
        {"data": {"organizationId": "a", "users": [{"userId": f"u{number}"} for number in range(1001)]}}
    ),
}


@pytest.mark.parametrize("name", RAW_BODIES)
def test_refused_body_changes_nothing(standing: BackendWorld, caller: Caller, name: str) -> None:
    before = everything(standing.engine)

    response = caller.send("/v1/users/add", RAW_BODIES[name])

    assert response.status_code == 400
    assert error_of(response)[0] == "INVALID_ARGUMENT"
    assert response.headers["x-request-id"]
    assert everything(standing.engine) == before


def test_bodies_beyond_the_limit_are_refused(tenant: Caller, world: BackendWorld) -> None:
    response = tenant.send("/v1/users/add", b" " * (world.settings.max_body_bytes + 1))

    assert response.status_code == 413
    assert error_of(response)[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("path", ["/v1/auth/token/get", "/v2/workspace/create"])
def test_anonymous_bodies_have_a_lower_limit(world: BackendWorld, path: str) -> None:
    for size, code in ((ANONYMOUS_BYTES, 400), (ANONYMOUS_BYTES + 1, 413)):
        response = world.anonymous.send(path, b'{"data":"' + b"x" * (size - 11) + b'"}')
        assert (response.status_code, error_of(response)[0]) == (code, "INVALID_ARGUMENT")


def test_body_with_too_many_values_is_refused_before_parsing(tenant: Caller) -> None:
    response = tenant.send("/v1/users/add", b'{"data":[' + b"{}," * 1_000_000 + b"{}]}")

    assert response.status_code == 413
    assert "too many values" in error_of(response)[1]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_other_content_types_are_refused(caller: Caller, content_type: str) -> None:
    response = caller.send("/v1/users/add", b"data=1", **{"Content-Type": content_type})

    assert response.status_code == 415
    assert error_of(response)[0] == "INVALID_ARGUMENT"


def test_error_names_the_field(caller: Caller) -> None:
    users: list[dict[str, Any]] = [{"userId": "a"}, {"userId": "b"}, {"userId": "c"}, {}]

    message = caller.refused("add_users", organizationId="acme", users=users)[2]

    assert message == "data.users[3].userId: field required"


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v3/users/add", "/v1/users/add/", "//v1/users/add", "/v1/users/add%00", "/v1/workspace/get", "/é"],
)
def test_unknown_paths_are_not_found(caller: Caller, path: str) -> None:
    response = caller.send(path, b'{"data": {}}')

    assert response.status_code == 404
    assert error_of(response)[0] == "NOT_FOUND"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(caller: Caller, method: str) -> None:
    response = caller.send("/v1/users/add", b"", method=method)

    assert response.status_code == 405
    assert response.headers["Allow"] == "POST"
    if method != "HEAD":
        assert error_of(response)[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_credentials_are_checked_first(standing: BackendWorld, operation: Any) -> None:
    codes = {standing.anonymous.send(path, b'{"data": {}}').status_code for path in operation.paths}

    assert codes == {{AuthLevel.NONE: 400, AuthLevel.BODY: 400}.get(operation.auth, 401)}


def test_server_has_all_operations(standing: BackendWorld) -> None:
    assert sorted(operation.name for operation in OPERATIONS) == BUILT
    unused: Any = None
    with pytest.raises(ValueError, match="add_users"):
        install_operations(Flask("empty"), unused, ())


STRANGE_IDS = [
    "a/b/../c",
    "it's",
    'say "hi"',
    " leading and trailing ",
    "emoji 😀👩‍👩‍👧",
    "'; DROP TABLE user_entry; --",
    "%s %(x)s :x {y}",
    "\\u0000",
    "\n\t",
    "ß",
    "ÅÅ",
    "x" * 512,
    "😀" * 128,
    "null",
    "[]",
    "__proto__",
]


@pytest.mark.parametrize("strange", STRANGE_IDS)
def test_unusual_ids(tenant: Caller, strange: str) -> None:
    organization = {"organizationId": strange}
    tenant("add_users", **organization, users=[{"userId": strange, "name": strange, strange: strange}])
    tenant("add_folder", **organization, folders=[{"folderId": strange}, {"folderId": "b", "parentFolderId": strange}])
    tenant("add_documents", **organization, folderId=strange, documents=[{"documentId": strange}])
    tenant("add_users", **organization, documentId=strange, users=[{"userId": strange}])
    tenant("add_users_to_groups", **organization, organizationUserGroupId=strange, userIds=[strange])

    (user,) = tenant("get_users", **organization, organizationUserGroupIds=[strange], userIds=[strange])
    assert user["userId"] == user["name"] == user[strange] == strange
    permissions = tenant(
        "get_permissions", **organization, userIds=[strange], folderIds=["b", strange], documentIds=[strange]
    )
    assert permissions[strange]["documents"][strange]["accessRole"] == "editor"
    (folder,) = tenant("get_folders", **organization, folderId="b")
    assert folder["ancestors"] == [strange]
    assert tenant("delete_users", **organization, userIds=[strange])[strange]["success"] is True
    assert tenant("delete_documents", **organization, documentIds=[strange])[strange]["success"] is True
    assert tenant("delete_folder", **organization, folderId=strange) is None
    assert tenant("delete_organizations", organizationIds=[strange])[strange]["success"] is True


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def almost_requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An operation, and data with its field names and arbitrary values."""
    name = draw(st.sampled_from(WITH_FIELDS))
    ids = st.sampled_from(["a", "b", "root", "ада", "x/y"])
    users = st.lists(
        st.fixed_dictionaries({"userId": ids}, optional={"name": JSON, "accessRole": JSON, "x": JSON}), max_size=3
    )
    known: dict[str, st.SearchStrategy[Any]] = {
        "organizationId": ids,
        "documentId": ids,
        "folderId": ids,
        "users": users,
        "folders": st.lists(
            st.fixed_dictionaries({"folderId": ids}, optional={"parentFolderId": ids, "folderName": JSON}), max_size=4
        ),
        "documents": st.lists(
            st.fixed_dictionaries({"documentId": ids}, optional={"documentName": JSON, "accessType": JSON}), max_size=3
        ),
        "organizations": st.lists(
            st.fixed_dictionaries({"organizationId": ids}, optional={"disabled": JSON}), max_size=3
        ),
        "createOrganization": st.just(True),
        "createFolder": st.booleans(),
    }
    data = {}
    for field in by_name(name).request.model_fields.values():
        alias = str(field.alias)
        likely = known.get(alias, st.lists(ids, max_size=3) if alias.endswith("Ids") else JSON)
        if draw(st.integers(0, 9)) > 1:
            data[alias] = draw(likely if draw(st.integers(0, 9)) else JSON)
    return name, data


@pytest.mark.extended
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(request=almost_requests())
def test_arbitrary_requests_never_cause_a_server_error(caller: Caller, request: tuple[str, dict[str, Any]]) -> None:
    name, data = request
    response = caller.call(name, **data)

    assert response.status_code in {200, 400, 404}, (name, data, response.json)
    if response.status_code != 200:
        error_of(response)
    else:
        # The response conforms to the contract.
        by_name(name).read(response.json)
