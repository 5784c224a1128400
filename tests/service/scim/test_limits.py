"""The largest requests are answered within limits of memory and CPU, and larger ones are refused."""

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scim2_models import PatchOperation

from app.service.scim.blueprint import MAX_BODY_BYTES
from app.service.scim.handler import MAX_OPERATIONS
from app.service.scim.member_changes import split_member_changes
from tests.choice import sampled
from tests.service.scim.conftest import Directory

JSON = {"Content-Type": "application/scim+json"}
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"

MANY = 100_000


@contextmanager
def _bounded(*, seconds: int, megabytes: int) -> Iterator[None]:
    """CPU seconds of this process, and what it needs more than before at its peak."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < megabytes * 1024


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_groups_up_to_the_limit(directory: Directory, method: str, more: int) -> None:
    ada = directory.user("ada")
    path = "/Groups" if method == "POST" else f"/Groups/{directory.group('umbrella')}"
    members = [{"value": ada}, *({"value": f"{number:0>500}"} for number in range(1_000))]
    body = {"schemas": [GROUP], "displayName": "acme", "members": members, "unknown": ""}
    body["unknown"] = "x" * (MAX_BODY_BYTES - len(json.dumps(body)) + more)
    with _bounded(seconds=30, megabytes=400):
        answer = directory.call(method, path, data=json.dumps(body), headers=JSON)
    assert answer.status_code == (413 if more else 201 if method == "POST" else 200), answer.text[:500]
    assert directory.may(ada, "acme") is (not more)
    if not more:
        assert len(answer.get_json()["members"]) == 1_001


@pytest.mark.extended
def test_many_members_in_a_patch(directory: Directory) -> None:
    acme = directory.group("acme")
    add = {"op": "add", "path": "members", "value": [{"value": f"n{number}"} for number in range(MANY)]}
    with _bounded(seconds=60, megabytes=600):
        directory.patch(f"/Groups/{acme}", add)
        directory.patch(f"/Groups/{acme}", {"op": "remove", "path": 'members[value eq "n7"]'})
    with directory.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM scim_member").scalar_one() == MANY - 1
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM scim_key WHERE value = 'n7'").scalar_one() == 0
    late = directory.user("n8")
    assert directory.may(late, "acme")


def test_many_operations_are_merged_in_linear_time() -> None:
    added = [{"value": f"n{number}"} for number in range(2 * MANY)]
    lists = [added, *([{"value": f"late{number}"}] for number in range(MAX_OPERATIONS - 1))]
    operations = [PatchOperation[Any](op="add", path="members", value=members) for members in lists]
    with _bounded(seconds=4, megabytes=400):
        (change,), others = split_member_changes(operations)
    assert len(change.add) == 2 * MANY + MAX_OPERATIONS - 1
    assert not others


@pytest.mark.parametrize(
    "text",
    [
        '{"value": "a\\u0000b"}',
        '{"value": "\\ud800"}',
        '{"value": 99999999999999999999}',
        '{"value": "a", "value": "b"}',
        '{"value": {"value": "a"}}',
        '{"value": ["a"]}',
        '{"value": ""}',
        '{"value": "%s"}' % ("x" * 513),
        '{"display": "nobody"}',
        "7",
        "[" * 40 + "]" * 40,
    ],
    ids=range(11),
)
@pytest.mark.parametrize("method", sampled(["PATCH", "POST", "PUT"], sample=1))
def test_bad_members(directory: Directory, method: str, text: str) -> None:
    """One bad member makes the request fail, without any change."""
    ada = directory.user("ada")
    acme = directory.group("acme", ada)
    members = f'[{{"value": "late"}}, {text}]'
    if method == "PATCH":
        operation = f'{{"op": "add", "path": "members", "value": {members}}}'
        body = f'{{"schemas": ["{PATCH}"], "Operations": [{operation}]}}'
    else:
        body = f'{{"schemas": ["{GROUP}"], "displayName": "umbrella", "members": {members}}}'
    path = "/Groups" if method == "POST" else f"/Groups/{acme}"
    answer = directory.call(method, path, data=body.encode("utf-8", "surrogatepass"), headers=JSON)
    assert answer.status_code == 400, answer.text
    assert directory.call("GET", "/Groups").get_json()["totalResults"] == 1
    assert directory.call("GET", f"/Groups/{acme}").get_json()["members"][0]["value"] == ada


@pytest.mark.parametrize("depth", [30, 200, 1_500])
@pytest.mark.parametrize("path", ["/Users", "/Groups"])
def test_deep_filters(directory: Directory, path: str, depth: int) -> None:
    directory.group("acme", directory.user("ada"))
    filter_ = "(" * depth + 'displayName eq "acme"' + ")" * depth
    with _bounded(seconds=10, megabytes=100):
        answers = [
            directory.call("GET", path, query_string={"filter": filter_}),
            directory.call("GET", path, query_string={"filter": "not (" * depth + 'id eq "x"' + ")" * depth}),
        ]
    assert {answer.status_code for answer in answers} <= {200, 400}
