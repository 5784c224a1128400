"""The changes of a run as pages show them: by kind, and the deletes that it holds."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection

from app.access.origins import find_origins
from app.access.records import GroupMember
from app.access.source_states import source_states
from app.foundation.clock import epoch_ms
from app.foundation.database import statements
from app.foundation.database.statements import json_list
from app.service.console.failures import own_records
from app.sync.ledger.items import ITEM_KINDS, ITEM_STATUSES, Kind
from app.sync.plan.fields import NOT_KNOWN
from app.sync.plan.listing import PlannedChange
from app.sync.plan.rules import Action
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
    "foreign": "contains other items",
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
    if limit == "foreign" and str(hold.get("reason")).startswith("the contents of"):
        return "the contents cannot be read"
    return _LIMITS.get(limit, "over the limits").format(allowed=hold.get("allowed") or 0)


class ItemCause(NamedTuple):
    """What caused an item, beside its stored reason."""

    changes: Sequence[tuple[str, str, str]]
    """The first fields that an update changes: name, old value and new value."""
    groups: Sequence[str]
    """The groups through which the user gains or loses it: the same plan changes their membership."""
    place: str
    """Where the record is that requires the item, now. Empty: it is deleted, or required by a group's grant."""
    source: str
    """The source that removed the record. Empty: not known."""


_MOVES = """
SELECT organization_id, item_id, action, container_id FROM plan_item @by(ix_plan_item_plan_id_item_id_ordinal)
WHERE plan_id = :plan_id AND item_id IN (@list(users)) AND kind = 'groupMember' LIMIT :limit
"""
_MOVES_READ = 1_000
_FIELDS = {"accessRole": "role", "accessType": "access type", "parentFolderId": "folder", "folderId": "folder"}
_OF_GRANTS = frozenset({Kind.FOLDER_USER, Kind.DOCUMENT_USER})


def item_causes(connection: Connection, run: Run, items: Sequence[PlannedChange]) -> dict[int, ItemCause]:
    """Ordinal → the cause of an item."""
    users = sorted({item.item_id for item in items if item.kind in _OF_GRANTS})
    moves: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    if users:
        values = {"plan_id": run.plan_id, "users": json_list(users), "limit": _MOVES_READ}
        for *key, group in statements.run(connection, _MOVES, values):
            moves[tuple(key)].append(group)
    records = {item.ordinal: own_records(item) for item in items}
    origins = find_origins(connection, [record[0] for record in records.values()])
    removals = _removals(connection, run) if any(item.action == Action.DELETE for item in items) else {}
    causes = {}
    for item in items:
        own, last = records[item.ordinal][0], records[item.ordinal][-1]
        if item.action != Action.DELETE:
            joined = moves[item.organization_id, item.item_id, item.action]
            groups = [group for group in joined if item.reason.partition("; ")[0] == f"granted to group {group}"]
            changes = [(_FIELDS.get(one.field, one.field), _text(one.old), _text(one.new)) for one in item.fields[:2]]
            causes[item.ordinal] = ItemCause(changes, groups, next(map(str, origins.get(own.key, ())), ""), "")
            continue
        groups = moves[item.organization_id, item.item_id, item.action] if item.reason.startswith("no grant") else []
        # Other deletes have other causes, such as the end of a grant.
        removed = {"no": own.kind, "not": own.kind}.get(item.reason.partition(" ")[0], "")
        removed = last.kind if item.reason == "the user is no longer in the directory" else removed
        sources = removals.get(GroupMember.kind if groups else removed, [])
        is_known = len(sources) == 1 and item.covered_by is None
        causes[item.ordinal] = ItemCause([], groups, "", sources[0] if is_known else "")
    return causes


def _text(value: object) -> str:
    if value is None or value is NOT_KNOWN:
        return "none" if value is None else "unknown"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _removals(connection: Connection, run: Run) -> dict[str, list[str]]:
    """Kind of record → the sources from which the read of this run removed some, if no later read changed them."""
    removals: defaultdict[str, list[str]] = defaultdict(list)
    if run.started_at is not None and run.finished_at is not None:
        begin, end = epoch_ms(run.started_at), epoch_ms(run.finished_at)
        for source in source_states(connection):
            if source.last_changed_at is not None and begin <= source.last_changed_at <= end:
                for kind, changes in source.changes.items():
                    if changes.removed:
                        removals[kind].append(source.name)
    return removals
