"""Writes and reads the parts of a plan: ranges of neighbouring items that are alike.

A plan is ordered by phase, operation, kind and scope, and a scope begins with its organization. So items that share the
first three are neighbours, and within these the items of one organization. Parts are written in the pass in which the
plan is hashed; memory is bounded by one page of items.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from operator import attrgetter

from sqlalchemy import Connection, insert, select

from app.sync.plan.counts import Counts
from app.sync.plan.tables import PlanPartRow

_PART = PlanPartRow.__table__

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
        self._growing: dict[str, PlanPart] = {}
        """The current part of the whole plan (empty id), and that of the current organization."""
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
        self._ended += self._growing.items()
        self._growing = {}
        self._write()

    def _grow(self, organization_id: str, part: PlanPart) -> None:
        growing = self._growing.get(organization_id)
        if growing is not None and _OPERATION(growing) == _OPERATION(part):
            growing.last_ordinal = part.last_ordinal
            return
        # The part of another organization ends, too.
        for ended in [of for of in self._growing if (of == "") == (organization_id == "")]:
            self._ended.append((ended, self._growing.pop(ended)))
        self._growing[organization_id] = replace(part)

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
