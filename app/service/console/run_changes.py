"""The changes of a run as pages show them: by kind, and the deletes that it holds."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.sync.ledger.items import ITEM_KINDS, ITEM_STATUSES
from app.sync.runs.run import Run

ACTIONS = ("add", "update", "delete")

RESOURCE_KINDS = ("organization", "folder", "document")
"""Kinds whose delete takes access away without a change to a user's own records."""

_HELD_WITHIN = re.compile(r"would take along (.+) that (is|are) held")
"""The part of a stored reason with the number of held items within deleted ones."""
_LIMITS = {
    "delete_count": "limit {allowed:,} deletes",
    "delete_percent": "limit {allowed:g} %",
    "organization": "deleting an organization always asks",
    "covers_held": "contains held items",
}
"""The limit of a hold → how pages show it."""


@dataclass(frozen=True, slots=True)
class KindRow:
    kind: str
    planned: list[tuple[str, int]]
    """Action → number."""
    outcomes: list[tuple[str, int]]
    """Status of an item → number."""

    @property
    def pending(self) -> int:
        """The number of items without an outcome."""
        return sum(number for _, number in self.planned) - sum(number for _, number in self.outcomes)


def kind_rows(run: Run) -> list[KindRow]:
    """The changes of a run by kind, without kinds that it does not change."""
    return [_kind_row(kind, actions) for kind in ITEM_KINDS if (actions := run.counts.get(kind))]


def _kind_row(kind: str, actions: Mapping[str, Mapping[str, int]]) -> KindRow:
    numbers = {status: sum(of.get(status, 0) for of in actions.values()) for status in ITEM_STATUSES}
    return KindRow(
        kind=kind,
        planned=[(action, actions.get(action, {}).get("planned", 0)) for action in ACTIONS],
        outcomes=[(status, number) for status, number in numbers.items() if number and status != "planned"],
    )


@dataclass(frozen=True, slots=True)
class HoldRow:
    """The held deletes of one kind in one organization, and the limit that they exceed."""

    kind: str
    organization_id: str
    deletes: int
    below: int
    """Items that are deleted with them."""
    of: int
    """Items of the kind in the ledger."""
    over: str
    """The limit that they exceed, in words."""


def hold_rows(holds: object) -> list[HoldRow]:
    """The rows for the ``held`` of a run's report, those that destroy data first."""
    if not isinstance(holds, Sequence):
        return []
    rows = [
        HoldRow(
            kind=str(hold.get("kind", "")),
            organization_id=str(hold.get("organizationId", "")),
            deletes=int(hold.get("deletes") or 0),
            below=int(hold.get("below") or 0),
            of=int(hold.get("ledger") or 0),
            over=_limit_in_words(hold),
        )
        for hold in holds
        if isinstance(hold, Mapping)
    ]
    return sorted(rows, key=lambda row: row.kind not in RESOURCE_KINDS)


def _limit_in_words(hold: Mapping[str, Any]) -> str:
    limit = str(hold.get("limit"))
    if limit == "covers_held" and (held := _HELD_WITHIN.search(str(hold.get("reason")))):
        return f"contains {held[1]} that {held[2]} held"
    return _LIMITS.get(limit, "over the limits").format(allowed=hold.get("allowed") or 0)
