"""Prints the access impact of a plan."""

from collections.abc import Iterator, Sequence
from itertools import islice

from app.commands.bootstrap.application import Application
from app.commands.screen import on_terminal, print_result, show_table
from app.foundation.text import counted
from app.sync.plan.access_impact import EFFECTS, StoredAccessChange
from app.sync.runs.report import impact_sentence
from app.sync.runs.run import Run

MAX_ROWS = 50
"""Rows of a table that are shown on a terminal."""
_PAGE = 100


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
    numbers = ((row.organization_id, row.kind, *(f"{row.number_of(effect):,}" for effect in EFFECTS)) for row in sums)
    _show(("organization", "kind", *EFFECTS), numbers)
    changes = access_changes_of(parts, run.run_id)
    rows = ((row.organization_id, row.change_in_words, row.users_in_words, row.resources_in_words) for row in changes)
    _show(("organization", "change", "users", "resources"), rows)


def _show(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    if not on_terminal():
        show_table(headings, rows)
        return
    show_table(headings, list(islice(rows, MAX_ROWS)))
    if more := sum(1 for _ in rows):
        print_result(f"… and {counted(more, 'more row')}; --json shows all of them")
