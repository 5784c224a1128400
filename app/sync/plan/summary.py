"""Summaries of a plan: its parts, which are ranges of neighbouring items that are alike, and its impact on users.

A plan is ordered by phase, operation, kind and scope, and a scope begins with its organization. So items that share the
first three are neighbours, and within these the items of one organization. Parts are written in the pass in which the
plan is hashed; memory is bounded by one page of items.

The impact is how many users of each organization gain, lose or change access. It is counted from the temporary table
``diff`` while a plan is made, in one pass. A user counts once in each organization. An item that is only sent again
because it is unconfirmed, or was discarded, affects nobody.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter

from sqlalchemy import Connection, func, insert, select

from app.foundation.database.statements import run
from app.sync.ledger.items import USER_KINDS, listed
from app.sync.plan.rules import ASPECT_BITS
from app.sync.plan.stored import Counts
from app.sync.plan.tables import PlanImpactRow, PlanPartRow

_PART = PlanPartRow.__table__
_IMPACT = PlanImpactRow.__table__

_OPERATION = attrgetter("phase", "kind", "action", "operation")

ALIKE = """phase || '|' || kind || '|' || action || '|' || operation || '|' || status || '|' ||
  CASE kind WHEN 'organization' THEN '' ELSE organization_id END"""
"""The input of ``PartWriter.add`` for each item, as an SQL expression. One text is cheap to count."""


@dataclass(slots=True)
class PlanPart:
    """Neighbouring items with the same phase, kind, action and operation."""

    first_ordinal: int
    last_ordinal: int
    phase: int
    kind: str
    action: str
    operation: str

    @property
    def items(self) -> int:
        return self.last_ordinal - self.first_ordinal + 1


class PartWriter:
    """Collects and stores the parts of a plan, and counts its items. Items are added in order."""

    def __init__(self, connection: Connection, plan_id: str) -> None:
        self._connection = connection
        self._plan_id = plan_id
        self._last_ordinal = 0
        self._growing: dict[bool, tuple[str, PlanPart]] = {}
        """The current part of the whole plan (False), and that of the current organization (True)."""
        self._ended: list[tuple[str, PlanPart]] = []
        self.counts: Counts = {}

    def add(self, items: Iterable[str]) -> None:
        """Adds the next items, each as ``ALIKE``."""
        for alike, number in Counter(items).items():
            phase, kind, action, operation, status, organization_id = alike.split("|", 5)
            first, self._last_ordinal = self._last_ordinal + 1, self._last_ordinal + number
            part = PlanPart(first, self._last_ordinal, int(phase), kind, action, operation)
            by_status = self.counts.setdefault(part.kind, {}).setdefault(part.action, {})
            by_status[status] = by_status.get(status, 0) + number
            self._grow("", part)
            if organization_id:
                self._grow(organization_id, part)
        self._write()

    def end(self) -> None:
        """Stores the last parts."""
        self._ended += self._growing.values()
        self._growing = {}
        self._write()

    def _grow(self, organization_id: str, part: PlanPart) -> None:
        of_one = organization_id != ""
        of, growing = self._growing.get(of_one, ("", None))
        if growing is not None and of == organization_id and _OPERATION(growing) == _OPERATION(part):
            growing.last_ordinal = part.last_ordinal
            return
        if growing is not None:
            self._ended.append((of, growing))
        self._growing[of_one] = organization_id, replace(part)

    def _write(self) -> None:
        if self._ended:
            rows = [
                {"plan_id": self._plan_id, "organization_id": of, "items": part.items, **asdict(part)}
                for of, part in self._ended
            ]
            self._connection.execute(insert(_PART), rows)
            self._ended = []


def parts_of(connection: Connection, plan_id: str, organization_id: str = "") -> list[PlanPart]:
    """The parts of a plan in order, or those of one organization."""
    query = select(*[_PART.c[name] for name in PlanPart.__dataclass_fields__]).where(
        _PART.c.plan_id == plan_id, _PART.c.organization_id == organization_id
    )
    return [PlanPart(*row) for row in connection.execute(query.order_by(_PART.c.first_ordinal))]


_STORE_IMPACT = """
INSERT INTO plan_impact (plan_id, organization_id, gain, lose, change, people)
SELECT CAST(:plan_id AS TEXT), organization_id, SUM(gains * (1 - loses)), SUM(loses * (1 - gains)),
  SUM(CASE WHEN gains = loses THEN 1 ELSE 0 END), COUNT(*)
FROM (
  SELECT organization_id, item_id, MAX(CASE WHEN aspects = {new} THEN 1 ELSE 0 END) AS gains,
    MAX(CASE WHEN aspects = {gone} THEN 1 ELSE 0 END) AS loses
  FROM diff
  WHERE kind IN ({kinds}) AND status <> 'discarded'
    AND (aspects = {gone} OR why = '' AND aspects IN ({new}, {content}))
  GROUP BY organization_id, item_id
) AS person
GROUP BY organization_id
"""


@dataclass(frozen=True, slots=True)
class Impact:
    """How many users of one organization gain, lose or change access."""

    organization_id: str
    gain: int
    lose: int
    change: int


def store_impact(connection: Connection, plan_id: str) -> None:
    """Stores the impact of the plan from ``diff``."""
    run(connection, _STORE_IMPACT, {"plan_id": plan_id}, kinds=listed(USER_KINDS), **ASPECT_BITS)


def largest_impact(connection: Connection, plan_id: str, limit: int) -> Sequence[Impact]:
    """The organizations with most affected users, in descending order."""
    columns = [_IMPACT.c[name] for name in Impact.__dataclass_fields__]
    query = select(*columns).where(_IMPACT.c.plan_id == plan_id).order_by(_IMPACT.c.people.desc()).limit(limit)
    return [Impact(*row) for row in connection.execute(query)]


def affected(connection: Connection, plan_id: str) -> tuple[int, int]:
    """The number of affected organizations, and of their affected users."""
    query = select(func.count(), func.coalesce(func.sum(_IMPACT.c.people), 0)).where(_IMPACT.c.plan_id == plan_id)
    organizations, people = connection.execute(query).one()
    return organizations, int(people)


def held_reasons(connection: Connection, plan_id: str, limit: int) -> list[tuple[str, str]]:
    """Kind and reason of the first held deletes."""
    held = "SELECT kind, reason FROM plan_item WHERE plan_id = :plan_id AND status = 'held'"
    rows = run(connection, f"{held} ORDER BY ordinal LIMIT :limit", {"plan_id": plan_id, "limit": limit})
    return [(row.kind, row.reason) for row in rows]
