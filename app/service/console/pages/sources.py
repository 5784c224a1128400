"""The pages of the directory's sources: their last reads, and the problems in their records."""

from collections.abc import Sequence
from shlex import quote

from flask import Response
from werkzeug.exceptions import NotFound

from app.access.contents import SourceState, source_states
from app.access.problems import ProblemSort
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
    ProblemSort.MALFORMED: "malformed, left out",
    ProblemSort.REMARK: "suspicious, but used",
    ProblemSort.DUPLICATE: "more than once in this source",
    ProblemSort.OWNED_ELSEWHERE: "provided by a source with precedence, left out",
    ProblemSort.DANGLING: "refers to a record that is not in the directory, left out",
    ProblemSort.AMBIGUOUS: "refers to a user by an alias that several users have, left out",
    ProblemSort.FOLDER_CYCLE: "a folder in a cycle, or below one, left out",
    ProblemSort.GROUP_CYCLE: "groups that contain each other",
}


@VIEWS.get("sources")
def sources(console: Console) -> Response:
    query()
    with console.reading() as connection:
        states = source_states(connection)
        counts = problem_counts(connection)
        counted = last_count(connection)
    rows = [(state, _problems(counts.get(state.name, ())), _command(state)) for state in states]
    between = _problems(counts.get(NO_SOURCE_NAME, ()))
    return console.show("sources.html", sources=rows, between=between, last_count=counted)


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
        meaning=MEANINGS[ProblemSort(sort)],
        number=stored[sort].problems if sort in stored else 0,
        since=stored[sort].since if sort in stored else None,
        last_count=counted,
        first=first,
    )


def _problems(counts: Sequence[ProblemCount]) -> list[tuple[ProblemCount, str]]:
    return [(count, MEANINGS[ProblemSort(count.sort)]) for count in counts]


def _command(state: SourceState) -> str:
    """The command that accepts a refused read, or removes the records of an unconfigured source; empty: none."""
    if "--accept-empty" in state.last_reason:
        return f"usher directory refresh --accept-empty {quote(state.name)}"
    if state.refused:
        return f"usher directory refresh --accept-shrink {quote(state.name)}"
    return "" if state.is_configured else f"usher directory forget {quote(state.name)}"
