"""Invalid requests to the endpoints of pushes: an envelope describes the problem, and nothing is applied."""

import json
from typing import Any

from tests.service.push.conftest import SMALL, Service, document, user

HUGE = "x" * 1_000_000
JSON, LINES = "application/json", "application/jsonl"
END = b'{"end": true, "records": 0}\n'


def one(**record: object) -> bytes:
    """A push of one record."""
    return json.dumps({"sequence": 1, "upsert": [record]}).encode()


CHANGES: list[tuple[bytes, str, int, str]] = [
    (b"", JSON, 400, "the body is empty"),
    (b"[]", JSON, 400, "the body must be a JSON object, but is a list"),
    (b"\xff", JSON, 400, "the body is not valid UTF-8"),
    (b"\xef\xbb\xbf{}", JSON, 400, "the body must not begin with a byte order mark"),
    (b'{"sequence": 1, "sequence": 2}', JSON, 400, "the body has the key 'sequence' twice"),
    (b'{"sequence": NaN}', JSON, 400, "the body is not valid JSON: NaN"),
    (b'{"sequence": 1e400}', JSON, 400, "sequence: must be a whole number"),
    (b'{"sequence": true}', JSON, 400, "sequence: must be a whole number"),
    (b'{"sequence": -1}', JSON, 400, "sequence: must be a whole number"),
    (b'{"sequence": 9223372036854775808}', JSON, 400, "sequence: must be a whole number"),
    (b'{"sequence": 1, "previousSequence": "x"}', JSON, 400, "previousSequence: must be a whole number"),
    (b'{"sequence": 1, "upsert": {}}', JSON, 400, "upsert: must be a list, but is an object"),
    (b'{"sequence": 1, "\\ud800": 1}', JSON, 400, r"'\ud800': not a field of a push"),
    (json.dumps({HUGE: 1, "sequence": 1}).encode(), JSON, 400, "xxx"),
    (b'{"sequence": 1, "upsert": [null, 1, "x", [], {}]}', JSON, 400, "5 items cannot be understood"),
    (b'{"sequence": 1, "upsert": [{"kind": ["user"]}]}', JSON, 400, "one item cannot be understood"),
    (b'{"sequence": 1, "upsert": [{"kind": "document", "organizationId": "\\ud800"}]}', JSON, 400, "one item"),
    (b'{"sequence": 1, "remove": [{"kind": "user"}]}', JSON, 400, "one item cannot be understood"),
    (b"[" * 1_000_000, JSON, 400, "the body must not be nested deeper than 32 levels"),
    (one(kind=HUGE), JSON, 400, "one item cannot be understood"),
    (one(**document("\0")), JSON, 400, "one item cannot be understood; nothing was applied: upsert[0]: documentId"),
    (one(**document(HUGE)), JSON, 400, "one item cannot be understood; nothing was applied: upsert[0]: documentId"),
    (one(**document("d", n=10**30)), JSON, 400, "one item cannot be understood; nothing was applied: upsert[0]: n: "),
    (one(**user("ann")), JSON, 403, "one item may not be pushed here; nothing was applied: upsert[0]: kind: user"),
    (one(**document("d", "else")), JSON, 403, "one item may not be pushed here"),
    (b'{"sequence": 1}', "", 415, "Content-Type must be application/json"),
    (b'{"sequence": 1}', LINES, 415, "Content-Type must be application/json"),
    (b'{"sequence": 1}', f"{JSON}; charset=utf-16", 415, "Content-Type may carry no parameter"),
]
"""Body, content type, status, and the beginning of the message."""

EVERYTHING: list[tuple[bytes, str, int, str]] = [
    (b"\n\n", LINES, 400, "nothing was applied: the last line is missing"),
    (b"null\n", LINES, 400, "nothing was applied: line 1: not an object, but null"),
    (b"\0\n" + END, LINES, 400, "nothing was applied: line 1: not JSON"),
    (b"\xff\n" + END, LINES, 400, "nothing was applied: line 1: the bytes are not UTF-8"),
    (b"[" * 100_000, LINES, 400, "nothing was applied: line 1: not JSON"),
    (b"x" * 2_000_000, LINES, 400, "nothing was applied: line 1: is longer than 1,048,576 bytes"),
    (b'{"end": false}', LINES, 400, "nothing was applied: line 1: end: must be true"),
    (b'{"end": true, "records": true}', LINES, 400, "nothing was applied: line 1: records: must be the number"),
    (b'{"end": true, "records": -1}', LINES, 400, "nothing was applied: line 1: records: must be the number"),
    (b'{"end": true, "records": 0, "sequence": 1e9}', LINES, 400, "nothing was applied: line 1: sequence: must be"),
    (b'{"end": true, "records": 0, "\\ud800": 1}', LINES, 400, "nothing was applied: line 1: not JSON"),
    (json.dumps({"end": True, "records": 0, HUGE: 1}).encode(), LINES, 400, "nothing was applied: line 1: xxx"),
    (END + b"{}", LINES, 400, "nothing was applied: line 2: is after the end"),
    (json.dumps(user("ann")).encode() + b'\n{"end": true, "records": 1}', LINES, 403, "nothing was applied: 1 record"),
    (END, JSON, 415, "Content-Type must be application/jsonl or application/x-ndjson"),
    (END, "", 415, "Content-Type must be application/jsonl or application/x-ndjson"),
]


def test_each_invalid_request_gets_its_problem(service: Service) -> None:
    path = "/directory/small app"
    for method, where, table in (("POST", f"{path}/changes", CHANGES), ("PUT", path, EVERYTHING)):
        for body, content_type, code, begins in table:
            answer = service.call(method, where, SMALL, data=body, headers={"Content-Type": content_type})
            error: dict[str, Any] = answer.get_json()["error"]
            assert (answer.status_code, error["message"][: len(begins)]) == (code, begins), body[:80]
            assert len(error["message"]) < 500
    assert service.records() == []
    assert service.call("GET", path, SMALL).get_json()["sequence"] == 0


def test_a_source_that_is_not_there_is_not_found(service: Service) -> None:
    for name in ("nowhere", "%00", "%FF", "%ED%A0%80", "x" * 100_000, "small app/", "..%2Fsmall app", "app/changes"):
        for method, suffix, further in (
            ("POST", "/changes", {"json": {"sequence": 1}}),
            ("PUT", "", {"data": END, "headers": {"Content-Type": LINES}}),
            ("GET", "", {}),
        ):
            answer = service.call(method, f"/directory/{name}{suffix}", SMALL, **further)
            assert answer.status_code == 404, (name[:20], method)
            assert answer.get_json()["error"]["status"] == "NOT_FOUND"
