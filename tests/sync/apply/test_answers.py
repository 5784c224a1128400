"""Stored answers to calls."""

import json

import pytest
from sqlalchemy import select

from app.client.credentials import masked
from app.client.records import MAX_EXCERPT, CallRecord, record_call, recorded_calls
from app.foundation.database.engine import reading
from app.sync.apply.batch import exchange_of
from app.sync.ledger.journal import Exchange, call_of_item
from app.sync.ledger.tables import CallRow
from tests.worlds.planning import Directory, PlanningWorld, world

__all__ = ["world"]

NO = b'{"result":{"data":{"u":{"success": false,"message":"no"}}}}'
YES = b'{"result":{"data":{"u":{"success":true}}}}'


def call(body: bytes, code: int | None = 200, tries: int = 1, problem: str = "", secret: str = "") -> CallRecord:
    return CallRecord(
        operation="X",
        seconds=0.0,
        http_status=code,
        tries=tries,
        succeeded=not problem,
        body=body,
        problem=problem,
        mask=lambda text: masked(text, [secret] if secret else []),
    )


@pytest.mark.parametrize(
    ("calls", "exchange"),
    [
        ([], Exchange(None, 0, "")),
        ([call(YES, tries=3)], Exchange(200, 3, "")),
        ([call(NO), call(YES, 201)], Exchange(200, 2, NO.decode())),
        ([call(b"", None, 6, "no answer")], Exchange(None, 6, "no answer")),
        ([call(b"<h1>\0bad\xff</h1>", 502, 2, "HTTP 502")], Exchange(502, 2, "<h1>\ufffdbad\ufffd</h1>")),
    ],
)
def test_last_refusal_is_stored(calls: list[CallRecord], exchange: Exchange) -> None:
    assert exchange_of(calls) == exchange


def test_secrets_are_masked_however_they_are_written() -> None:
    secret = 'sec"ret\\ü'
    body = json.dumps({"said": secret, "plain": f"x {secret}", "success": False}).encode()
    body += json.dumps({"said": secret}, ensure_ascii=False).encode() + secret.encode() + b"z" * 5_000
    excerpt = call(body, 400, problem="refused", secret=secret).excerpt()
    assert "sec" not in excerpt
    assert excerpt.count("***") == 4
    assert len(excerpt) == MAX_EXCERPT


def test_calls_are_recorded_within_the_innermost_block() -> None:
    record_call(call(YES))
    with recorded_calls() as one:
        record_call(call(NO))
        with recorded_calls() as other:
            record_call(call(YES))
    record_call(call(YES))
    assert [len(one), len(other)] == [1, 1]


def test_calls_are_found_by_their_items(world: PlanningWorld) -> None:
    directory = Directory().organization("acme")
    for number in range(3):
        directory.user(f"u{number}").member("acme", f"u{number}")
    world.set_directory(directory)
    plan = world.plan()
    world.apply(plan)
    with reading(world.engine) as connection:
        rows = connection.execute(select(CallRow.__table__).order_by(CallRow.__table__.c.call_id)).all()
        assert [json.loads(row.ordinals) for row in rows] == [[1], [2, 3, 4]]
        calls = [(row.first_ordinal, row.code, row.tries, row.answer) for row in rows]
        assert calls == [(1, 200, 1, ""), (2, 200, 1, "")]
        for ordinal, row in ((1, rows[0]), (2, rows[1]), (4, rows[1])):
            found = call_of_item(connection, plan.plan_id, ordinal)
            assert found is not None
            assert (found.call_id, found.operation) == (row.call_id, row.operation)
        assert call_of_item(connection, plan.plan_id, 5) is None
        assert call_of_item(connection, "another", 1) is None


def test_failed_item_has_the_answer(world: PlanningWorld) -> None:
    world.set_directory(Directory().organization("acme").organization("other"))
    world.backend.troubles, world.backend.percent = ("items fail",), 100
    plan = world.plan()
    world.apply(plan)
    failed = [item.ordinal for item in world.items(plan, "failed")]
    with reading(world.engine) as connection:
        found = call_of_item(connection, plan.plan_id, failed[0])
    assert found is not None
    assert (found.items, found.code) == (2, 200)
    assert '"success": false' in found.answer or '"success":false' in found.answer
