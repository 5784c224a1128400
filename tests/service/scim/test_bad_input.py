"""Bad input is answered with a SCIM error, never a 5xx, and changes nothing."""

import json
import random
from typing import Any

import pytest

from tests.service.scim.conftest import OTHER_TOKEN, TOKEN, Directory

ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
JSON = {"Content-Type": "application/scim+json"}


def _user(**attributes: object) -> str:
    return json.dumps({"schemas": [USER], "userName": "eve"} | attributes)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("[]", 400),
        ("{", 400),
        ('{"userName": "eve", "userName": "ada"}', 400),
        (_user(userName="e\0ve"), 400),
        (_user(userName="\ud800"), 400),
        (_user(userName=2**65), 400),
        (_user(userName=7), 400),
        (_user(userName=""), 400),
        (_user(emails="eve"), 400),
        (_user(active="perhaps"), 400),
        (_user(emails=[{"value": "a", "primary": True}, {"value": "b", "primary": True}]), 400),
        ('{"userName": ' + "[" * 1_000 + "]" * 1_000 + "}", 400),
        (_user(title="x" * (10 * 1024 * 1024)), 413),
        ("{" + ",".join(f'"a{number}":{{}}' for number in range(800_000)) + "}", 413),
    ],
    ids=range(15),
)
def test_body(directory: Directory, body: str, status: int) -> None:
    answer = directory.call("POST", "/Users", data=body.encode("utf-8", "surrogatepass"), headers=JSON)
    _check_error(answer, status)
    assert directory.call("GET", "/Users").get_json()["totalResults"] == 0


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("startIndex=99999999999999999999", 400),
        ("count=99999999999999999999", 400),
        ("startIndex=x", 400),
        ("filter=userName+eq+%22%00%22", 400),
        ("filter=userName+eq+%22%ff%22", 200),
        ("filter=" + "(" * 2_000, 400),
        ("filter=" + "not+(" * 1_000 + "userName+pr" + ")" * 1_000, 400),
        ("filter=" + "+or+".join(["userName+pr"] * 400), 200),
        ("filter=" + "x" * 9_000, 400),
        ("filter=active+co+%22a%22", 400),
        ("filter=nothing+eq+1", 400),
        ("attributes=%22", 400),
        ("sortBy=nothing", 400),
        ("startIndex=9223372036854775807&count=9223372036854775807", 200),
        ("startIndex=9223372036854775807", 200),
        ("startIndex=9999999999999999999", 400),
        ('filter=userName+eq+"\\ud800"', 400),
        ('filter=id+eq+"\\u0000"', 400),
    ],
    ids=range(18),
)
def test_query(directory: Directory, query: str, status: int) -> None:
    directory.user("ada")
    answer = directory.call("GET", f"/Users?{query}")
    if status == 200:
        assert answer.status_code == 200, answer.text
    else:
        _check_error(answer, status)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/Users/none", 404),
        ("DELETE", "/Users/none", 404),
        ("GET", "/Users/%00", 400),
        ("GET", "/Nothing", 404),
        ("DELETE", "/Users", 405),
        ("POST", "/Bulk", 501),
        ("GET", "/Me", 501),
    ],
)
def test_path(directory: Directory, method: str, path: str, status: int) -> None:
    _check_error(directory.call(method, path, {} if method == "POST" else None), status)


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "remove", "path": 'members[value eq "x"]'}] * 1_001,
        [{"OP": "add", "PATH": "x" * 8_001, "value": "x"}],
        [{"op": "remove", "path": f'members[value eq "{"x" * 8_000}"]'}],
        [{"op": "add", "value": {"x" * 8_001: "x"}}],
        [{"op": "remove", "path": "members[" + "not (" * 1_000 + 'value eq "x"' + ")" * 1_000 + "]"}],
        [{"op": "remove", "path": f'members[display co "{number}"]'} for number in range(101)],
        [{"op": "remove", "path": 'members[value eq "\\ud800"]'}],
        [{"op": "remove", "path": 'members[value eq "\\u0000"]'}],
        [{"op": "remove", "path": 'members[display eq "\\u0000"]'}],
        [{"op": "remove", "path": "members[value eq 7]"}],
        [{"op": "remove", "path": 'members[value gt "x"]'}],
        [{"op": "remove", "path": 'members[$ref eq "x"]'}],
        [{"op": "remove", "path": 'members[value eq "x"].display'}],
        [{"op": "remove", "path": 'members[value eq "x"]', "value": [{"value": "y"}]}],
        [{"op": "remove", "path": "members.display"}],
        [{"op": "add", "path": 'members[value eq "\\ud800"].display', "value": "x"}],
        [{"op": "add", "path": 'members[display eq "\\u0000"].value', "value": "x"}],
        [{"op": "add", "value": {"members.value": "x"}}],
        [{"op": "add", "value": {'members[value eq "x"].display': "x"}}],
    ],
    ids=range(19),
)
def test_operations(directory: Directory, operations: list[dict[str, Any]]) -> None:
    group = directory.group("acme", "x")
    _check_error(directory.call("PATCH", f"/Groups/{group}", {"schemas": [PATCH], "Operations": operations}), 400)
    assert directory.call("GET", f"/Groups/{group}").get_json()["members"] == [{"value": "x"}]


@pytest.mark.parametrize(
    ("operations", "detail"),
    [
        ([], "a PATCH must have at least one operation"),
        (
            [{"op": "replace", "path": "active", "value": "perhaps"}],
            "Input should be a valid boolean, unable to interpret input: active",
        ),
        ([{"op": "replace", "value": {"name": {"formatted": 3}}}], "Input should be a valid string: formatted"),
        ([{"op": "replace", "path": "emails", "value": "x"}], "Input should be an object: emails[0]"),
    ],
    ids=range(4),
)
def test_the_reason_is_one_plain_line(directory: Directory, operations: list[dict[str, Any]], detail: str) -> None:
    ada = directory.user("ada")
    answer = directory.call("PATCH", f"/Users/{ada}", {"schemas": [PATCH], "Operations": operations})
    _check_error(answer, 400)
    assert (answer.get_json()["scimType"], answer.get_json()["detail"]) == ("invalidValue", detail)


def test_a_long_filter_in_a_body(directory: Directory) -> None:
    schema = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
    body = {"schemas": [schema], "Filter": " or ".join(['userName eq "a"'] * 500)}
    _check_error(directory.call("POST", "/Users/.search", body), 400)


@pytest.mark.parametrize("escape", ["\\u0000", "\\uD800", "\\udfff"])
@pytest.mark.parametrize(
    "path", ['members[value eq "{}"].display', 'members[display eq "{}"].value', 'roles[value eq "{}"].display']
)
def test_escapes_in_paths(directory: Directory, path: str, escape: str) -> None:
    group = directory.group("acme", directory.user("ada"))
    path = path.replace("{}", escape)
    for operation in ({"op": "add", "path": path, "value": "x"}, {"op": "add", "value": {path: "x"}}):
        answer = directory.call("PATCH", f"/Groups/{group}", {"schemas": [PATCH], "Operations": [operation]})
        _check_error(answer, 400)


def test_tokens(directory: Directory) -> None:
    _check_error(directory.call("GET", "/Users", token=OTHER_TOKEN), 403)
    _check_error(directory.client.get("/scim/entra/v2/Users"), 401)
    _check_error(directory.client.get("/scim/app/v2/Users", headers={"Authorization": f"Bearer {OTHER_TOKEN}"}), 404)
    assert directory.client.get("/directory/entra", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404
    for _ in range(30):
        answer = directory.call("GET", "/Users", token="wrong")
    _check_error(answer, 429)
    assert int(answer.headers["Retry-After"]) > 0
    assert directory.call("GET", "/Users").status_code == 200


def test_a_name_that_is_taken(directory: Directory) -> None:
    directory.user("ada")
    answer = directory.call("POST", "/Users", {"schemas": [USER], "userName": "ADA"})
    _check_error(answer, 409)
    assert answer.get_json()["scimType"] == "uniqueness"


def test_secrets_are_neither_stored_nor_shown(directory: Directory, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "Tr0ub4dor&3"
    ada = directory.user("ada", password=secret)
    directory.patch(f"/Users/{ada}", {"op": "replace", "path": "password", "value": secret})
    answers = [directory.call("PUT", f"/Users/{ada}", {"schemas": [USER], "userName": 7, "password": secret})]
    answers.append(directory.call("GET", f"/Users/{ada}"))
    answers.append(directory.call("POST", "/Users", {"schemas": [USER], "userName": [secret], "password": secret}))
    with directory.engine.connect() as connection:
        stored = connection.exec_driver_sql("SELECT content FROM scim_resource").scalars().all()
    shown = "".join([*stored, *(answer.text for answer in answers[:2]), *capfd.readouterr()])
    assert secret not in shown
    assert TOKEN not in shown


_VALUES: list[Any] = [
    None, True, -1, 2**63, 1.5, "", "x", "\n", "é" * 600, [], {}, [[]], [{}], [None], {"value": 7}, {"value": ""},
    {"$ref": "Users/x"}, "urn:x:y", "members[", 'a eq "b"', 'emails[type eq "work"].value', {"a.b": 1}, ["x"],
]  # fmt: skip
_NAMES = [
    "userName",
    "emails",
    "active",
    "name",
    "members",
    "displayName",
    "schemas",
    "id",
    "meta",
    "manager",
    "x",
    "a b",
]
_PATHS = [
    *_NAMES, "name.givenName", 'emails[type eq "work"].value', "members.value", 'members[value eq "x"]', "members[",
    f"{USER}:userName", "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager", "", " ", ".", "a.b.c.d",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_are_answered(directory: Directory, seed: int) -> None:
    chosen = random.Random(seed)
    ada = directory.user("ada")
    paths = ["/Users", f"/Users/{ada}", "/Groups", f"/Groups/{directory.group('acme', ada)}"]
    for _ in range(60):
        method, path = chosen.choice(["POST", "PUT", "PATCH"]), chosen.choice(paths)
        body: dict[str, Any] = {name: chosen.choice(_VALUES) for name in chosen.sample(_NAMES, 3)}
        if method == "PATCH":
            operations = [
                {
                    "op": chosen.choice(["add", "Replace", "remove", "x"]),
                    **({"path": chosen.choice(_PATHS)} if chosen.random() < 0.8 else {}),
                    **({"value": chosen.choice([*_VALUES, body])} if chosen.random() < 0.8 else {}),
                }
                for _ in range(chosen.randint(1, 2))
            ]
            body = {"schemas": [PATCH], "Operations": operations}
        answer = directory.call(method, path, body)
        if answer.status_code >= 300:
            _check_error(answer, answer.status_code)
            assert answer.status_code < 500, (method, path, body, answer.text)
        else:
            for kept in ("/Users", "/Groups"):
                assert directory.call("GET", kept).status_code == 200, (method, path, body)
    report = directory.read()
    assert (report.changed, report.sources[0].reason) == (False, "")


def _check_error(answer: Any, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.content_type == "application/scim+json"
    body = answer.get_json(force=True)
    assert body["schemas"] == [ERROR]
    assert body["status"] == str(status)
    assert body["detail"]
    assert status not in {400, 409} or body["scimType"]
