"""Uploads: all records of a source in one request."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.access.pending import take_pending
from app.foundation.database.engine import reading
from tests.service.push.conftest import (
    ERP,
    HR,
    PUSH,
    SMALL,
    Service,
    document,
    grant,
    membership,
    organization,
    user,
)

PEOPLE = [organization(), user("ann"), membership("ann")]


def lines(records: Sequence[object], /, **end: object) -> bytes:
    last = {"end": True, "records": len(records)} | end
    return b"".join(json.dumps(one).encode() + b"\n" for one in [*records, last])


def put(service: Service, body: bytes, source: str = "app", token: str = PUSH, query: str = "", **headers: str) -> Any:
    headers = {"Content-Type": "application/jsonl"} | headers
    return service.call("PUT", f"/directory/{source}{query}", token, data=body, headers=headers)


def there(service: Service, kind: str = "document") -> list[str]:
    return [str(one[f"{kind}Id"]) for one in service.records() if one["kind"] == kind]


def test_records_missing_from_an_upload_are_removed(service: Service) -> None:
    service.pushed(3, upsert=[*PEOPLE, document("d1"), document("d2")])
    answer = put(service, lines([*PEOPLE, document("d2"), document("d3")]))
    assert answer.status_code == 200
    result = answer.get_json()
    assert result["records"] == 5
    assert result["changes"] == {"document": {"added": 1, "updated": 0, "removed": 1}}
    assert there(service) == ["d2", "d3"]
    # Pushes continue from the last sequence.
    assert service.push({"sequence": 2, "upsert": [document("d9")]}).get_json()["error"]["details"] == {"sequence": 3}
    assert there(service) == ["d2", "d3"]


def test_ineffective_records_are_listed_by_line_without_those_of_other_sources(service: Service) -> None:
    service.pushed(1, upsert=[organization(), user("ann"), grant("secret", "somebody")], source="hr", token=HR)
    records = [document("d1"), user("ann"), grant("nowhere", "ann"), document("d1"), grant("d1", "who")]
    answer = put(service, lines(records)).get_json()
    assert {one["index"]: one["reason"].partition("' ")[2] for one in answer["leftOut"]} == {
        1: "is repeated at line 4, which replaces this record",
        2: "belongs to the source 'hr', which provides it at push 1, upsert[1]",
        3: "refers to the document 'nowhere' (documentId), which is nowhere in the directory",
        5: "refers to the user 'who' (userId), which is nowhere in the directory",
    }
    assert (answer["dangling"], answer["remarks"]) == (2, [])
    assert "secret" not in json.dumps(answer)


def test_pushes_continue_from_the_sequence_of_an_upload(service: Service) -> None:
    """An application that was installed again counts from the beginning."""
    service.pushed(5_000, upsert=PEOPLE)
    assert put(service, lines(PEOPLE, sequence=7)).status_code == 200
    assert service.call("GET", "/directory/app").get_json()["sequence"] == 7
    service.pushed(8, upsert=[document("d1")], previousSequence=7)
    assert there(service) == ["d1"]


def test_other_sources_stay_as_they_are(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE, source="hr", token=HR)
    before = service.call("GET", "/directory/hr", HR).get_json()
    assert put(service, lines([document("d1")])).status_code == 200
    assert service.call("GET", "/directory/hr", HR).get_json() == before
    assert there(service, "user") == ["ann"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\n", "the last line is missing"),
        (lines(PEOPLE).rpartition(b'{"end"')[0], "the last line is missing"),
        (lines(PEOPLE)[:-20], "line 4: not JSON"),
        (lines(PEOPLE, records=2), "records: must be the number of records before it, which is 3"),
        (lines(PEOPLE, records=3.0), "records: must be the number"),
        (lines(PEOPLE, end=1), "end: must be true"),
        (lines(PEOPLE, ends=True), "ends: is not a field of the last line"),
        (lines(PEOPLE, sequence=0), "sequence: must be a whole number"),
        (lines(PEOPLE) + b"{}\n", "is after the end"),
        (lines([*PEOPLE, {"kind": "user"}]), "line 4: userId: is missing"),
        (lines([*PEOPLE, user("nul\0")]), "line 4: userId: contains a NUL character"),
        (lines([*PEOPLE, user("half") | {"name": "\ud800"}]), "line 4: not JSON"),
        (lines(PEOPLE).replace(b"Ann", b"\xff"), "line 2: the bytes are not UTF-8"),
        (b"[" * 100_000 + b"\n" + lines([]), "line 1: "),
        (b'{"a":' * 100_000 + b"\n" + lines([]), "line 1: "),
        (b"x" * (1024 * 1024 + 10) + b"\n" + lines(PEOPLE), "line 1: is longer than 1,048,576 bytes"),
    ],
)
def test_nothing_is_applied_of_what_is_not_whole_or_not_understood(service: Service, body: bytes, message: str) -> None:
    service.pushed(1, upsert=[*PEOPLE, document("kept")])
    before = service.records()
    answer = put(service, body)
    assert answer.status_code == 400
    assert message in answer.get_json()["error"]["message"]
    assert service.records() == before
    assert service.call("GET", "/directory/app").get_json()["sequence"] == 1


def test_invalid_lines_are_listed_up_to_a_hundred(service: Service) -> None:
    answer = put(service, lines([*PEOPLE, *({"kind": "user", "userId": str(number)} for number in range(150))]))
    error = answer.get_json()["error"]
    assert "150 lines" in error["message"]
    assert [item["index"] for item in error["details"]["items"]] == list(range(4, 104))


def test_records_outside_the_scope_are_refused_and_not_removed(service: Service) -> None:
    """An upload to a source that is limited to the documents of one organization keeps all other records."""
    service.pushed(1, upsert=[*PEOPLE, organization("other")])
    small = {"source": "small%20app", "token": SMALL}
    assert put(service, lines([document("d1"), grant("d1", "ann")]), **small).status_code == 200
    answer = put(service, lines([document("d1"), document("d2", "other"), user("eve")]), **small)
    assert answer.status_code == 403
    assert [item["index"] for item in answer.get_json()["error"]["details"]["items"]] == [2, 3]
    assert there(service) == ["d1"]
    assert put(service, lines([]), query="?acceptShrink=true", **small).status_code == 200
    assert there(service) == []


def test_an_upload_keeps_records_of_a_read_outside_its_scope(service: Service) -> None:
    service.read("erp", [*PEOPLE, document("d1")])
    assert put(service, lines([document("d2")]), "erp", ERP).status_code == 200
    assert (there(service), there(service, "user")) == (["d2"], ["ann"])


def test_the_guard_refuses_an_upload_that_removes_too_much(service: Service) -> None:
    service.pushed(1, upsert=[*PEOPLE, *(document(f"d{number:02}") for number in range(50))])
    answer = put(service, lines([*PEOPLE, document("d00")]))
    assert answer.status_code == 409
    error = answer.get_json()["error"]
    assert "49 of 50 document records" in error["message"]
    assert error["message"].endswith("send it again with ?acceptShrink=true")
    assert len(there(service)) == 50
    assert put(service, lines([]), query="?acceptShrink=false").status_code == 409
    assert put(service, lines([*PEOPLE, document("d00")]), query="?acceptShrink=true").status_code == 200
    assert there(service) == ["d00"]


def test_records_pushed_during_an_upload_stay(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.pushed(1, upsert=[*PEOPLE, document("old"), document("kept")])
    import app.service.push.upload as module

    original = module.UploadedSource.read

    def read(self: Any) -> Any:
        service.pushed(
            2, upsert=[document("new")], remove=[{k: v for k, v in document("old").items() if k != "documentName"}]
        )
        yield from original(self)

    monkeypatch.setattr(module.UploadedSource, "read", read)
    assert put(service, lines([*PEOPLE, document("old"), document("kept")])).status_code == 200
    assert there(service) == ["kept", "new"]


def test_an_overtaken_upload_gets_no_advice_to_skip_the_guard(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.read("erp", PEOPLE)
    import app.service.push.upload as module

    original = module.UploadedSource.read

    def read(self: Any) -> Any:
        service.read("erp", [*PEOPLE, document("later")])
        yield from original(self)

    monkeypatch.setattr(module.UploadedSource, "read", read)
    answer = put(service, lines([document("earlier")]), "erp", ERP)
    assert answer.status_code == 409
    assert answer.get_json()["error"]["message"] == "was not applied: another refresh that began later has been faster"
    assert there(service) == ["later"]


def test_changes_wait_for_a_sync(service: Service) -> None:
    service.pushed(1, upsert=PEOPLE)
    with service.engine.begin() as connection:
        take_pending(connection)
    put(service, lines([*PEOPLE, document("d1"), user("bob")]))
    with reading(service.engine) as connection:
        rows = connection.exec_driver_sql("SELECT sort, item_id FROM touched ORDER BY sort").all()
    assert [tuple(row) for row in rows] == [("organization", "acme"), ("user", "bob")]


@pytest.mark.parametrize(
    ("query", "headers", "code"),
    [
        ("?acceptShrink=yes", {}, 400),
        ("?acceptShrink=true&acceptShrink=false", {}, 400),
        ("?acceptShrink=", {}, 400),
        ("?acceptShrink=%FF", {}, 400),
        ("?accept=true", {}, 400),
        ("", {"Content-Type": "application/json"}, 415),
        ("", {"Content-Encoding": "gzip"}, 415),
        ("", {"Content-Type": "application/x-ndjson; charset=utf-8"}, 200),
    ],
)
def test_odd_requests_are_refused(service: Service, query: str, headers: dict[str, str], code: int) -> None:
    assert put(service, lines(PEOPLE), query=query, **headers).status_code == code


def test_the_token_of_another_source_is_refused(service: Service) -> None:
    assert put(service, lines(PEOPLE), token=HR).status_code == 403
    assert put(service, lines(PEOPLE), token="wrong").status_code == 401
    assert service.records() == []
