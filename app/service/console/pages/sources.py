"""The pages of the directory's sources: their last reads, and the problems in their records."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from flask import Response
from sqlalchemy import Connection

from app.access.problems import ProblemSort
from app.access.revisions import recent_changes
from app.access.source_states import SourceState, source_states
from app.access.stored_problems import NO_SOURCE_NAME, ProblemCount, first_problems, last_count, problem_counts
from app.foundation.clock import epoch_ms
from app.service.console.console import Console
from app.service.console.names import read_names
from app.service.console.problems import WORDS, shared_fields, shared_sentence, show_problem
from app.service.console.run_reads import SourceLoss, UnreadSource, losses_behind, unread_sources
from app.service.console.runs import read_run
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run
from app.sync.runs.status import held_runs

_BY_URGENCY = (
    "failed",
    "refused",
    "not configured",
    "records lost",
    "partial",
    "never read",
    "no push yet",
    "complete",
)
"""The words for the state of a source, the worst first."""
_CHANGES_SHOWN = 5
_RUNS_READ = 20
"""The latest runs, in which failed reads are searched."""
_LEFT_OUT = (ProblemSort.MALFORMED, ProblemSort.DANGLING, ProblemSort.AMBIGUOUS, ProblemSort.FOLDER_CYCLE)
"""The sorts of problems whose records are left out."""


class SortRow(NamedTuple):
    counted: ProblemCount
    name: str
    meaning: str


class SourceRow(NamedTuple):
    state: SourceState
    word: str
    """One of ``_BY_URGENCY``."""
    problems: Sequence[SortRow]
    command: str
    precedence: int
    left_out: Mapping[str, int]
    """The name of a sort of problems → the number of records that are left out because of it."""
    lost: Sequence[tuple[Run, SourceLoss]]
    """The losses behind the deletes that are held now, and the runs that read the source then."""
    unread: tuple[Run, UnreadSource] | None
    """The last of the latest runs that did not read the source completely."""


@VIEWS.get("sources")
def sources(console: Console) -> Response:
    query()
    with console.reading() as connection:
        states = source_states(connection)
        counts = problem_counts(connection)
        counted = last_count(connection)
        changes = recent_changes(connection, _CHANGES_SHOWN)
        lost = _lost_now(connection, epoch_ms(console.parts.clock()))
        unread = {
            source.name: (run, source)
            for run in reversed(recent_runs(connection, _RUNS_READ))
            for source in unread_sources(run).lines
        }
    rows = [
        SourceRow(
            state=state,
            word=_word(state, has_lost=state.name in lost),
            problems=_problem_rows(counts.get(state.name, ())),
            command=_command(state),
            precedence=precedence,
            left_out=_left_out(state, counts),
            lost=lost.get(state.name, ()),
            unread=unread.get(state.name) if state.last_verdict == "complete" else None,
        )
        for precedence, state in enumerate(states, 1)
    ]
    return console.show(
        "sources.html",
        sources=sorted(rows, key=lambda row: _BY_URGENCY.index(row.word)),
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


def _lost_now(connection: Connection, now_ms: int) -> Mapping[str, list[tuple[Run, SourceLoss]]]:
    """Source → its losses behind the deletes that are held now."""
    lost = defaultdict(list)
    for held in held_runs(connection, now_ms):
        for run, losses in losses_behind(connection, read_run(connection, held.run_id)):
            for loss in losses:
                lost[loss.source].append((run, loss))
    return lost


def _word(state: SourceState, *, has_lost: bool) -> str:
    if state.refusal is not None:
        return "refused"
    if state.last_verdict == "failed":
        return "failed"
    if not state.is_configured:
        return "not configured"
    if has_lost:
        return "records lost"
    if state.last_verdict == "complete" and not state.last_good_at:
        return "no push yet"
    return state.last_verdict or "never read"


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
            return console.show(
                "problem.html",
                current="sources",
                status=404,
                title="Problems of a source",
                text="There is no such source." if sort else "This link is incomplete.",
                advice="Sources lists the problems of each source.",
                request_id="",
                is_outage=False,
                to=("sources", "To the sources"),
            )
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
