"""Makes a plan: the operations that bring the backend to the state of the directory.

The rules: ``app/sync/plan/README.md``, "Differences".

``make_plan`` compares the desired state with the ledger and writes the differences to ``plan_item``, in one transaction
that sees one revision of the access model and of the ledger. Memory does not grow with the number of items.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random
from typing import TypeVar

from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import DBAPIError

from app.foundation.clock import epoch_ms
from app.foundation.database.engine import snapshot
from app.foundation.database.errors import is_write_conflict
from app.foundation.database.statements import statement
from app.sync.ledger.ledger import read_ledger
from app.sync.plan.counts import Counts
from app.sync.plan.dependencies import skip_dependents, skip_without_container
from app.sync.plan.desired import compute_desired
from app.sync.plan.differences import find_diffs, write_items
from app.sync.plan.parts import ALIKE, PartWriter
from app.sync.plan.scope import find_scope
from app.sync.plan.selection import EVERYTHING, Retry, Selection
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan, load_plan
from app.sync.plan.tables import PlanRow, drop_temporary
from app.sync.plan.user_impact import store_impact

ResultT = TypeVar("ResultT")

ROWS_PER_PAGE = 5_000
"""The items that are hashed at a time."""
_ATTEMPTS = 5
"""The attempts to plan before a conflict with another transaction is an error."""


class PlanningError(Exception):
    """A plan cannot be made. The message is for the caller."""


_HASHED_ITEMS = """
SELECT operation || '|' || kind || '|' || scope || '|' || @json(organization_id) || @json(container_id) ||
  @json(item_id) || '|' || digest || '|' || access_type || '|' || access_role || '|' ||
  CASE WHEN disabled THEN '1' ELSE '0' END || '|' || @json(parent_id) || '|' || status || '|' ||
  COALESCE(CAST(covered_by AS TEXT), ''), {alike}
FROM plan_item WHERE plan_id = :plan_id ORDER BY ordinal
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan."""

    ledger_id: int
    now: datetime
    """The time for which expiry and grace periods are decided."""
    limits: LimitSettings | None
    """None: no deletes are held, and discarded ones are due."""
    grace: timedelta = timedelta(0)
    selection: Selection = EVERYTHING
    approving: str | None = None
    """The id of a plan. The new plan has the deletes that were held in it and are still due, without limits, and what
    they make necessary."""
    is_preview: bool = False
    """Whether it begins no grace period and forgets no discards."""
    retry: Retry | None = None
    """The failed items that are planned before their next try."""
    since: Sequence[str] = ()
    """The ids of a plan of everything and of all later ones, if nothing else has changed the ledger since: only what
    has changed is read, with the same result. Not for a selection of users."""


def make_plan(engine: Engine, request: PlanRequest, *, random: Random) -> Plan:
    """Plans the changes of a backend, and stores the plan.

    Raises ``PlanningError`` if the directory was never read, because an empty access model would delete everything, or
    if the ledger or the plan to approve does not exist.
    """
    plan_id = f"plan-{request.now:%Y%m%d-%H%M%S}-{random.getrandbits(40):010x}"
    return _with_retries(engine, lambda connection: _plan(connection, plan_id, request))


def is_up_to_date(engine: Engine, plan: Plan, *, limits: LimitSettings | None, grace: timedelta = timedelta(0)) -> bool:
    """Whether planning again, for the time of the plan, has the same result. Stores nothing.

    The plan may have been made from a candidate, which no longer exists. The result is the same only if the directory
    is now what the candidate was, and if the ledger has not changed."""
    request = PlanRequest(
        ledger_id=plan.ledger_id,
        now=plan.created_at,
        limits=limits,
        grace=grace,
        selection=Selection.of(plan.organization_ids, plan.user_ids),
        is_preview=True,
    )

    def plan_again(connection: Connection) -> bool:
        again = _plan(connection, f"{plan.plan_id} again", request)
        connection.rollback()
        return again.plan_hash == plan.plan_hash

    return _with_retries(engine, plan_again)


def is_complete_plan_different(engine: Engine, request: PlanRequest) -> bool:
    """Whether a plan of the changes ``since`` differs from a plan of everything, which is an error of this package.
    Stores nothing."""

    def compare(connection: Connection) -> bool:
        # The plan of changes is second: it changes PostgreSQL's planner settings until the transaction ends.
        everything = _plan(connection, "compared-0", replace(request, since=(), is_preview=True))
        changes = _plan(connection, "compared-1", replace(request, is_preview=True))
        connection.rollback()
        return changes.plan_hash != everything.plan_hash

    return _with_retries(engine, compare)


def _with_retries(engine: Engine, work: Callable[[Connection], ResultT]) -> ResultT:
    """Runs ``work`` in a snapshot, again after a conflict with another transaction."""
    for attempt in range(_ATTEMPTS):
        try:
            # The first attempt blocks no other writer while it computes.
            with snapshot(engine, lock=attempt > 0) as connection:
                return work(connection)
        except DBAPIError as error:
            if not is_write_conflict(error) or attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _plan(connection: Connection, plan_id: str, request: PlanRequest) -> Plan:
    ledger_id, selection = request.ledger_id, request.selection
    revision, ledger_revision = _starting_point(connection, ledger_id, request.approving)
    parameters: dict[str, object] = {
        "plan_id": plan_id,
        "ledger_id": ledger_id,
        "now": epoch_ms(request.now),
        "grace_since": epoch_ms(request.now - request.grace),
        **selection.parameters,
        "approving": request.approving,
    }
    if request.since and find_scope(connection, parameters, request.since):
        selection = replace(selection, in_scope=True)
    compute_desired(connection, ledger_id=ledger_id, now=request.now, selection=selection)
    holds = find_diffs(
        connection,
        parameters,
        selection,
        None if request.approving else request.limits,
        request.retry,
        store_gone=not request.is_preview,
    )
    write_items(connection, parameters)
    skip_dependents(connection, ledger_id, plan_id)
    if selection.user_ids:
        skip_without_container(connection, ledger_id, plan_id)
    store_impact(connection, plan_id)
    drop_temporary(connection)
    plan_hash, counts = _hash_and_count(connection, plan_id, ledger_id)
    row = {
        "plan_id": plan_id,
        "ledger_id": ledger_id,
        "revision": revision,
        "ledger_revision": ledger_revision,
        "plan_hash": plan_hash,
        "created_at": epoch_ms(request.now),
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
    parts = PartWriter(connection, plan_id)
    streaming = {"stream_results": True, "max_row_buffer": ROWS_PER_PAGE}
    items = statement(connection, _HASHED_ITEMS, alike=ALIKE)
    rows = connection.execute(items, {"plan_id": plan_id}, execution_options=streaming)
    # SQLAlchemy does not support yield_per for text.
    for partition in rows.partitions(ROWS_PER_PAGE):
        texts, alike = zip(*partition, strict=True)
        hashed.update("\n".join(texts).encode() + b"\n")
        parts.add(alike)
    parts.end()
    return hashed.hexdigest(), parts.counts
