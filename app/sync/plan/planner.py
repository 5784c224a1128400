"""Makes a plan: what has to be done so that the backend holds what the directory says.

The rules: ``app/sync/plan/README.md``, "Differences".

``make_plan`` compares the desired state (``desired``) with the ledger and writes what differs to ``plan_item``
(``differences``), in one transaction that sees one revision of the access model and one of the ledger. Memory
does not grow with the number of items. A ``parent_id`` is empty at the top of the tree, where the backend uses
``root``; an empty ``access_type`` of a folder means ``inheritFromParent``.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random
from typing import TypeVar

from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import DBAPIError

from app.foundation.clock import epoch_ms
from app.foundation.database.engine import WRITE_LOCK, is_sqlite
from app.foundation.database.errors import is_write_conflict
from app.foundation.database.statements import run, statement
from app.sync.ledger.counts import Counts
from app.sync.ledger.items import ItemKey, Kind
from app.sync.ledger.ledger import read_ledger
from app.sync.plan.dependencies import skip_dependents, skip_without_container
from app.sync.plan.desired import compute
from app.sync.plan.differences import fill_steps, write_items
from app.sync.plan.impact import note_impact
from app.sync.plan.parts import ALIKE, Parts
from app.sync.plan.selection import EVERYTHING, Selection
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan, load_plan
from app.sync.plan.tables import PlanRow

_WRITE_DOWN = insert(PlanRow.__table__)

ResultT = TypeVar("ResultT")

_ROWS_AT_A_TIME = 5_000
_ATTEMPTS = 5
"""How often planning begins anew when another transaction came in between."""


class PlanningError(Exception):
    """A plan cannot be made; the text is for whoever asked for it."""


_IN_ORDER = """
SELECT operation || '|' || kind || '|' || scope || '|' || @json(organization_id) || @json(container_id) ||
  @json(item_id) || '|' || digest || '|' || access_type || '|' || access_role || '|' ||
  CASE WHEN disabled THEN '1' ELSE '0' END || '|' || @json(parent_id) || '|' || status || '|' ||
  COALESCE(CAST(covered_by AS TEXT), ''), {alike}
FROM plan_item WHERE plan_id = :plan_id ORDER BY ordinal
"""

_TEMPORARY = ("desired", "container", "step", "rule", "ordered_step", "tally", "covered_pair")


def make_plan(
    engine: Engine,
    *,
    ledger_id: int,
    now: datetime,
    limits: LimitSettings,
    grace: timedelta = timedelta(0),
    selection: Selection = EVERYTHING,
    allow_deletes: bool = False,
    approving: str | None = None,
    random: Random | None = None,
    only_to_look: bool = False,
    retry: Sequence[str] | None = None,
    retried: Sequence[ItemKey] = (),
) -> Plan:
    """Plans what brings the backend of this ledger in step with the directory at ``now``, and stores it.

    ``allow_deletes`` lifts the limits for this plan; what was discarded goes, too. ``approving`` is the id of a plan:
    this one then consists of the deletes that were held there and are still due, without limits, and of what they make
    necessary. ``only_to_look``: the plan alone is written; nothing is remembered because of it, no grace period begins.
    ``retry`` names the kinds of which it also holds what waits after a failure or is parked; empty: all.
    ``retried``: of those, these items alone.

    Raises ``PlanningError`` when the directory was never read (an empty access model would mean to delete everything),
    and when there is no such ledger or plan to approve.
    """
    identity = _new_id(now, random)
    return _undisturbed(
        engine,
        lambda connection: _plan(
            connection,
            plan_id=identity,
            ledger_id=ledger_id,
            now=now,
            limits=None if allow_deletes or approving else limits,
            grace=grace,
            selection=selection,
            approving=approving,
            notes_gone=not only_to_look,
            retry=retry,
            retried=retried,
        ),
    )


def is_still_due(
    engine: Engine, plan: Plan, *, limits: LimitSettings, grace: timedelta = timedelta(0), allow_deletes: bool = False
) -> bool:
    """Whether planning now, for the moment for which the plan was made, comes to the very same plan; stores nothing.

    A plan may have been made from a candidate, of which nothing is left: only this tells whether the directory has
    become what the candidate was, and the ledger is what it was then.
    """

    def same_again(connection: Connection) -> bool:
        again = _plan(
            connection,
            plan_id=f"{plan.plan_id} again",
            ledger_id=plan.ledger_id,
            now=plan.created_at,
            limits=None if allow_deletes else limits,
            grace=grace,
            selection=Selection.of(plan.organization_ids, plan.user_ids),
            approving=None,
            notes_gone=False,
            retry=None,
        )
        connection.rollback()
        return again.plan_hash == plan.plan_hash

    return _undisturbed(engine, same_again)


def _undisturbed(engine: Engine, work: Callable[[Connection], ResultT]) -> ResultT:
    """What the work gives in a snapshot; begun anew when another transaction came in between."""
    for attempt in range(_ATTEMPTS):
        try:
            with _snapshot(engine, lock_at_once=attempt > 0) as connection:
                return work(connection)
        except DBAPIError as error:
            if not is_write_conflict(error) or attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def _snapshot(engine: Engine, *, lock_at_once: bool) -> Iterator[Connection]:
    """A write transaction that sees one state of the whole database.

    On SQLite the first attempt takes the write lock only when it comes to writing: most plans hold little or nothing,
    and nobody has to wait while they are computed.
    """
    options: dict[str, object] = (
        {WRITE_LOCK: lock_at_once} if is_sqlite(engine) else {"isolation_level": "REPEATABLE READ"}
    )
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def _new_id(now: datetime, random: Random | None) -> str:
    return f"plan-{now:%Y%m%d-%H%M%S}-{(random or Random()).getrandbits(40):010x}"  # noqa: S311 - a name, no secret


def _plan(
    connection: Connection,
    *,
    plan_id: str,
    ledger_id: int,
    now: datetime,
    limits: LimitSettings | None,
    grace: timedelta,
    selection: Selection,
    approving: str | None,
    notes_gone: bool,
    retry: Sequence[str] | None,
    retried: Sequence[ItemKey] = (),
) -> Plan:
    revision, ledger_revision = _starting_point(connection, ledger_id, approving)
    parameters: dict[str, object] = {
        "plan_id": plan_id,
        "ledger_id": ledger_id,
        "now": epoch_ms(now),
        "grace_since": epoch_ms(now - grace),
        "organization_ids": selection.organizations_json,
        "user_ids": selection.users_json,
        "approving": approving,
        "retry_kinds": json.dumps(list(retry or Kind)) if retry is not None else "[]",
    }
    compute(connection, ledger_id=ledger_id, now=now, selection=selection)
    holds = fill_steps(connection, parameters, selection, limits, notes_gone=notes_gone, retried=retried)
    write_items(connection, parameters)
    skip_dependents(connection, ledger_id, plan_id)
    if selection.user_ids:
        skip_without_container(connection, ledger_id, plan_id)
    note_impact(connection, plan_id)
    for table in _TEMPORARY:
        run(connection, f"DROP TABLE IF EXISTS {table}")
    plan_hash, counts = _go_through(connection, plan_id, ledger_id)
    row = {
        "plan_id": plan_id,
        "ledger_id": ledger_id,
        "revision": revision,
        "ledger_revision": ledger_revision,
        "plan_hash": plan_hash,
        "created_at": epoch_ms(now),
        "organization_ids": selection.organizations_json,
        "user_ids": selection.users_json,
        "limits": json.dumps([hold.to_wire() for hold in holds], ensure_ascii=False),
    }
    connection.execute(_WRITE_DOWN, row)
    plan = load_plan(connection, plan_id, counts)
    assert plan is not None  # noqa: S101 - it was written by the statement above
    return plan


def _starting_point(connection: Connection, ledger_id: int, approving: str | None) -> tuple[int, int]:
    """The revisions of the access model and of the ledger that a plan is made from."""
    try:
        ledger = read_ledger(connection, ledger_id)
    except LookupError as error:
        raise PlanningError(str(error)) from error
    revision: int | None = connection.scalar(statement(connection, "SELECT MAX(revision) FROM access_revision"))
    if revision is None:
        raise PlanningError("the directory has not been read yet; run: usher directory refresh")
    if approving is not None:
        held = load_plan(connection, approving)
        if held is None or held.ledger_id != ledger_id:
            raise PlanningError(f"there is no plan {approving} of this backend")
    return revision, ledger.ledger_revision


def _go_through(connection: Connection, plan_id: str, ledger_id: int) -> tuple[str, Counts]:
    """A hash over the items in their order, and how many there are of each sort; their parts are written down on the
    way. Read as a stream: what they were made from may have other revisions by the time it is looked at again."""
    hashed = sha256(f"{ledger_id}\n".encode())
    parts = Parts(connection, plan_id)
    streaming = {"stream_results": True, "max_row_buffer": _ROWS_AT_A_TIME}
    items = statement(connection, _IN_ORDER, alike=ALIKE)
    rows = connection.execute(items, {"plan_id": plan_id}, execution_options=streaming)
    # Of a text, SQLAlchemy takes no yield_per.
    for partition in rows.partitions(_ROWS_AT_A_TIME):
        hashed.update("\n".join([row[0] for row in partition]).encode() + b"\n")
        parts.take([row[1] for row in partition])
    parts.end()
    return hashed.hexdigest(), parts.counts
