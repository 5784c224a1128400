"""The pages of the directory's sources: their last reads, and the problems in their records."""

from collections.abc import Sequence
from shlex import quote

from flask import Response
from werkzeug.exceptions import NotFound

from app.access.contents import SourceState, source_states
from app.access.problems import ProblemSort
from app.access.revisions import recent_changes
from app.access.stored_problems import (
    NO_SOURCE_NAME,
    ProblemCount,
    first_problems,
    last_count,
    problem_counts,
)
from app.service.console.console import Console, one_of, query
from app.service.console.views import VIEWS

SORTS = tuple(ProblemSort)
MEANINGS = {
    ProblemSort.MALFORMED: ("Malformed", "It cannot be understood. It is left out."),
    ProblemSort.REMARK: ("Suspicious", "It is used."),
    ProblemSort.DUPLICATE: ("Repeated", "It is more than once in this source. One of them is used."),
    ProblemSort.OWNED_ELSEWHERE: (
        "Owned by another source",
        "A source with precedence provides it, too, and wins.",
    ),
    ProblemSort.DANGLING: ("Without its target", "It refers to a record that is not in the directory. It is left out."),
    ProblemSort.AMBIGUOUS: ("Ambiguous alias", "It names a user by an alias that several users have. It is left out."),
    ProblemSort.FOLDER_CYCLE: (
        "Folders in a circle",
        "A folder in itself, or below such a folder. It is left out.",
    ),
    ProblemSort.GROUP_CYCLE: ("Groups in a circle", "Groups contain each other. All have the union of their members."),
}
"""Sort → its name and its meaning."""
_ORDER = ("failed", "partial", "", "complete")
_CHANGES_SHOWN = 5


@VIEWS.get("sources")
def sources(console: Console) -> Response:
    query()
    with console.reading() as connection:
        states = source_states(connection)
        counts = problem_counts(connection)
        counted = last_count(connection)
        changes = recent_changes(connection, _CHANGES_SHOWN)
    rows = [
        (state, _problems(counts.get(state.name, ())), _command(state), place) for place, state in enumerate(states, 1)
    ]
    return console.show(
        "sources.html",
        sources=sorted(rows, key=lambda row: _urgency(row[0])),
        in_order=[state for state in states if state.is_configured],
        outranked={
            name: count.problems
            for name, of_source in counts.items()
            for count in of_source
            if count.sort == ProblemSort.OWNED_ELSEWHERE
        },
        between=_problems(counts.get(NO_SOURCE_NAME, ())),
        changes=changes,
        last_count=counted,
    )


def _urgency(state: SourceState) -> tuple[bool, int]:
    """Failed and refused sources first, then those without a complete read."""
    is_well = state.is_configured and not state.refused
    return is_well and state.last_verdict != "failed", _ORDER.index(state.last_verdict)


@VIEWS.get("problems")
def problems(console: Console) -> Response:
    parameters = query("source", "sort")
    source, sort = parameters["source"], one_of(parameters["sort"], SORTS, "sort")
    with console.reading() as connection:
        names = {NO_SOURCE_NAME, *(state.name for state in source_states(connection))}
        if "\0" in source or source not in names or not sort:
            raise NotFound("No source has this name, or the sort of problem is missing")
        stored = {count.sort: count for count in problem_counts(connection).get(source, ())}
        first = first_problems(connection, source, sort, only_remaining=True)
        counted = last_count(connection)
    return console.show(
        "problems.html",
        current="sources",
        source=source,
        sort=sort,
        label=MEANINGS[ProblemSort(sort)][0],
        meaning=MEANINGS[ProblemSort(sort)][1],
        number=stored[sort].problems if sort in stored else 0,
        since=stored[sort].since if sort in stored else None,
        last_count=counted,
        first=first,
    )


def _problems(counts: Sequence[ProblemCount]) -> list[tuple[ProblemCount, str, str]]:
    return [(count, *MEANINGS[ProblemSort(count.sort)]) for count in counts]


def _command(state: SourceState) -> str:
    """The command that accepts a refused read, or removes the records of an unconfigured source; empty: none."""
    if "--accept-empty" in state.last_reason:
        return f"usher directory refresh --accept-empty {quote(state.name)}"
    if state.refused:
        return f"usher directory refresh --accept-shrink {quote(state.name)}"
    return "" if state.is_configured else f"usher directory forget {quote(state.name)}"
