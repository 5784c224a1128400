"""Reads the rows of runs, locks them, and moves them from one status to another.

A row is locked, compared with the status that the caller expects, and changed in one transaction. If several processes
move one run, one succeeds, and the others get a ``RunConflictError``.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache

from sqlalchemy import Connection, Row, UpdateBase, bindparam, select, update

from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.database import statements
from app.sync.ledger.items import ItemKey
from app.sync.runs.run import ENDS, MOVES, Run, RunConflictError, RunNotFoundError, RunStatus, Stage
from app.sync.runs.tables import RunRow

RUN = RunRow.__table__

_MOMENTS = (
    "requested_at",
    "started_at",
    "finished_at",
    "held_until",
    "approved_at",
    "held_at",
    "resumed_at",
    "decided_at",
)

_ONE = select(RUN).where(RUN.c.run_id == bindparam("run_id"))
_CANCEL_REQUESTED = select(RUN.c.cancel_requested).where(RUN.c.run_id == bindparam("run_id"))
_ONE_LOCKED = _ONE.with_for_update()

_COUNT_END = """
INSERT INTO run_tally (status, runs) VALUES (:status, 1)
ON CONFLICT (status) DO UPDATE SET runs = run_tally.runs + 1
"""


def row_of(connection: Connection, run_id: str, *, locked: bool = False) -> Row[tuple[object, ...]]:
    """The row of a run; ``locked`` until the transaction ends. Raises ``RunNotFoundError``."""
    row = connection.execute(_ONE_LOCKED if locked else _ONE, {"run_id": run_id}).first()
    if row is None:
        raise RunNotFoundError(f"there is no run {run_id}")
    return row


SCOPES = ("everything", "narrowed", "preview")
"""Runs of everything, runs of some organizations or users, and dry runs."""


def recent_runs(
    connection: Connection,
    limit: int,
    before: str | None = None,
    *,
    statuses: Sequence[str] = (),
    trigger: str | None = None,
    scope: str | None = None,
    previews: bool = True,
) -> list[Run]:
    """The latest runs, newest first. ``before``: the id of a run, for older ones. ``scope``: one of ``SCOPES``.
    ``previews``: whether dry runs are included."""
    query = select(RUN).order_by(RUN.c.run_id.desc()).limit(limit)
    if before is not None:
        query = query.where(RUN.c.run_id < before)
    if statuses:
        query = query.where(RUN.c.status.in_(statuses))
    if trigger is not None:
        query = query.where(RUN.c.trigger == trigger)
    if not previews:
        query = query.where(~RUN.c.dry_run)
    is_everything = (RUN.c.organization_ids == "[]") & (RUN.c.user_ids == "[]")
    if scope == "preview":
        query = query.where(RUN.c.dry_run)
    elif scope is not None:
        query = query.where(~RUN.c.dry_run, is_everything if scope == "everything" else ~is_everything)
    return [run_from(row) for row in connection.execute(query)]


def cancel_is_requested(connection: Connection, run_id: str) -> bool:
    return bool(connection.execute(_CANCEL_REQUESTED, {"run_id": run_id}).scalar())


def allowed_deletes(connection: Connection, plan_id: str) -> bool:
    """Whether the limits were lifted for the run that made the plan."""
    made_by = select(RUN.c.allow_deletes).where(RUN.c.plan_id == plan_id, RUN.c.requested_plan_id.is_(None))
    return bool(connection.execute(made_by.order_by(RUN.c.requested_at).limit(1)).scalar())


def lock_run(connection: Connection, run_id: str) -> Run:
    """Reads a run and locks it until the transaction ends."""
    return run_from(row_of(connection, run_id, locked=True))


def move(connection: Connection, run: Run, to: RunStatus, at: datetime, **values: object) -> Run:
    """Moves a locked run to another status. Raises ``RunConflictError`` if that move is not allowed."""
    if to not in MOVES[run.status]:
        raise RunConflictError(f"the run is {run.status} and cannot become {to}")
    stages = json.dumps([[stage.status, epoch_ms(stage.at)] for stage in (*run.stages, Stage(to, at))])
    moved = change(connection, run, status=to.value, stages=stages, **values)
    if to in ENDS:
        statements.run(connection, _COUNT_END, {"status": to.value})
    return moved


def change(connection: Connection, run: Run, **values: object) -> Run:
    """Sets columns of a locked run. Raises ``RunConflictError`` if its status has changed."""
    new = {f"new_{name}": _stored(value) for name, value in values.items()}
    found = {"found_run_id": run.run_id, "found_status": run.status}
    row = connection.execute(_change_of(tuple(values)), new | found).first()
    if row is None:
        raise RunConflictError(f"the run was {run.status} and is {row_of(connection, run.run_id).status} now")
    return run_from(row)


@cache
def _change_of(names: tuple[str, ...]) -> UpdateBase:
    """Cached, because building a statement takes longer than executing it."""
    found = RUN.c.run_id == bindparam("found_run_id"), RUN.c.status == bindparam("found_status")
    return update(RUN).where(*found).values({name: bindparam(f"new_{name}") for name in names}).returning(RUN)


def run_from(row: Row[tuple[object, ...]]) -> Run:
    values = row._asdict()
    values["status"] = RunStatus(values["status"])
    for name in ("organization_ids", "user_ids", "kinds"):
        values[name] = tuple(json.loads(values[name]))
    for name in ("counts", "report"):
        values[name] = json.loads(values[name])
    values["stages"] = tuple(Stage(RunStatus(status), from_epoch_ms(at)) for status, at in json.loads(values["stages"]))
    values["items"] = tuple(ItemKey(*key) for key in json.loads(values["items"]))
    for name in _MOMENTS:
        values[name] = None if values[name] is None else from_epoch_ms(values[name])
    return Run(**values)


def _stored(value: object) -> object:
    if isinstance(value, datetime):
        return epoch_ms(value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return value
