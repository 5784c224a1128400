"""The effects of answers, by index and in a fixed number of statements."""

import random
import sqlite3
from collections.abc import Iterator
from typing import Any, Self

import pytest
from sqlalchemy import Engine, event, insert, select

from app.commands.schema import METADATA
from app.foundation.database.engine import is_sqlite, open_engine, writing
from app.sync.ledger.settlement import UNSUPPORTED, Settlement, settle
from app.sync.ledger.tables import LedgerItemRow, LedgerRow
from app.sync.plan.counts import add_counts
from app.sync.plan.tables import PlanItemRow
from tests.tables import make_tables

LEDGER_ITEM = LedgerItemRow.__table__
EMPTY: dict[str, Any] = {
    "digest": "",
    "parent_id": "",
    "access_type": "",
    "access_role": "",
    "disabled": False,
    "container_id": "",
}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url)
    make_tables(opened, METADATA)
    with writing(opened) as connection:
        connection.execute(
            insert(LedgerRow.__table__).values(
                ledger_id=1, base_url="u", api_key_digest="k", ledger_revision=0, created_at=0
            )
        )
    yield opened
    opened.dispose()


def plan(engine: Engine, *items: dict[str, Any]) -> None:
    rows = [
        {
            "plan_id": "p", "ordinal": ordinal, "phase": 1, "action": "add", "organization_id": "acme", "scope": "[]",
            "operation": "add_documents", "payload": "", "reason": "", "status": "planned", "message": "",
            "covered_by": None, "kind": "document",
        } | EMPTY | item
        for ordinal, item in enumerate(items, 1)
    ]  # fmt: skip
    with writing(engine) as connection:
        connection.execute(insert(PlanItemRow.__table__), rows)


def ledger(engine: Engine, *items: dict[str, Any]) -> None:
    rows = [
        {"ledger_id": 1, "organization_id": "acme", "kind": "document", "certain": True, "gone_at": None} | EMPTY | item
        for item in items
    ]
    with writing(engine) as connection:
        connection.execute(insert(LEDGER_ITEM), rows)


def held(engine: Engine) -> dict[tuple[str, str, str], Any]:
    with engine.connect() as connection:
        return {(row.kind, row.container_id, row.item_id): row for row in connection.execute(select(LEDGER_ITEM))}


def take_in(engine: Engine, **groups: Any) -> None:
    with writing(engine) as connection:
        outcomes = Settlement(ledger_id=1, plan_id="p", **groups)
        settle(connection, outcomes, now_ms=1, random=random.Random(1))


def test_contents_of_an_item_that_was_added_again_are_unconfirmed(engine: Engine) -> None:
    ledger(
        engine,
        {"item_id": "d1"},
        {"kind": "documentUser", "container_id": "d1", "item_id": "ada"},
        {"kind": "documentUser", "container_id": "d2", "item_id": "ada"},
        {"kind": "folder", "item_id": "f1"},
        {"kind": "folder", "item_id": "f2", "parent_id": "f1"},
        {"kind": "folderUser", "container_id": "f1", "item_id": "ada"},
        {"item_id": "in-f1", "parent_id": "f1"},
        {"item_id": "in-f2", "parent_id": "f2"},
        {"organization_id": "other", "item_id": "in-other"},
        {"organization_id": "other", "kind": "organizationUser", "item_id": "bob"},
    )
    plan(
        engine,
        {"action": "update", "operation": "update_documents", "item_id": "d1", "digest": "new"},
        {"kind": "folder", "item_id": "f1"},
        {"kind": "organization", "organization_id": "other", "item_id": "other"},
    )
    take_in(engine, done={"add_documents": [1]}, added_again=[1, 2, 3])
    uncertain = {key for key, row in held(engine).items() if not row.certain}
    assert uncertain == {
        ("documentUser", "d1", "ada"),
        ("folder", "", "f2"),
        ("folderUser", "f1", "ada"),
        ("document", "", "in-f1"),
        ("document", "", "in-other"),
        ("organizationUser", "", "bob"),
    }


def test_item_with_several_operations_is_confirmed_by_the_last(engine: Engine) -> None:
    ledger(engine, {"item_id": "d1", "certain": False, "parent_id": "old"})
    plan(
        engine,
        {"action": "update", "operation": "update_documents", "item_id": "d1", "digest": "one"},
        {"action": "update", "operation": "update_documents", "item_id": "d1", "digest": "two"},
    )
    take_in(engine, done={"update_documents": [1]})
    assert (held(engine)["document", "", "d1"].digest, held(engine)["document", "", "d1"].certain) == ("one", False)
    take_in(engine, done={"update_documents": [2]})
    row = held(engine)["document", "", "d1"]
    assert (row.digest, row.certain, row.parent_id) == ("two", True, "old")


def test_last_operation_does_not_confirm_an_item_of_which_an_earlier_one_was_not_answered(engine: Engine) -> None:
    ledger(engine, {"item_id": "d1", "parent_id": "old"})
    plan(
        engine,
        {"action": "update", "operation": "move_documents", "item_id": "d1", "parent_id": "new"},
        {"action": "update", "operation": "update_documents", "item_id": "d1", "digest": "new"},
    )
    take_in(engine, unknown={1: "lost"})
    take_in(engine, done={"update_documents": [2]})
    row = held(engine)["document", "", "d1"]
    assert (row.digest, row.parent_id, row.certain) == ("new", "old", False)


@pytest.mark.parametrize(("message", "certain"), [(UNSUPPORTED, True), ("", False)])
def test_last_operation_confirms_an_item_despite_an_unsupported_one(
    engine: Engine, message: str, certain: bool
) -> None:
    plan(
        engine,
        {"item_id": "a", "operation": "move_documents", "action": "update", "status": "skipped", "message": message},
        {"item_id": "a", "operation": "update_documents", "action": "update"},
    )
    ledger(engine, {"item_id": "a", "certain": False})
    take_in(engine, done={"update_documents": [2]})
    assert held(engine)["document", "", "a"].certain is certain


def test_unknown_add_has_an_unconfirmed_row(engine: Engine) -> None:
    ledger(engine, {"item_id": "known", "digest": "d", "parent_id": "f"})
    plan(engine, {"item_id": "new", "digest": "x"}, {"item_id": "known", "digest": "y", "parent_id": "g"})
    take_in(engine, unknown={1: "lost", 2: "lost"})
    rows = held(engine)
    new, known = rows["document", "", "new"], rows["document", "", "known"]
    assert (new.digest, new.certain) == ("", False)
    assert (known.digest, known.parent_id, known.certain) == ("d", "f", False)


def test_delete_takes_what_it_covers_along(engine: Engine) -> None:
    ledger(
        engine, {"item_id": "d1"}, {"kind": "documentUser", "container_id": "d1", "item_id": "ada"}, {"item_id": "d2"}
    )
    plan(
        engine,
        {"action": "delete", "item_id": "d1"},
        {"action": "delete", "kind": "documentUser", "container_id": "d1", "item_id": "ada", "covered_by": 1},
    )
    take_in(engine, deleted=[1])
    assert set(held(engine)) == {("document", "", "d2")}
    with engine.connect() as connection:
        statuses = connection.execute(select(PlanItemRow.__table__.c.status)).scalars().all()
        assert statuses == ["done", "done"]
        assert connection.execute(select(LedgerRow.__table__.c.ledger_revision)).scalar() == 1


class Watched:
    """Counts statements, and asks SQLite which of them read a whole table."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.statements = 0
        self.scans: list[str] = []

    def __enter__(self) -> Self:
        event.listen(self._engine, "before_cursor_execute", self._look)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "before_cursor_execute", self._look)

    def _look(self, connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        self.statements += 1
        if not rest[-1]:
            raw: sqlite3.Connection = connection.connection.driver_connection
            steps = raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            whole = ("SCAN ledger_item", "SCAN plan_item", "SCAN p")
            self.scans += [f"{step[3]}: {statement}" for step in steps if step[3].startswith(whole)]


@pytest.mark.parametrize("number", [2, 10])
def test_settling_reads_by_index_in_a_fixed_number_of_statements(engine: Engine, number: int) -> None:
    if not is_sqlite(engine):
        pytest.skip("asks SQLite how it goes about it")
    plan(engine, *[{"item_id": f"d{ordinal}"} for ordinal in range(6 * number)])
    shares = [list(range(1 + share * number, 1 + (share + 1) * number)) for share in range(6)]
    with Watched(engine) as watched:
        take_in(
            engine,
            done={"add_documents": shares[0]},
            deleted=shares[1],
            unknown=dict.fromkeys(shares[2], "lost"),
            failed=dict.fromkeys(shares[3], "no"),
            added_again=shares[4],
            removed_members=shares[5],
        )
    assert watched.scans == []
    assert watched.statements == 25


def test_counts_add_up() -> None:
    one = {"document": {"add": {"planned": 2, "done": 1}}}
    other = {"document": {"add": {"planned": 1, "failed": 1}, "delete": {"planned": 1}}}
    assert add_counts(one, other) == {
        "document": {"add": {"planned": 3, "done": 1, "failed": 1}, "delete": {"planned": 1}}
    }
    assert one == {"document": {"add": {"planned": 2, "done": 1}}}
