"""Measures the search for names, with the size of its tables, and the history of an item over three thousand plans."""

import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from app.access.records import Document, User
from app.access.search import DEFAULT_LIMIT, search
from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.foundation.database.engine import is_sqlite, open_engine
from app.foundation.database.migrations import upgrade
from app.service.console.transactions import page_reading
from app.sync.ledger.items import ItemKey
from app.sync.plan import tables as plan_tables
from app.sync.plan.listing import item_history
from tests.bench.console_world import NOW_MS, Builder, Size, build, grants, item_values, names, people, places
from tests.bench.databases import databases

AIM_MS = 6.0
AIM_HISTORY_MS = 10.0
OTHERS = 0.1
"""Of grants and plans there is that much: they have no names."""

PLANS = 3_000
"""Of which the history of an item is looked up: so many has the installation of the console's bench."""


def bench_names(folder: Path, *, scale: float, rounds: int, postgres: str | None) -> dict[str, object]:
    """The figures; ``scale`` 1: 1,000,000 users, as many documents, 1,000,000 grants, a plan of 150,000 items."""
    with databases(folder, postgres) as new_database:
        engine = open_engine(new_database("names"))
        upgrade(engine, STORE_MIGRATIONS)
        build(engine, Size(scale), print, (people, places, _others, names))
        figures = {
            **_size(engine),
            **_searches(engine, Size(scale), rounds * 20),
            **_history(engine, rounds * 20),
        }
        engine.dispose()
    return figures


def _others(b: Builder) -> None:
    others = Builder(b.connection, Size(b.size.scale * OTHERS))
    grants(others)
    _plans(others)


def _plans(b: Builder) -> None:
    """A large plan, and three thousand small ones, each with its run."""
    many = b.id("run", "n.i")
    plan = {"ledger_id": "1", "revision": "1", "ledger_revision": "1", "plan_hash": "'h'", "created_at": str(NOW_MS)}
    alike = {"phase": "1", "action": "'add'", "operation": "'add_users'", "scope": "'[]'", "reason": "'new'"}
    b.fill(plan_tables.PlanRow, {**plan, "plan_id": many}, b.series(PLANS))
    b.fill(plan_tables.PlanRow, {**plan, "plan_id": "'large'"}, "(SELECT 1) AS n")
    b.connection.execute(
        text(
            "INSERT INTO run (run_id, trigger, status, dry_run, verify, allow_deletes, retry, organization_ids,"
            " user_ids, plan_id, requested_at, cancel_requested, counts, calls, report)"
            f" SELECT {many}, 'schedule', 'done', FALSE, FALSE, FALSE, FALSE, '[]', '[]', {many}, {NOW_MS} + n.i,"
            f" FALSE, '{{}}', 5, '{{}}' FROM {b.series(PLANS)}"
        )
    )
    document = {"kind": "'document'", "organization_id": "'org-0'", "item_id": b.id("document", "(n.i + m.i) % 100")}
    b.fill(
        plan_tables.PlanItemRow,
        {**alike, **document, "plan_id": many, "ordinal": "m.i", "status": "'done'"},
        f"{b.series(PLANS)} CROSS JOIN {b.series(5, 'm')}",
        order="1, 2",
    )
    large = {**alike, **item_values(b), "plan_id": "'large'", "ordinal": "n.i", "status": "'done'"}
    b.fill(plan_tables.PlanItemRow, large, b.series(b.size.items))


def _bytes(engine: Engine, table: str) -> int:
    """The size of a table with its indexes."""
    if not is_sqlite(engine):
        with engine.connect() as connection:
            return int(connection.exec_driver_sql(f"SELECT pg_total_relation_size('{table}')").scalar_one())
    # Not every build of SQLite reports the size of a table: copy the table alone, and measure the file.
    assert engine.url.database is not None
    alone = Path(engine.url.database).with_suffix(".alone")
    with sqlite3.connect(engine.url.database) as found:
        definition = found.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        found.execute("ATTACH ? AS alone", (str(alone),))
        found.execute(definition.replace(f"TABLE {table}", f"TABLE alone.{table}"))
        found.execute(f"INSERT INTO alone.{table} SELECT * FROM main.{table}")
        found.commit()
    size = alone.stat().st_size
    alone.unlink()
    return size


def _size(engine: Engine) -> dict[str, object]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT COUNT(*) FROM access_name").scalar_one()
        named = " UNION ALL ".join(
            f"SELECT COUNT(*) AS records FROM {table}"
            for table in ("model_organization", "model_user", "model_group", "model_folder", "model_document")
        )
        records = connection.exec_driver_sql(f"SELECT SUM(records) FROM ({named}) AS named").scalar_one()
    return {"names": f"{rows:,} rows of {records:,} records, {_bytes(engine, 'access_name') / 1e6:.0f} MB"}


def _searches(engine: Engine, size: Size, repeats: int) -> dict[str, object]:
    wanted = {
        "what all are called": "number",
        "two letters": "us",
        "a word and a digit": "user number7",
        "what one is called": f"number{size.large}",
        "an address": f"user-{size.large}@company",
        "nothing": "zz zz",
    }
    figures: dict[str, object] = {}
    for name, typed in wanted.items():
        for kind in (User.kind, Document.kind):

            def look(connection: Connection, typed: str = typed, kind: str = kind) -> object:
                return search(connection, typed, kind, DEFAULT_LIMIT + 1)

            figures[f"search of {kind}s: {name}, p50/p99 ms"] = _timed(engine, look, repeats, AIM_MS)
    return figures


def _history(engine: Engine, repeats: int) -> dict[str, object]:
    def look(connection: Connection) -> object:
        item = ItemKey(kind="document", organization_id="org-0", container_id="", item_id="document-0000050")
        found = item_history(connection, item, limit=20)
        assert len(found) == 20
        return found

    return {f"history of an item over {PLANS:,} plans, p50/p99 ms": _timed(engine, look, repeats, AIM_HISTORY_MS)}


def _timed(engine: Engine, look: Callable[[Connection], object], repeats: int, aim: float) -> str:
    taken = []
    for _ in range(repeats + 2):
        with page_reading(engine) as connection:
            began = time.perf_counter()
            look(connection)
            taken.append((time.perf_counter() - began) * 1000)
    measured = sorted(taken[2:])
    p50, p99 = statistics.median(measured), measured[min(len(measured) - 1, len(measured) * 99 // 100)]
    return f"{p50:.2f} / {p99:.2f} (the aim: {aim:.0f})"
