"""Two processes move one run at the same time: for every pair of moves, the result is that of one after the other.

Each pair is first tried in both orders, for the allowed results. Then both moves run concurrently, each with
its own connection, many times.
"""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Connection, delete, event, insert, select

from app.commands.schema import METADATA
from app.foundation.database.engine import is_sqlite, open_engine, writing
from app.sync.ledger.settlement import cancel_unsent, is_still
from app.sync.plan.tables import PlanItemRow, PlanRow
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import HELD_FOR, RunConflictError, RunNotFoundError, RunStatus
from app.sync.runs.tables import RunRow
from tests.tables import make_tables

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROUNDS = {"sqlite": 3, "postgresql": 4}
"""For each pair from each status. Where nothing compares, most rounds go wrong; SQLite has one writer at a time."""

_RUN = RunRow.__table__
_ITEM = PlanItemRow.__table__
_PLAN = PlanRow.__table__

Move = Callable[[Runs, str], object]
Outcome = tuple[object, object, object]
"""The results of two moves, and the state of the database after them."""


def _ends(to: RunStatus, message: str = "") -> Move:
    """As the engine ends a run; early, and with what it did not send, where there is a message."""

    def outcome(connection: Connection) -> tuple[RunStatus, dict[str, object]]:
        if message:
            cancel_unsent(connection, "p", message)
        return to, {"finished_at": NOW, "error": message or None}

    return lambda runs, run_id: runs.end(run_id, outcome).status


def _settles(runs: Runs, run_id: str) -> object:
    """As apply takes an answer in."""
    with writing(runs.engine) as connection:
        if not is_still(connection, run_id, "applying"):
            raise RunConflictError("taken over")
        connection.execute(_ITEM.update().where(_ITEM.c.status == "planned").values(status="done"))
    return "settled"


MOVES: dict[str, Move] = {
    "start": lambda runs, run_id: runs.move(run_id, RunStatus.QUEUED, RunStatus.READING).status,
    "plan": lambda runs, run_id: runs.move(run_id, RunStatus.READING, RunStatus.PLANNING).status,
    "note": lambda runs, run_id: runs.update(run_id, RunStatus.PLANNING, calls=7),
    "apply": lambda runs, run_id: runs.move(run_id, RunStatus.PLANNING, RunStatus.APPLYING).status,
    "settle": _settles,
    "end": _ends(RunStatus.DONE),
    "hold": _ends(RunStatus.HELD),
    "fail": _ends(RunStatus.FAILED, "the backend: down"),
    "approve": lambda runs, run_id: runs.approve(run_id).status,
    "discard": lambda runs, run_id: runs.discard(run_id).status,
    "cancel": lambda runs, run_id: runs.cancel(run_id).status,
    "find orphans": lambda runs, _: [run.status for run in runs.end_orphans()],
    "forget": lambda runs, _: runs.prune(timedelta(days=30)),
}

BEGINNINGS: dict[str, tuple[RunStatus, timedelta]] = {
    **{status.value: (status, HELD_FOR) for status in RunStatus},
    "held too long": (RunStatus.HELD, -timedelta(days=1)),
}
"""Statuses to race from, and how long held deletes can still be approved then."""


@pytest.fixture
def runs(database_url: str) -> Iterator[Runs]:
    yield from _runs_in(database_url)


@pytest.fixture
def calm(tmp_path: Path) -> Iterator[Runs]:
    """Where one move comes after the other; what comes of that is the same on every database."""
    yield from _runs_in(f"sqlite:///{tmp_path / 'calm.db'}")


def _runs_in(database_url: str) -> Iterator[Runs]:
    engine = open_engine(database_url)
    if is_sqlite(engine):
        # Thousands of short transactions: no test takes the power away.
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF").close())
    make_tables(engine, METADATA)
    yield Runs(engine, lambda: NOW, random.Random(3))
    engine.dispose()


def begin(runs: Runs, beginning: str) -> None:
    """One run, with a plan of which something was done, something is still to be sent, and something is held."""
    status, held_for = BEGINNINGS[beginning]
    long_ago = round((NOW - timedelta(days=40)).timestamp() * 1000)
    ended = status not in {RunStatus.QUEUED, RunStatus.READING, RunStatus.PLANNING, RunStatus.APPLYING}
    with writing(runs.engine) as connection:
        for table in (_RUN, _ITEM, _PLAN):
            connection.execute(delete(table))
        connection.execute(
            insert(_RUN).values(
                run_id="r",
                trigger="resync",
                status=status.value,
                plan_id="p",
                requested_at=long_ago,
                finished_at=long_ago if ended else None,
                held_until=round((NOW + held_for).timestamp() * 1000) if status is RunStatus.HELD else None,
                cancel_requested=False,
                counts="{}",
                calls=0,
                report="{}",
            )
        )
        connection.execute(
            insert(_PLAN).values(plan_id="p", ledger_id=1, revision=1, ledger_revision=1, plan_hash="", created_at=0)
        )
        connection.execute(
            insert(_ITEM),
            [
                {
                    "plan_id": "p", "ordinal": ordinal, "phase": 150, "action": "delete", "kind": "document",
                    "organization_id": "acme", "container_id": "", "item_id": f"d{ordinal}",
                    "operation": "delete_documents", "scope": "[]", "reason": "gone", "status": of,
                }
                for ordinal, of in enumerate(("done", "planned", "held", "held"))
            ],
        )  # fmt: skip


def make(move: Move, runs: Runs) -> object:
    """Makes the move, and returns its result or the name of its error."""
    try:
        return move(runs, "r")
    except (RunConflictError, RunNotFoundError) as error:
        return type(error).__name__


def standing(runs: Runs) -> object:
    """The state of the database."""
    with runs.engine.connect() as connection:
        columns = [_RUN.c[name] for name in ("status", "cancel_requested", "calls", "error", "approved_at")]
        row = connection.execute(select(*columns)).one_or_none()
        items = connection.execute(select(_ITEM.c.status).order_by(_ITEM.c.ordinal)).scalars().all()
    return (None if row is None else tuple(row)), tuple(items)


def one_after_the_other(runs: Runs, beginning: str, first: str, second: str) -> Outcome:
    begin(runs, beginning)
    result = make(MOVES[first], runs)
    return result, make(MOVES[second], runs), standing(runs)


@pytest.mark.extended
@pytest.mark.parametrize("one", MOVES)
def test_two_moves_at_once_end_as_one_after_the_other(runs: Runs, calm: Runs, one: str) -> None:
    others = list(MOVES)[list(MOVES).index(one) :]
    raced = 0
    with ThreadPoolExecutor(2) as pool:
        for other in others:
            for beginning in BEGINNINGS:
                forth = one_after_the_other(calm, beginning, one, other)
                result, other_result, stands = one_after_the_other(calm, beginning, other, one)
                back = (other_result, result, stands)
                begin(calm, beginning)
                if forth == back and standing(calm) == stands:
                    continue  # Neither is possible.
                raced += 1
                for _ in range(ROUNDS[runs.engine.dialect.name]):
                    begin(runs, beginning)
                    assert race(pool, runs, one, other) in (forth, back), f"{one} against {other} from {beginning}"
    assert raced, "no status was found that the move is possible in"


def race(pool: ThreadPoolExecutor, runs: Runs, one: str, other: str) -> Outcome:
    start = Barrier(2)

    def go(name: str) -> object:
        with runs.engine.connect():
            # The connection is there already: to open one takes longer than a move.
            pass
        start.wait(timeout=30)
        return make(MOVES[name], runs)

    result = [pool.submit(go, name) for name in (one, other)]
    return result[0].result(), result[1].result(), standing(runs)
