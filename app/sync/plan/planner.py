"""Makes a plan: the operations that bring the backend to the state of the directory.

The rules: ``app/sync/plan/README.md``, "Differences".

``make_plan`` compares the desired state with the ledger and writes the differences to ``plan_item``, in one transaction
that sees one revision of the access model and of the ledger. Memory does not grow with the number of items.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from random import Random
from typing import TypeVar

from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import DBAPIError

from app.foundation.clock import epoch_ms
from app.foundation.database.engine import WRITE_LOCK, is_sqlite
from app.foundation.database.errors import is_write_conflict
from app.foundation.database.statements import run, statement
from app.sync.ledger.items import ItemKey, Kind
from app.sync.ledger.ledger import read_ledger
from app.sync.plan.dependencies import skip_dependents, skip_without_container
from app.sync.plan.desired import compute_desired
from app.sync.plan.differences import fill_steps, write_items
from app.sync.plan.scope import SCOPE_TABLES, find_scope
from app.sync.plan.selection import EVERYTHING, Selection
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Counts, Plan, load_plan
from app.sync.plan.summary import ALIKE, Parts, store_impact
from app.sync.plan.tables import PlanRow

ResultT = TypeVar("ResultT")

_ROWS_AT_A_TIME = 5_000
_ATTEMPTS = 5
"""The attempts to plan before a conflict with another transaction is an error."""


class PlanningError(Exception):
    """A plan cannot be made. The message is for the caller."""


_IN_ORDER = """
SELECT operation || '|' || kind || '|' || scope || '|' || @json(organization_id) || @json(container_id) ||
  @json(item_id) || '|' || digest || '|' || access_type || '|' || access_role || '|' ||
  CASE WHEN disabled THEN '1' ELSE '0' END || '|' || @json(parent_id) || '|' || status || '|' ||
  COALESCE(CAST(covered_by AS TEXT), ''), {alike}
FROM plan_item WHERE plan_id = :plan_id ORDER BY ordinal
"""

_TEMPORARY = ("desired", "container", "step", "rule", "ordered_step", "tally", "covered_pair", *SCOPE_TABLES)


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
    preview: bool = False,
    retry: Sequence[str] | None = None,
    retried: Sequence[ItemKey] = (),
    since: Sequence[str] = (),
) -> Plan:
    """Plans the changes of this backend for the state of the directory at ``now``, and stores the plan.

    ``allow_deletes``: lifts the limits, for discarded deletes too. ``approving``: the id of a plan. The new plan has
    the deletes that were held in it and are still due, without limits, and what they make necessary. ``preview``:
    begins no grace period and forgets no discards. ``retry``: the kinds of which failed items are retried; empty: all
    kinds. ``retried``: only these failed items. ``since``: the ids of a plan of everything and of all later ones, if
    nothing else has changed the ledger since: only what has changed is read, with the same result. Not for users.

    Raises ``PlanningError`` if the directory was never read, because an empty access model would delete everything, or
    if the ledger or the plan to approve does not exist.
    """
    plan_id = f"plan-{now:%Y%m%d-%H%M%S}-{(random or Random()).getrandbits(40):010x}"  # noqa: S311 - a name, no secret
    work = partial(
        _plan,
        plan_id=plan_id,
        ledger_id=ledger_id,
        now=now,
        limits=None if allow_deletes or approving else limits,
        grace=grace,
        selection=selection,
        approving=approving,
        store_gone=not preview,
        retry=retry,
        retried=retried,
        since=since,
    )
    return _with_retries(engine, work)


def is_still_due(
    engine: Engine, plan: Plan, *, limits: LimitSettings, grace: timedelta = timedelta(0), allow_deletes: bool = False
) -> bool:
    """Whether planning again, for the time of the plan, has the same result. Stores nothing.

    The plan may have been made from a candidate, which no longer exists. The result is the same only if the directory
    is now what the candidate was, and if the ledger has not changed."""

    def same_again(connection: Connection) -> bool:
        again = _plan(
            connection,
            plan_id=f"{plan.plan_id} again",
            ledger_id=plan.ledger_id,
            now=plan.created_at,
            limits=None if allow_deletes else limits,
            grace=grace,
            selection=Selection.of(plan.organization_ids, plan.user_ids),
            store_gone=False,
        )
        connection.rollback()
        return again.plan_hash == plan.plan_hash

    return _with_retries(engine, same_again)


def is_complete_plan_different(
    engine: Engine, since: Sequence[str], *, ledger_id: int, now: datetime, limits: LimitSettings, grace: timedelta
) -> bool:
    """Whether a plan of the changes since these plans differs from a plan of everything, which is an error of this
    package. Stores nothing."""

    def compare(connection: Connection) -> bool:
        # The plan of changes is second: it changes PostgreSQL's planner settings until the transaction ends.
        everything, changes = (
            _plan(
                connection,
                plan_id=f"compared-{number}",
                ledger_id=ledger_id,
                now=now,
                limits=limits,
                grace=grace,
                selection=EVERYTHING,
                store_gone=False,
                since=used,
            )
            for number, used in enumerate(((), since))
        )
        connection.rollback()
        return changes.plan_hash != everything.plan_hash

    return _with_retries(engine, compare)


def _with_retries(engine: Engine, work: Callable[[Connection], ResultT]) -> ResultT:
    """Runs ``work`` in a snapshot, again after a conflict with another transaction."""
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
    """A write transaction that sees one state of the database.

    On SQLite the first attempt takes the write lock with its first write, so that computing a plan blocks no other
    writer.
    """
    options: dict[str, object] = (
        {WRITE_LOCK: lock_at_once} if is_sqlite(engine) else {"isolation_level": "REPEATABLE READ"}
    )
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def _plan(
    connection: Connection,
    *,
    plan_id: str,
    ledger_id: int,
    now: datetime,
    limits: LimitSettings | None,
    grace: timedelta,
    selection: Selection,
    store_gone: bool,
    approving: str | None = None,
    retry: Sequence[str] | None = None,
    retried: Sequence[ItemKey] = (),
    since: Sequence[str] = (),
) -> Plan:
    revision, ledger_revision = _starting_point(connection, ledger_id, approving)
    parameters: dict[str, object] = {
        "plan_id": plan_id,
        "ledger_id": ledger_id,
        "now": epoch_ms(now),
        "grace_since": epoch_ms(now - grace),
        **selection.parameters,
        "approving": approving,
        "retry_kinds": json.dumps(list(retry or Kind)) if retry is not None else "[]",
    }
    if since and find_scope(connection, parameters, since):
        selection = replace(selection, in_scope=True)
    compute_desired(connection, ledger_id=ledger_id, now=now, selection=selection)
    holds = fill_steps(connection, parameters, selection, limits, store_gone=store_gone, retried=retried)
    write_items(connection, parameters)
    skip_dependents(connection, ledger_id, plan_id)
    if selection.user_ids:
        skip_without_container(connection, ledger_id, plan_id)
    store_impact(connection, plan_id)
    for table in _TEMPORARY:
        run(connection, f"DROP TABLE IF EXISTS {table}")
    plan_hash, counts = _hash_and_count(connection, plan_id, ledger_id)
    row = {
        "plan_id": plan_id,
        "ledger_id": ledger_id,
        "revision": revision,
        "ledger_revision": ledger_revision,
        "plan_hash": plan_hash,
        "created_at": epoch_ms(now),
        **selection.parameters,
        "limits": json.dumps([hold.to_wire() for hold in holds], ensure_ascii=False),
    }
    connection.execute(insert(PlanRow.__table__), row)
    plan = load_plan(connection, plan_id, counts)
    assert plan is not None  # noqa: S101 - it was written by the statement above
    return plan


def _starting_point(connection: Connection, ledger_id: int, approving: str | None) -> tuple[int, int]:
    """The revisions of the access model and of the ledger."""
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


def _hash_and_count(connection: Connection, plan_id: str, ledger_id: int) -> tuple[str, Counts]:
    """The hash of the items in order, and their counts. Stores the parts of the plan in the same pass."""
    hashed = sha256(f"{ledger_id}\n".encode())
    parts = Parts(connection, plan_id)
    streaming = {"stream_results": True, "max_row_buffer": _ROWS_AT_A_TIME}
    items = statement(connection, _IN_ORDER, alike=ALIKE)
    rows = connection.execute(items, {"plan_id": plan_id}, execution_options=streaming)
    # SQLAlchemy does not support yield_per for text.
    for partition in rows.partitions(_ROWS_AT_A_TIME):
        hashed.update("\n".join([row[0] for row in partition]).encode() + b"\n")
        parts.add([row[1] for row in partition])
    parts.end()
    return hashed.hexdigest(), parts.counts
