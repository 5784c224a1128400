"""Prints the access impact of a plan: whose access to what changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from app.commands.bootstrap.application import Application
from app.commands.changes import with_name
from app.commands.screen import on_terminal, say, show_table
from app.foundation.text import counted
from app.sync.plan.access_impact import EFFECTS, StoredAccessChange
from app.sync.runs.report import impact_sentence
from app.sync.runs.run import Run

MAX_ROWS = 50
"""Rows of a table that are shown on a terminal."""
_PAGE = 100
_NAMED = 3
"""Users, or resources, of a row that are named."""


def access_changes_of(parts: Application, run_id: str) -> Iterator[StoredAccessChange]:
    """The access impact of a run's plan, loaded page by page."""
    after = 0
    while page := parts.runs.access_changes(run_id, after=after, limit=_PAGE):
        yield from page
        after = page[-1].ordinal


def show_impact(parts: Application, run: Run) -> None:
    """Prints the sums by organization and kind, then the changes: the first rows on a terminal, all rows elsewhere."""
    say(impact_sentence(run.report["impact"]))
    sums = parts.runs.access_counts(run.run_id)
    if not sums:
        return
    numbers = ((row.organization_id, row.kind, *(f"{row.number_of(effect):,}" for effect in EFFECTS)) for row in sums)
    _show(("organization", "kind", *EFFECTS), numbers)
    changes = access_changes_of(parts, run.run_id)
    rows = ((row.organization_id, effect_of(row), users_of(row), resources_of(row)) for row in changes)
    _show(("organization", "change", "users", "resources"), rows)


def _show(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    if not on_terminal():
        show_table(headings, rows)
        return
    show_table(headings, list(islice(rows, MAX_ROWS)))
    if more := sum(1 for _ in rows):
        say(f"… and {counted(more, 'more row')}; --json shows all of them")


def effect_of(row: StoredAccessChange) -> str:
    """``lose editor``, ``gain viewer``, or ``editor → viewer``."""
    if row.effect == "change":
        return f"{row.before} → {row.after}"
    return f"{row.effect} {row.before or row.after}"


def users_of(row: StoredAccessChange) -> str:
    """The first users of a row by id and name, and the number of the others."""
    if not row.user_ids and row.resource_ids:
        return f"{row.users:,} users without an entry in the organization"
    return _listed(row.user_ids, row.users, row.names.get("users", {}), lambda number: counted(number, "user"))


def resources_of(row: StoredAccessChange) -> str:
    """The first resources of a row by id and name, and the number of the others."""
    listed = _listed(
        row.resource_ids, row.resources, row.names.get("resources", {}), lambda number: counted(number, row.kind)
    )
    return f"{row.kind} {listed}" if row.resource_ids else listed


def _listed(ids: Sequence[str], total: int, names: Mapping[str, str], count: Callable[[int], str]) -> str:
    if not ids:
        return count(total)
    shown = [with_name(each, names.get(each)) for each in ids[:_NAMED]]
    more = f" and {total - len(shown):,} more" if total > len(shown) else ""
    return ", ".join(shown) + more
