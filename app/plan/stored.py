"""Stored plans: what they say, and what in them may not be done.

The rules: ``app/plan/README.md``, "A plan that is stored".

A plan is frozen, ordered data: nothing but the status and message of its items changes after it was made.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, select

from app.clock import from_epoch_ms
from app.database.statements import run
from app.plan.parts import Counts
from app.store.sync_tables import PlanItemRow, PlanRow, RunRow

_PLAN = PlanRow.__table__
_ITEM = PlanItemRow.__table__
_RUN = RunRow.__table__


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why the deletes of one kind in one organization are held back, in numbers."""

    kind: str
    organization_id: str
    """Empty for organizations themselves, which are counted together."""
    deletes: int
    """How many items of that kind would be deleted there."""
    below: int = 0
    """How many items of other kinds would go along; folders and organizations count with them."""
    ledger: int
    """How many items of that kind the ledger holds there."""
    reason: str

    def to_wire(self) -> dict[str, object]:
        """The form in which ``plan.limits`` and reports hold it."""
        return {
            "kind": self.kind,
            "organizationId": self.organization_id,
            "deletes": self.deletes,
            "below": self.below,
            "ledger": self.ledger,
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
    """The first of what is held (``MAX_HOLDS``); every held item carries its numbers in its message, too."""

    def total(self, *statuses: str) -> int:
        """How many items have one of these statuses; without any, how many items there are."""
        return sum(
            number
            for actions in self.counts.values()
            for by_status in actions.values()
            for status, number in by_status.items()
            if not statuses or status in statuses
        )

    @property
    def has_changes(self) -> bool:
        """Whether applying it would send anything: what is held, waits or is parked is not sent."""
        return self.total("planned") > 0


MAX_HOLDS = 1000
"""How many holds a plan lists at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """One operation on one item; the columns of ``app.store.sync_tables.PlanItemRow``."""

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


_ITEM_COLUMNS = [_ITEM.c[name] for name in PlanItem.__dataclass_fields__]

# Put together once: that takes longer than to execute them.
_ONE_PLAN = select(_PLAN).where(_PLAN.c.plan_id == bindparam("of_plan"))
_ALL_ITEMS = (
    select(*_ITEM_COLUMNS)
    .where(
        _ITEM.c.plan_id == bindparam("of_plan"),
        _ITEM.c.ordinal > bindparam("after"),
        _ITEM.c.status.in_(bindparam("statuses", expanding=True)),
    )
    .order_by(_ITEM.c.ordinal)
    .limit(bindparam("most"))
)
_SENT_ITEMS = _ALL_ITEMS.where(_ITEM.c.covered_by.is_(None))


def load_plan(connection: Connection, plan_id: str, counts: Counts | None = None) -> Plan | None:
    """The plan of that id; None where there is none. ``counts``: of its items, by whoever has just counted them."""
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
                below=hold.get("below", 0),
                ledger=hold["ledger"],
                reason=hold["reason"],
            )
            for hold in json.loads(row.limits)
        ),
    )


def count_items(connection: Connection, plan_id: str) -> Counts:
    """How many items of each kind, action and status the plan has now."""
    rows = connection.execute(
        select(_ITEM.c.kind, _ITEM.c.action, _ITEM.c.status, func.count())
        .where(_ITEM.c.plan_id == plan_id)
        .group_by(_ITEM.c.kind, _ITEM.c.action, _ITEM.c.status)
    )
    counts: Counts = {}
    for kind, action, status, number in rows:
        counts.setdefault(kind, {}).setdefault(action, {})[status] = number
    return counts


def read_items(
    connection: Connection,
    plan_id: str,
    *,
    statuses: Collection[str] = ("planned",),
    after_ordinal: int = 0,
    limit: int = 1000,
    covered: bool = False,
) -> list[PlanItem]:
    """The next items in order after ``after_ordinal``: those that are sent, or with ``covered`` all of them."""
    asked = {"of_plan": plan_id, "after": after_ordinal, "statuses": list(statuses), "most": limit}
    rows = connection.execute(_ALL_ITEMS if covered else _SENT_ITEMS, asked)
    return [PlanItem(**row._asdict()) for row in rows]


def read_item(connection: Connection, plan_id: str, ordinal: int) -> PlanItem | None:
    """One item of a plan; None where there is none of that ordinal."""
    query = select(*_ITEM_COLUMNS).where(_ITEM.c.plan_id == plan_id, _ITEM.c.ordinal == ordinal)
    row = connection.execute(query).one_or_none()
    return None if row is None else PlanItem(**row._asdict())


def stale_sentence(plan_id: str) -> str:
    """What whoever wants to apply a plan is told when another one is due by now."""
    return (
        f"plan {plan_id} was made when the directory or the backend stood otherwise; nothing was done:"
        " look at a new one (usher plan)"
    )


def plan_allows_deletes(connection: Connection, plan_id: str) -> bool:
    """Whether the limits were lifted for the run that the plan was made for."""
    made_for = select(_RUN.c.allow_deletes).where(_RUN.c.plan_id == plan_id, _RUN.c.requested_plan_id.is_(None))
    return bool(connection.execute(made_for.order_by(_RUN.c.requested_at).limit(1)).scalar())


_BELOW_ORGANIZATION = """
SELECT l.kind, l.item_id FROM ledger_item l
WHERE l.ledger_id = :ledger_id AND l.organization_id = :organization_id AND l.kind IN ({kinds}) AND {uncovered}
LIMIT 1
"""

_BELOW_FOLDER = """
WITH RECURSIVE folders (item_id) AS (
  SELECT CAST(:item_id AS TEXT)
  UNION
  SELECT s.item_id FROM folders f CROSS JOIN ledger_item s
  WHERE s.ledger_id = :ledger_id AND s.organization_id = :organization_id AND s.kind = 'folder'
    AND s.parent_id = f.item_id
)
SELECT l.kind, l.item_id FROM folders f CROSS JOIN ledger_item l
WHERE l.ledger_id = :ledger_id AND l.organization_id = :organization_id AND l.kind IN ('folder', 'document')
  AND l.parent_id = f.item_id AND {uncovered}
LIMIT 1
"""

_BELOW_CONTAINER = """
SELECT l.kind, l.item_id FROM ledger_item l
WHERE l.ledger_id = :ledger_id AND l.kind = :below AND l.organization_id = :organization_id
  AND l.container_id = :item_id AND {uncovered}
LIMIT 1
"""

_UNCOVERED = """
NOT EXISTS (
  SELECT 1 FROM plan_item p
  WHERE p.plan_id = :plan_id AND p.kind = l.kind AND p.organization_id = l.organization_id
    AND p.container_id = l.container_id AND p.item_id = l.item_id AND p.covered_by = :ordinal
)"""

_ALL_BELOW_ORGANIZATIONS = (
    "'folder', 'document', 'group', 'organizationUser', 'folderUser', 'documentUser', 'groupMember'"
)
_BELOW_KIND = {"folder": "folderUser", "document": "documentUser", "group": "groupMember"}


def still_needed_below(connection: Connection, ledger_id: int, item: PlanItem) -> str | None:
    """Something that the backend would delete along with ``item``, though the plan does not want it deleted.

    To be asked right before the delete of an organization, folder, document or group is sent, when everything before
    it is settled: it looks at what the ledger holds below the item *now*. Whatever is there must be covered by this
    very delete. What is not was to be moved away first (and that failed), came in later, or waits. Then the delete must
    not be sent: it is ``skipped`` with this text, and so are the items that it covers.
    """
    parameters: dict[str, object] = {
        "ledger_id": ledger_id,
        "plan_id": item.plan_id,
        "ordinal": item.ordinal,
        "organization_id": item.organization_id,
        "item_id": item.item_id,
        "below": _BELOW_KIND.get(item.kind, ""),
    }
    templates = {
        "organization": [_BELOW_ORGANIZATION],
        "folder": [_BELOW_FOLDER, _BELOW_CONTAINER],
        "document": [_BELOW_CONTAINER],
        "group": [_BELOW_CONTAINER],
    }
    for template in templates.get(item.kind, []):
        found = run(
            connection, template, parameters, uncovered=_UNCOVERED, kinds=_ALL_BELOW_ORGANIZATIONS
        ).one_or_none()
        if found is not None:
            return f"{found[0]} {found[1]} is still in {item.kind} {item.item_id} and is not to be deleted with it"
    return None


# What was to be made and will not be, and is not known to be in the backend already. (Of the kinds without a container
# all but one are containers themselves.)
_BLOCKED = """
SELECT b.kind, b.organization_id, b.item_id FROM plan_item b
WHERE b.plan_id = :plan_id AND b.status IN ('failed', 'parked', 'waiting', 'skipped') AND b.action = 'add'
  AND b.container_id = '' AND b.kind <> 'organizationUser'
  AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = b.kind
      AND l.organization_id = b.organization_id AND l.container_id = '' AND l.item_id = b.item_id AND l.certain)
"""

_SKIP = """
UPDATE plan_item SET status = 'skipped', message = {what} || ' is not in the backend'
WHERE plan_id = :plan_id AND status = 'planned' AND ordinal IN (
  SELECT p.ordinal FROM ({blocked}) blocked CROSS JOIN plan_item p
  WHERE p.plan_id = :plan_id AND p.action <> 'delete' AND p.organization_id = blocked.organization_id AND {depends})
"""

_DEPENDS = {
    """p.kind IN ('organization', 'folder', 'document', 'group', 'organizationUser', 'folderUser', 'documentUser',
      'groupMember') AND blocked.kind = 'organization'""": "'organization ' || organization_id",
    "p.kind = blocked.kind AND p.container_id = '' AND p.item_id = blocked.item_id": "'it'",
    """p.kind IN ('folder', 'document') AND p.container_id = '' AND p.parent_id = blocked.item_id
      AND blocked.kind = 'folder'""": "'folder ' || parent_id",
    "p.kind = 'folderUser' AND p.container_id = blocked.item_id AND blocked.kind = 'folder'": (
        "'folder ' || container_id"
    ),
    "p.kind = 'documentUser' AND p.container_id = blocked.item_id AND blocked.kind = 'document'": (
        "'document ' || container_id"
    ),
    "p.kind = 'groupMember' AND p.container_id = blocked.item_id AND blocked.kind = 'group'": (
        "'group ' || container_id"
    ),
}
"""Which items ``p`` cannot be without what is blocked, and how they call it."""


def skip_dependents(connection: Connection, ledger_id: int, plan_id: str) -> int:
    """Skips what is planned and cannot be, and gives how much that is.

    An organization, folder, document or group whose add has failed, is parked or waits takes everything with it that
    would be in it, level by level, unless the ledger has it confirmed. To be called after adds of those
    kinds have failed, before the next phase.
    """
    parameters: dict[str, object] = {"ledger_id": ledger_id, "plan_id": plan_id}
    skipped = 0
    while run(connection, _BLOCKED + "LIMIT 1", parameters).one_or_none() is not None:
        found = sum(
            run(connection, _SKIP, parameters, blocked=_BLOCKED, depends=depends, what=what).rowcount
            for depends, what in _DEPENDS.items()
        )
        if not found:
            break
        skipped += found
    return skipped
