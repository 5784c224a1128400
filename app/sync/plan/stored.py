"""Loads stored plans, and the items that are to be sent.

The rules: ``app/sync/plan/README.md``, "A plan that is stored".
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, select

from app.foundation.clock import from_epoch_ms
from app.sync.ledger.items import ItemStatus
from app.sync.plan.counts import Counts, count_items, total
from app.sync.plan.tables import PlanItemRow, PlanRow

_PLAN = PlanRow.__table__
_ITEM = PlanItemRow.__table__

MAX_HOLDS = 1000
"""The most holds that are stored with a plan."""

_HOLD_FIELDS = {
    "kind": "kind",
    "organizationId": "organization_id",
    "deletes": "deletes",
    "below": "contained",
    "ledger": "in_ledger",
    "limit": "limit",
    "allowed": "allowed",
    "reason": "reason",
}
"""Name in JSON → field of ``Hold``."""


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
    limit: Literal["delete_count", "delete_percent", "organization", "covers_held", "foreign", ""] = ""
    """``organization``: every delete of one is held. ``covers_held``: they cover held items. ``foreign``: they
    include items that the plan does not delete. Empty in plans of older versions."""
    allowed: float | None = None
    """The value of ``delete_count`` or ``delete_percent``."""
    reason: str

    def to_wire(self) -> dict[str, object]:
        """The entry of ``plan.limits`` and of reports."""
        return {name: getattr(self, field) for name, field in _HOLD_FIELDS.items()}


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
        return self.total(ItemStatus.PLANNED) > 0


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


def load_plan(connection: Connection, plan_id: str, counts: Counts | None = None) -> Plan | None:
    """Loads a plan. None if it does not exist. ``counts``: the counts of its items, if the caller has them."""
    row = connection.execute(select(_PLAN).where(_PLAN.c.plan_id == plan_id)).one_or_none()
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
            Hold(**{field: hold[name] for name, field in _HOLD_FIELDS.items() if name in hold})
            for hold in json.loads(row.limits)
        ),
    )


def read_planned(connection: Connection, plan_id: str, *, after: int, limit: int) -> list[PlanItem]:
    """The next planned items after the ordinal ``after``, without those that a delete covers."""
    query = (
        select(*[_ITEM.c[name] for name in PlanItem.__dataclass_fields__])
        .where(_ITEM.c.plan_id == plan_id, _ITEM.c.ordinal > after)
        .where(_ITEM.c.status == ItemStatus.PLANNED.value, _ITEM.c.covered_by.is_(None))
        .order_by(_ITEM.c.ordinal)
        .limit(limit)
    )
    return [PlanItem(**row._asdict()) for row in connection.execute(query)]


def stale_sentence(plan_id: str) -> str:
    """The message for a stored plan that no longer applies."""
    return (
        f"plan {plan_id} is out of date, because the directory or the backend has changed since; nothing was done:"
        " make a new one (usher plan)"
    )
