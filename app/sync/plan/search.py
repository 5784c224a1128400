"""Finds items of a plan by status, kind, action, organization or id.

Each filter reads one range of an index: kinds, actions and organizations are ranges of ordinals
(``app.sync.plan.parts``), and statuses and ids have indexes of their own. So a page costs the same in a plan of any
size.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from sqlalchemy import Connection

from app.foundation.database.statements import run
from app.sync.plan.parts import PlanPart, parts_of

_IN_RANGE = """
SELECT ordinal FROM plan_item {index}
WHERE plan_id = :plan_id AND {of_status} AND {of_item} AND ordinal > :after AND ordinal <= :last
ORDER BY ordinal LIMIT :limit
"""

_BY_STATUS = "@by(ix_plan_item_plan_id_status_ordinal)"
_BY_ITEM = "@by(ix_plan_item_plan_id_item_id_ordinal)"

_ORGANIZATION_ITSELF = """
SELECT ordinal, action FROM plan_item @by(ix_plan_item_plan_id_kind_organization_id_container_id_item_id)
WHERE plan_id = :plan_id AND kind = 'organization' AND organization_id = :organization_id
"""

_LAST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which items: of this status, kind, action and organization, with this id; None: of any."""

    status: str | None = None
    kind: str | None = None
    action: str | None = None
    organization_id: str | None = None
    item_id: str | None = None

    @property
    def is_anything(self) -> bool:
        return all(getattr(self, field.name) is None for field in fields(self))


EVERY_ITEM = ItemFilter()


def find(connection: Connection, plan_id: str, wanted: ItemFilter, *, after: int | None, limit: int) -> list[int]:
    """The ordinals of the first of these items behind the ordinal ``after``, in order."""
    found: list[int] = []
    for first, last in _ranges(connection, plan_id, wanted):
        begin = max(first - 1, -1 if after is None else after)
        if begin >= last:
            continue
        found += run(
            connection,
            _IN_RANGE,
            {
                "plan_id": plan_id,
                "status": wanted.status,
                "item_id": wanted.item_id,
                "after": begin,
                "last": last,
                "limit": limit - len(found),
            },
            index=_BY_ITEM if wanted.item_id is not None else _BY_STATUS if wanted.status is not None else "",
            of_status="TRUE" if wanted.status is None else "status = :status",
            of_item="TRUE" if wanted.item_id is None else "item_id = :item_id",
        ).scalars()
        if len(found) >= limit:
            break
    return found


def count(connection: Connection, plan_id: str, wanted: ItemFilter, *, most: int) -> int:
    """How many of these there are. Those of a status, or with an id, are counted no further than to ``most``; of
    anything else the parts of the plan say it."""
    if wanted.status is None and wanted.item_id is None and not wanted.is_anything:
        return sum(last - first + 1 for first, last in _ranges(connection, plan_id, wanted))
    return len(find(connection, plan_id, wanted, after=None, limit=most))


def _ranges(connection: Connection, plan_id: str, wanted: ItemFilter) -> Iterator[tuple[int, int]]:
    """First and last ordinals between which all items are of the kind, action and organization; in order."""
    if wanted.kind is None and wanted.action is None and wanted.organization_id is None:
        yield 0, _LAST
        return
    parts = [
        (part.first_ordinal, part.last_ordinal)
        for part in parts_of(connection, plan_id, wanted.organization_id or "")
        if _fits(part, wanted)
    ]
    if wanted.organization_id is not None and wanted.kind in {None, "organization"}:
        values = {"plan_id": plan_id, "organization_id": wanted.organization_id}
        itself = run(connection, _ORGANIZATION_ITSELF, values)
        parts += [(row.ordinal, row.ordinal) for row in itself if wanted.action in {None, row.action}]
    together: tuple[int, int] | None = None
    for first, last in sorted(parts):
        if together is not None and first == together[1] + 1:
            together = together[0], last
            continue
        if together is not None:
            yield together
        together = first, last
    if together is not None:
        yield together


def _fits(part: PlanPart, wanted: ItemFilter) -> bool:
    return wanted.kind in {None, part.kind} and wanted.action in {None, part.action}
