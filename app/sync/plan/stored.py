"""Loads stored plans and their items.

The rules: ``app/sync/plan/README.md``, "A plan that is stored".
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from app.foundation.clock import from_epoch_ms
from app.sync.ledger.counts import Counts, count_items, total
from app.sync.plan.tables import PlanItemRow, PlanRow

_PLAN = PlanRow.__table__
_ITEM = PlanItemRow.__table__

MAX_HOLDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Deletes of one kind in one organization that are held, with the counts that exceeded a limit."""

    kind: str
    organization_id: str
    """Empty for organizations themselves, which are counted together."""
    deletes: int
    """The number of items of the kind that would be deleted."""
    contained: int = 0
    """The number of items of other kinds that would be deleted with them."""
    in_ledger: int
    """The number of items of the kind in the ledger."""
    reason: str

    def to_wire(self) -> dict[str, object]:
        """The entry of ``plan.limits`` and of reports."""
        return {
            "kind": self.kind,
            "organizationId": self.organization_id,
            "deletes": self.deletes,
            "below": self.contained,
            "ledger": self.in_ledger,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan without its items."""

    plan_id: str
    plan_hash: str
    ledger_id: int
    revision: int
    ledger_revision: int
    created_at: datetime
    organization_ids: tuple[str, ...]
    user_ids: tuple[str, ...]
    counts: Counts
    holds: tuple[Hold, ...]
    """At most ``MAX_HOLDS``. The message of each held item contains the counts of its hold."""

    def total(self, *statuses: str) -> int:
        """The number of items with one of these statuses, or of all items."""
        return total(self.counts, *statuses)

    @property
    def has_changes(self) -> bool:
        """Whether applying it sends anything."""
        return self.total("planned") > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """One operation on one item, with the columns of ``PlanItemRow``."""

    plan_id: str
    ordinal: int
    phase: int
    action: str
    kind: str
    organization_id: str
    container_id: str
    item_id: str
    operation: str
    scope: str
    digest: str
    parent_id: str
    access_type: str
    access_role: str
    disabled: bool
    payload: str
    reason: str
    covered_by: int | None
    status: str
    message: str
    in_force: str = ""
    """The access type that the item should have, of its own or inherited. Sent if an added item exists already."""


_ITEM_COLUMNS = [_ITEM.c[name] for name in PlanItem.__dataclass_fields__]

# Built once: building takes longer than executing.
_ONE_PLAN = select(_PLAN).where(_PLAN.c.plan_id == bindparam("of_plan"))
_ALL_ITEMS = (
    select(*_ITEM_COLUMNS)
    .where(
        _ITEM.c.plan_id == bindparam("of_plan"),
        _ITEM.c.ordinal > bindparam("after"),
        _ITEM.c.status.in_(bindparam("statuses", expanding=True)),
    )
    .order_by(_ITEM.c.ordinal)
    .limit(bindparam("limit"))
)
_SENT_ITEMS = _ALL_ITEMS.where(_ITEM.c.covered_by.is_(None))


def load_plan(connection: Connection, plan_id: str, counts: Counts | None = None) -> Plan | None:
    """Loads a plan; None if it does not exist. ``counts``: the counts of its items, if the caller has them."""
    row = connection.execute(_ONE_PLAN, {"of_plan": plan_id}).one_or_none()
    if row is None:
        return None
    return Plan(
        plan_id=row.plan_id,
        plan_hash=row.plan_hash,
        ledger_id=row.ledger_id,
        revision=row.revision,
        ledger_revision=row.ledger_revision,
        created_at=from_epoch_ms(row.created_at),
        organization_ids=tuple(json.loads(row.organization_ids)),
        user_ids=tuple(json.loads(row.user_ids)),
        counts=count_items(connection, plan_id) if counts is None else counts,
        holds=tuple(
            Hold(
                kind=hold["kind"],
                organization_id=hold["organizationId"],
                deletes=hold["deletes"],
                contained=hold.get("below", 0),
                in_ledger=hold["ledger"],
                reason=hold["reason"],
            )
            for hold in json.loads(row.limits)
        ),
    )


def read_items(
    connection: Connection,
    plan_id: str,
    *,
    statuses: Collection[str] = ("planned",),
    after_ordinal: int = 0,
    limit: int = 1000,
    covered: bool = False,
) -> list[PlanItem]:
    """The next items after ``after_ordinal``, without covered ones. ``covered``: with them."""
    parameters = {"of_plan": plan_id, "after": after_ordinal, "statuses": list(statuses), "limit": limit}
    rows = connection.execute(_ALL_ITEMS if covered else _SENT_ITEMS, parameters)
    return [PlanItem(**row._asdict()) for row in rows]


def read_item(connection: Connection, plan_id: str, ordinal: int) -> PlanItem | None:
    """One item of a plan; None if it does not exist."""
    query = select(*_ITEM_COLUMNS).where(_ITEM.c.plan_id == plan_id, _ITEM.c.ordinal == ordinal)
    row = connection.execute(query).one_or_none()
    return None if row is None else PlanItem(**row._asdict())


def stale_sentence(plan_id: str) -> str:
    """The message for a stored plan that no longer applies."""
    return (
        f"plan {plan_id} is out of date, because the directory or the backend has changed since; nothing was done:"
        " make a new one (usher plan)"
    )
