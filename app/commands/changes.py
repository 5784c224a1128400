"""Prints a plan's items, sums and access impact: tables with names on a terminal, lines with all ids elsewhere."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from app.commands.bootstrap.application import Application
from app.commands.screen import on_terminal, print_result, show_table
from app.sync.ledger.items import USER_KINDS, Kind
from app.sync.plan.fields import FieldChange
from app.sync.plan.listing import PlannedChange, Sum
from app.sync.plan.rules import Action
from app.sync.plan.stored_access import EFFECTS, StoredAccessChange
from app.sync.runs.report import impact_sentence
from app.sync.runs.run import Run

MAX_CHANGES = 100
"""Items shown on a terminal."""
MAX_ROWS = 50
"""Rows of the access impact shown on a terminal."""
MAX_VALUE = 40
"""Characters shown of a field's value on a terminal."""
MAX_ORGANIZATIONS = 4
"""Sums of up to this many organizations are shown separately."""
_PAGE = 100
"""Changes of access that are loaded at once."""
_MIN_SUMMED = 6
"""Plans with fewer items have no sums."""

_TEXT_FOR_NULL = {"accessRole": "none", "accessType": "inherited", "parentFolderId": "the top", "folderId": "no folder"}
"""Fields that contain ids or constants, and the text for null."""

_AS_PLANNED = frozenset({"planned", "done"})
"""Statuses that the sums do not count separately."""


def show_changes(changes: Iterator[PlannedChange], total: int) -> None:
    """Prints a plan's ``total`` items: the first ones on a terminal, all of them elsewhere."""
    headings = ("action", "kind", "what", "status", "why")
    if not on_terminal():
        # Item by item: a first plan may have millions.
        show_table(headings, ((item.action, item.kind, ids(item), item.status, why(item)) for item in changes))
        return
    items = list(islice(changes, MAX_CHANGES))
    if not items:
        return
    if all(item.status == "planned" for item in items):
        rows = ((item.action, item.kind, names(item), why(item)) for item in items)
        show_table([heading for heading in headings if heading != "status"], rows)
    else:
        show_table(headings, ((item.action, item.kind, names(item), item.status, why(item)) for item in items))
    if total > MAX_CHANGES:
        print_result(f"… and {total - MAX_CHANGES} more; --json shows all of them")


def show_sums(sums: Sequence[Sum]) -> None:
    """Prints on a terminal how many items of each kind are added, updated and deleted."""
    if not on_terminal() or sum(part.items for part in sums) < _MIN_SUMMED:
        return
    organizations = sorted({part.organization_id for part in sums})
    separate = 1 < len(organizations) <= MAX_ORGANIZATIONS
    actions = [action.value for action in Action if any(part.action == action for part in sums)]
    statuses = sorted({part.status for part in sums} - _AS_PLANNED)
    headings = ["kind", *actions, *(f"of them {name}" for name in statuses)]
    if not separate:
        show_table(headings, list(_sum_rows(sums, actions, statuses)))
        return
    rows = [
        (organization, *row)
        for organization in organizations
        for row in _sum_rows([part for part in sums if part.organization_id == organization], actions, statuses)
    ]
    show_table(["organization", *headings], rows)


def _sum_rows(sums: Sequence[Sum], actions: Sequence[str], statuses: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A row for each kind: its number of items by action, then by status."""
    for kind in Kind:
        by_action, by_status = Counter[str](), Counter[str]()
        for part in sums:
            if part.kind == kind:
                by_action[part.action] += part.items
                by_status[part.status] += part.items
        if by_action:
            numbers = (*(by_action[action] for action in actions), *(by_status[status] for status in statuses))
            yield kind.value, *(str(number or "") for number in numbers)


def ids(change: PlannedChange) -> str:
    """The ids of an item, from its organization inwards."""
    return " / ".join(part for part, _ in _parts(change))


def names(change: PlannedChange) -> str:
    """The ids of an item, with the names that differ from them."""
    return " / ".join(f"{part} {_quoted(name)}" if name and name != part else part for part, name in _parts(change))


def _parts(change: PlannedChange) -> Iterator[tuple[str, str | None]]:
    """The ids of an item, each with its name."""
    if change.kind != Kind.ORGANIZATION:
        yield change.organization_id, None
        if change.container_id:
            yield change.container_id, change.container_name
    yield change.item_id, change.name


def why(change: PlannedChange) -> str:
    """The reason for an item, or its outcome. The reasons of held deletes are in the run's report."""
    if change.message and change.status != "held":
        return change.message
    if change.action != Action.UPDATE:
        return change.reason
    parts = [_difference(field) for field in change.fields]
    if not change.all_fields_known:
        parts.append("names and extra fields: their old values are not known")
    if not parts or (change.kind in USER_KINDS and change.kind != Kind.ORGANIZATION_USER):
        # The fields do not show through which grant the user has access.
        parts.append(change.reason)
    return "; ".join(parts)


def _difference(field: FieldChange) -> str:
    old = _value(field.field, field.old) if field.old_is_known else "not known"
    return f"{field.field} {old} → {_value(field.field, field.new)}"


def _value(field: str, value: object) -> str:
    if field in _TEXT_FOR_NULL:
        return _cut(str(value)) if value is not None else _TEXT_FOR_NULL[field]
    return "none" if value is None else _quoted(value)


def _quoted(value: object) -> str:
    """JSON: it escapes control characters and shows where the value ends."""
    if isinstance(value, str):
        return json.dumps(_cut(value), ensure_ascii=False)
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def access_changes_of(parts: Application, run_id: str) -> Iterator[StoredAccessChange]:
    """The access impact of a run's plan, loaded page by page."""
    after = 0
    while page := parts.runs.access_changes(run_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].ordinal


def show_impact(parts: Application, run: Run) -> None:
    """Prints the sums by organization and kind, then the changes: the first rows on a terminal, all rows elsewhere."""
    print_result(impact_sentence(run.report["impact"]))
    sums = parts.runs.access_counts(run.run_id)
    if not sums:
        return
    numbers = ((row.organization_id, row.kind, f"{row.gain:,}", f"{row.lose:,}", f"{row.change:,}") for row in sums)
    _show_rows(("organization", "kind", *EFFECTS), numbers)
    changes = access_changes_of(parts, run.run_id)
    rows = ((row.organization_id, row.change_in_words, row.users_in_words, row.resources_in_words) for row in changes)
    _show_rows(("organization", "change", "users", "resources"), rows)


def _show_rows(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    if not on_terminal():
        show_table(headings, rows)
        return
    show_table(headings, list(islice(rows, MAX_ROWS)))
    # The rest is not counted: that would load every page.
    if next(rows, None) is not None:
        print_result("… and more; --json shows all of them")
