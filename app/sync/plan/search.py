"""Finds items of a plan by status, kind, action, organization or id.

Each filter reads one range of an index: kinds, actions and organizations are ranges of ordinals
(``app.sync.plan.parts``), and statuses and ids have indexes of their own. So a page costs the same in a plan of any
size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

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

_OF_ORGANIZATION = """
SELECT ordinal, action FROM plan_item @by(ix_plan_item_plan_id_kind_organization_id_container_id_item_id)
WHERE plan_id = :plan_id AND kind = 'organization' AND organization_id = :organization_id
"""

_LAST = 2**62
"""Above all ordinals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """A filter for items. None means any."""

    status: str | None = None
    kind: str | None = None
    action: str | None = None
    organization_id: str | None = None
    item_id: str | None = None

    @property
    def is_everything(self) -> bool:
        return all(getattr(self, field.name) is None for field in fields(self))


EVERY_ITEM = ItemFilter()


class _Range(NamedTuple):
    """Neighbouring ordinals."""

    first: int
    last: int


def find(connection: Connection, plan_id: str, criteria: ItemFilter, *, after: int | None, limit: int) -> list[int]:
    """The ordinals of the next items after the ordinal ``after``."""
    ordinals: list[int] = []
    for first, last in _ranges(connection, plan_id, criteria):
        begin = max(first - 1, -1 if after is None else after)
        if begin >= last:
            continue
        ordinals += run(
            connection,
            _IN_RANGE,
            {
                "plan_id": plan_id,
                "status": criteria.status,
                "item_id": criteria.item_id,
                "after": begin,
                "last": last,
                "limit": limit - len(ordinals),
            },
            index=_BY_ITEM if criteria.item_id is not None else _BY_STATUS if criteria.status is not None else "",
            of_status="TRUE" if criteria.status is None else "status = :status",
            of_item="TRUE" if criteria.item_id is None else "item_id = :item_id",
        ).scalars()
        if len(ordinals) >= limit:
            break
    return ordinals


def count(connection: Connection, plan_id: str, criteria: ItemFilter, *, limit: int) -> int:
    """The number of items. Without a status and an id it follows from the parts. Otherwise it is at most ``limit``.

    The filter must not be empty: the parts of a plan contain its size.
    """
    if criteria.status is None and criteria.item_id is None:
        return sum(last - first + 1 for first, last in _ranges(connection, plan_id, criteria))
    return len(find(connection, plan_id, criteria, after=None, limit=limit))


_STATUSES = """
SELECT status, COUNT(*) AS items FROM plan_item @by(ix_plan_item_plan_id_status_ordinal)
WHERE plan_id = :plan_id GROUP BY status
"""


def count_by_status(connection: Connection, plan_id: str) -> dict[str, int]:
    """Status → the number of items of the plan. It reads the index of all of them."""
    return {row.status: row.items for row in run(connection, _STATUSES, {"plan_id": plan_id})}


def _ranges(connection: Connection, plan_id: str, criteria: ItemFilter) -> list[_Range]:
    """Ranges of ordinals, in order, whose items all have the kind, action and organization."""
    if criteria.kind is None and criteria.action is None and criteria.organization_id is None:
        return [_Range(0, _LAST)]
    parts = [
        _Range(part.first_ordinal, part.last_ordinal)
        for part in parts_of(connection, plan_id, criteria.organization_id or "")
        if _fits(part, criteria)
    ]
    if criteria.organization_id is not None and criteria.kind in {None, "organization"}:
        values = {"plan_id": plan_id, "organization_id": criteria.organization_id}
        itself = run(connection, _OF_ORGANIZATION, values)
        parts += [_Range(row.ordinal, row.ordinal) for row in itself if criteria.action in {None, row.action}]
    return _join(sorted(parts))


def _join(ranges: Sequence[_Range]) -> list[_Range]:
    """The ranges. Those that follow each other without a gap are one."""
    joined: list[_Range] = []
    for each in ranges:
        if joined and each.first == joined[-1].last + 1:
            joined[-1] = _Range(joined[-1].first, each.last)
        else:
            joined.append(each)
    return joined


def _fits(part: PlanPart, criteria: ItemFilter) -> bool:
    return criteria.kind in {None, part.kind} and criteria.action in {None, part.action}
