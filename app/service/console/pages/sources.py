"""The pages of the directory's sources: their last reads, and the problems in their records."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from flask import Response
from werkzeug.exceptions import NotFound

from app.access.problems import ProblemSort
from app.access.revisions import recent_changes
from app.access.source_states import SourceState, source_states
from app.access.stored_problems import NO_SOURCE_NAME, ProblemCount, first_problems, last_count, problem_counts
from app.service.console.console import Console
from app.service.console.names import read_names
from app.service.console.problems import WORDS, shared_fields, shared_sentence, show_problem
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS

_BY_URGENCY = ("failed", "partial", "", "complete")
_CHANGES_SHOWN = 5
_LEFT_OUT = (ProblemSort.MALFORMED, ProblemSort.DANGLING, ProblemSort.AMBIGUOUS, ProblemSort.FOLDER_CYCLE)
"""The sorts of problems whose records are left out."""


class SortRow(NamedTuple):
    counted: ProblemCount
    name: str
    meaning: str


class SourceRow(NamedTuple):
    state: SourceState
    problems: Sequence[SortRow]
    command: str
    precedence: int
    left_out: Mapping[str, int]
    """The name of a sort of problems → the number of records that are left out because of it."""


@VIEWS.get("sources")
def sources(console: Console) -> Response:
    query()
    with console.reading() as connection:
        states = source_states(connection)
        counts = problem_counts(connection)
        counted = last_count(connection)
        changes = recent_changes(connection, _CHANGES_SHOWN)
    rows = [
        SourceRow(
            state, _problem_rows(counts.get(state.name, ())), _command(state), precedence, _left_out(state, counts)
        )
        for precedence, state in enumerate(states, 1)
    ]
    return console.show(
        "sources.html",
        sources=sorted(rows, key=lambda row: _urgency(row.state)),
        in_order=[state for state in states if state.is_configured],
        outranked={
            name: count.problems
            for name, of_source in counts.items()
            for count in of_source
            if count.sort == ProblemSort.OWNED_ELSEWHERE
        },
        between=_problem_rows(counts.get(NO_SOURCE_NAME, ())),
        changes=changes,
        last_count=counted,
        types=console.parts.sources,
    )


def _urgency(state: SourceState) -> tuple[bool, int]:
    """Failed and refused sources first, then those without a complete read."""
    is_well = state.is_configured and state.refusal is None
    return is_well and state.last_verdict != "failed", _BY_URGENCY.index(state.last_verdict)


def _left_out(state: SourceState, counts: Mapping[str, Sequence[ProblemCount]]) -> dict[str, int]:
    """The numbers of the table of problems. Malformed records that are not counted yet are those of the last read."""
    found = {ProblemSort(count.sort): count.problems for count in counts.get(state.name, ())}
    numbers = {ProblemSort.MALFORMED: state.malformed, **found}
    return {WORDS[sort].name.lower(): numbers[sort] for sort in _LEFT_OUT if numbers.get(sort)}


def _problem_rows(counts: Sequence[ProblemCount]) -> list[SortRow]:
    return [SortRow(count, *WORDS[ProblemSort(count.sort)]) for count in counts]


def _command(state: SourceState) -> str:
    """The command that accepts a refused read, or removes the records of an unconfigured source. It may be empty."""
    if state.refusal is not None:
        return state.refusal.command
    return "" if state.is_configured else f"usher directory forget {quote(state.name)}"


@VIEWS.get("problems")
def problems(console: Console) -> Response:
    parameters = query("source", "sort")
    source, sort = parameters["source"], one_of(parameters["sort"], tuple(ProblemSort), "sort")
    with console.reading() as connection:
        names = {NO_SOURCE_NAME, *(state.name for state in source_states(connection))}
        if "\0" in source or source not in names or not sort:
            raise NotFound("No source has this name, or the sort of problem is missing")
        counts = {count.sort: count for count in problem_counts(connection).get(source, ())}
        first = list(map(show_problem, first_problems(connection, source, sort, only_remaining=True)))
        counted = last_count(connection)
        mentions = [field.mention for problem in first for field in problem.fields if field.mention]
        mentions += [part for problem in first for part in problem.sentence if not isinstance(part, str)]
        record_names = read_names(connection, mentions)
    return console.show(
        "problems.html",
        current="sources",
        source=source,
        sort=sort,
        label=WORDS[ProblemSort(sort)].name,
        meaning=WORDS[ProblemSort(sort)].meaning,
        number=counts[sort].problems if sort in counts else 0,
        since=counts[sort].since if sort in counts else None,
        last_count=counted,
        first=first,
        shared=shared_sentence(first),
        shared_fields=shared_fields(first),
        names=record_names,
    )
