"""Huge, deeply nested, truncated and unauthorized pushes to a real service behind nginx."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.attack.conftest import ADMIN_TOKEN, QUESTION, READ_TIMEOUT, TOKEN, Target, read_all, served
from tests.attack.test_large_bodies import GB, MB, pour
from tests.e2e.conftest import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.external, pytest.mark.timeout(180), pytest.mark.xdist_group("attack")]

PUSH, OTHER = "push-me-for-tests", "another-for-tests"
LINES = "application/jsonl"


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("pushed")
    sources = [
        {"type": "file", "path": str(folder / "directory.yaml"), "name": "people"},
        {"type": "push", "name": "the app", "changes": {"tokens": [PUSH]}},
        {"type": "push", "name": "other", "changes": {"tokens": [OTHER]}},
    ]
    with served(folder, "/directory/the%20app/changes", PUSH, directory={"sources": sources}) as target:
        yield target


def document(number: int, **further: object) -> dict[str, object]:
    identity = {"kind": "document", "organizationId": "acme", "documentId": f"d{number}"}
    return identity | {"documentName": f"Document {number}"} | further


def post(target: Target, body: object, token: str = PUSH) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return requests.post(target.url + target.path, json=body, headers=headers, timeout=60)


def put(target: Target, data: Any, token: str = PUSH, **headers: str) -> requests.Response:
    values = {"Authorization": f"Bearer {token}", "Content-Type": LINES} | headers
    return requests.put(f"{target.url}/directory/the%20app", data=data, headers=values, timeout=120)


def state(target: Target) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {PUSH}"}
    found: dict[str, Any] = requests.get(f"{target.url}/directory/the%20app", headers=headers, timeout=30).json()
    return found


def lines(records: int, size: int) -> Iterator[bytes]:
    """Documents with a field of the given size."""
    for number in range(records):
        yield json.dumps(document(number, text="x" * size)).encode() + b"\n"
    yield json.dumps({"end": True, "records": records}).encode() + b"\n"


def test_a_push_is_answered_by_the_next_permission_call(pushed: Target) -> None:
    sequence = state(pushed)["sequence"] + 1
    question = {**QUESTION, "resource": {"type": "document", "id": "d77", "organizationId": "acme"}}

    def allowed() -> bool:
        answer = requests.post(
            f"{pushed.url}/permissions/check",
            json={"data": {"requests": [question]}},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=10,
        )
        return bool(answer.json()["data"][0]["hasAccess"])

    assert not allowed()
    answer = post(pushed, {"sequence": sequence, "upsert": [document(77)]})
    assert answer.status_code == 200, answer.text
    assert allowed()


def test_a_gigabyte_is_refused(pushed: Target) -> None:
    before = pushed.memory()
    head = pushed.head(f"Content-Length: {GB}")
    everything = head.replace(b"POST /directory/the%20app/changes", b"PUT /directory/the%20app")
    for text in (head, everything):
        answer = pour(pushed, text + b"\r\n", (b" " * MB for _ in range(100)))
        assert answer.startswith(b"HTTP/1.1 413 ")
    assert pushed.memory() - before < 64 * MB


def test_a_large_complete_read_needs_little_memory(pushed: Target) -> None:
    body = b"".join(lines(2_400, 50_000))
    assert len(body) > 114 * MB
    before = pushed.memory()
    answer = put(pushed, body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["records"] == 2_400
    assert state(pushed)["records"] == 2_400
    # A cold process needs 58 to 70 MB for it, whether the body has 40 MB or 114.
    assert pushed.memory() - before < 90 * MB
    assert put(pushed, b"".join(lines(2_400, 10))).status_code == 200


@pytest.mark.parametrize("token", ["", "wrong", OTHER, ADMIN_TOKEN])
def test_wrong_tokens_are_refused_before_the_body_is_read(pushed: Target, token: str) -> None:
    head = (
        f"PUT /directory/the%20app HTTP/1.1\r\nHost: x\r\nContent-Type: {LINES}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {400 * MB}\r\n\r\n"
    )
    with pushed.connect(head.encode() + b" ") as peer:
        assert peer.recv(4096).split(b" ")[1] in {b"401", b"403", b"429"}
    before = pushed.memory()
    answer = pour(pushed, head.encode(), (b" " * MB for _ in range(400)))
    assert answer.split(b" ")[1] in {b"401", b"403", b"429"}
    assert pushed.memory() - before < 32 * MB


def test_slow_uploads_leave_threads_for_others(pushed: Target) -> None:
    head = (
        f"PUT /directory/the%20app HTTP/1.1\r\nHost: x\r\nContent-Type: {LINES}\r\n"
        f"Authorization: Bearer {PUSH}\r\nContent-Length: {400 * MB}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(pushed.connect(head)) for _ in range(10)]
        began = time.monotonic()
        assert state(pushed)["source"] == "the app"
        assert time.monotonic() - began < READ_TIMEOUT * 2 / 3
        codes = [read_all(peer).split(b" ")[1:2] for peer in peers]
    assert codes.count([b"503"]) == 9
    wait_for("a free slot", lambda: put(pushed, b"".join(lines(2_400, 10))).status_code == 200)


def test_an_upload_that_is_cut_off_changes_nothing(pushed: Target) -> None:
    before = state(pushed)
    body = b"".join(lines(60, 500_000))
    head = (
        f"PUT /directory/the%20app HTTP/1.1\r\nHost: x\r\nContent-Type: {LINES}\r\n"
        f"Authorization: Bearer {PUSH}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with pushed.connect(head.encode() + body[: 20 * MB]) as peer:
        peer.shutdown(1)
        read_all(peer)
    # The same body without its last line is complete HTTP.
    short = body.rpartition(b'{"end"')[0]
    wait_for("a free slot", lambda: put(pushed, short).status_code != 503)
    answer = put(pushed, short)
    assert (answer.status_code, "the last line is missing" in answer.text) == (400, True)
    assert state(pushed)["records"] == before["records"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" * 100_000, 400),
        (b'{"sequence": 1, "upsert": [' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"]}", 400),
        (b'{"sequence": 1, "sequence": 2}', 400),
        (b'{"sequence": 1, "upsert": [{"kind": "user", "userId": "\\u0000", "name": "", "email": ""}]}', 400),
        (b'{"sequence": 1, "upsert": [{"kind": "user", "userId": "\\ud800", "name": "", "email": ""}]}', 400),
        (b'{"sequence": 1, "upsert": [{"\\u0000": 1}]}', 400),
        (b'{"sequence": 1, "upsert": [{"kind": "user", "userId": "u", "name": "", "email": "", "\\ud800": 1}]}', 400),
        (json.dumps({"sequence": 1, "upsert": [document(number) for number in range(1_001)]}).encode(), 400),
        (b"\xff", 400),
        (b"", 400),
    ],
)
def test_odd_pushes_are_refused_with_a_reason(pushed: Target, body: bytes, code: int) -> None:
    before = state(pushed)
    headers = {"Authorization": f"Bearer {PUSH}", "Content-Type": "application/json"}
    answer = requests.post(pushed.url + pushed.path, data=body, headers=headers, timeout=30)
    assert answer.status_code == code, answer.text
    assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"
    assert {**state(pushed), "ageSeconds": 0} == {**before, "ageSeconds": 0}


def test_the_token_of_another_source_is_refused(pushed: Target) -> None:
    answer = post(pushed, {"sequence": 1}, OTHER)
    assert (answer.status_code, answer.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
