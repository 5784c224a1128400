"""A plan's items and their sums, as people read them on a terminal and line tools elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from app.commands.screen import on_terminal, say, show_table

if TYPE_CHECKING:
    from app.sync.plan.listing import FieldChange, PlannedChange, Sum


SHOWN_CHANGES = 100
"""More than that is told as a number, on a terminal."""
SHOWN_VALUE = 40
"""So many characters of a field's value are shown; programs get all of them."""
FEW_ORGANIZATIONS = 4
"""Up to so many are told apart in sums."""
_WORTH_SUMMING = 6
"""Fewer items than that are seen at a glance."""

_IDS = {"accessRole": "none", "accessType": "inherited", "parentFolderId": "the top", "folderId": "no folder"}
"""Fields whose values are plain words or ids, and what it is called when there is none."""

_AS_PLANNED = frozenset({"planned", "done"})


def show_changes(changes: Iterator[PlannedChange], total: int) -> None:
    """A plan's items, ``total`` of them: all for programs, the first ones for people."""
    people = on_terminal()
    shown = islice(changes, SHOWN_CHANGES if people else None)
    # Row by row: a first plan may hold millions.
    if (first := next(shown, None)) is None:
        return
    items = chain((first,), shown)
    if not people:
        headings: tuple[str, ...] = ("action", "kind", "what", "status", "why")
        show_table(headings, ((one.action, one.kind, where(one), one.status, why(one)) for one in items))
        return
    listed = list(items)
    if all(one.status == "planned" for one in listed):
        show_table(("action", "kind", "what", "why"), [(one.action, one.kind, what(one), why(one)) for one in listed])
    else:
        rows = [(one.action, one.kind, what(one), one.status, why(one)) for one in listed]
        show_table(("action", "kind", "what", "status", "why"), rows)
    if total > SHOWN_CHANGES:
        say(f"… and {total - SHOWN_CHANGES} more; --json shows all of them")


def show_sums(sums: Sequence[Sum]) -> None:
    """How many items of each kind (and organization, where there are few) are added, updated, deleted; for people."""
    from app.sync.ledger.items import Kind
    from app.sync.plan.rules import Action

    if not on_terminal() or sum(one.items for one in sums) < _WORTH_SUMMING:
        return
    organizations = sorted({one.organization_id for one in sums})
    few = 1 < len(organizations) <= FEW_ORGANIZATIONS
    actions = [action.value for action in Action if any(one.action == action for one in sums)]
    statuses = sorted({one.status for one in sums} - _AS_PLANNED)
    numbers: Counter[tuple[str, str, str]] = Counter()
    for one in sums:
        for column in (one.action, one.status):
            numbers[one.organization_id if few else "", one.kind, column] += one.items
    rows = [
        ((organization,) if few else ())
        + (kind.value, *(str(numbers[organization, kind, column] or "") for column in (*actions, *statuses)))
        for organization in (organizations if few else [""])
        for kind in Kind
        if any(numbers[organization, kind, action] for action in actions)
    ]
    headings = [*(["organization"] if few else []), "kind", *actions, *(f"of them {status}" for status in statuses)]
    show_table(headings, rows)


def where(change: PlannedChange) -> str:
    """The ids of an item, from the outermost inwards."""
    return " / ".join(part for part, _ in _parts(change))


def what(change: PlannedChange) -> str:
    """The same with names, where there are some that differ from the ids."""
    return " / ".join(f"{part} {_quoted(name)}" if name and name != part else part for part, name in _parts(change))


def _parts(change: PlannedChange) -> list[tuple[str, str | None]]:
    from app.sync.ledger.items import Kind

    parts = [
        (change.organization_id, None),
        (change.container_id, change.container_name),
        (change.item_id, change.name),
    ]
    if change.kind == Kind.ORGANIZATION:
        parts = parts[2:]
    return [part for part in parts if part[0]]


def why(change: PlannedChange) -> str:
    """What brought it about, or what became of it; why deletes are held stands once, below all of them."""
    from app.sync.ledger.items import USER_KINDS, Kind
    from app.sync.plan.rules import Action

    if change.message and change.status != "held":
        return change.message
    if change.action != Action.UPDATE:
        return change.reason
    said = [_difference(field) for field in change.fields]
    if not change.all_fields_known:
        said.append("names and further fields: what they were is not known")
    if not said or (change.kind in USER_KINDS and change.kind != Kind.ORGANIZATION_USER):
        # Through which grant the user is there is not to be seen from the fields.
        said.append(change.reason)
    return "; ".join(said)


def _difference(field: FieldChange) -> str:
    old = _value(field.field, field.old) if field.old_is_known else "not known"
    return f"{field.field} {old} → {_value(field.field, field.new)}"


def _value(field: str, value: object) -> str:
    if field in _IDS:
        return _cut(str(value)) if value is not None else _IDS[field]
    return "none" if value is None else _quoted(value)


def _quoted(value: object) -> str:
    """As JSON, in which nothing acts on a terminal and every end is seen."""
    if isinstance(value, str):
        return json.dumps(_cut(value), ensure_ascii=False)
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_VALUE else f"{text[: SHOWN_VALUE - 1]}…"
