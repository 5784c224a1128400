"""The pages of the directory's sources: their last reads, and the problems in their records."""

import re
from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from flask import Response
from werkzeug.exceptions import NotFound

from app.access.contents import SourceState, source_states
from app.access.kinds import KINDS
from app.access.problems import Problem, ProblemCause, ProblemSort, described
from app.access.revisions import recent_changes
from app.access.stored_problems import (
    NO_SOURCE_NAME,
    ProblemCount,
    first_problems,
    last_count,
    problem_counts,
)
from app.foundation.text import quoted
from app.service.console.console import Console, one_of, query
from app.service.console.names import MENTION, Field, Mention, field_of, read_names, with_mentions
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
    ProblemSort.DANGLING: ("Missing target", "It refers to a record that is not in the directory. It is left out."),
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
_WHICH = re.compile(r"the (\w+) …, which")
"""A single record in a sentence that is shown for several."""
_WIRE_NAME = re.compile(r" \(\w+(Id|Alias)\)")
"""The name of a field in a sentence, which the fields of the record show in words."""


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
        types=console.parts.sources,
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
        first = [_shown(problem) for problem in first_problems(connection, source, sort, only_remaining=True)]
        counted = last_count(connection)
        fields = (field.mention for one in first for field in one.fields)
        mentioned = [part for one in first for part in one.sentence if not isinstance(part, str)]
        record_names = read_names(connection, [*filter(None, fields), *mentioned])
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
        shared=_shared_sentence(first),
        shared_fields=_shared_fields(first),
        names=record_names,
    )


class ShownProblem(NamedTuple):
    """A problem, with the records that it mentions as items of their own."""

    place: str
    kind: str
    """Empty: the sentence describes the record."""
    fields: Sequence[Field]
    sentence: Sequence[str | Mention]


def _shown(problem: Problem) -> ShownProblem:
    organization_id = problem.key[0] if problem.key else ""
    sentence, fields, kind = problem.reason, [], ""
    mentioned = [("group", each) for each in problem.detail]
    if problem.cause not in {None, ProblemCause.GROUP_CYCLE, ProblemCause.TOO_MANY}:
        kind = problem.kind
        sentence = _WIRE_NAME.sub("", sentence.removeprefix(described(kind, problem.key)).lstrip())
        keys = zip((key.name for key in KINDS[kind].keys), problem.key, strict=True)
        fields = [field_of(name, value, organization_id) for name, value in keys if value]
        mentioned = [("user", each) for each in problem.detail[1:]]
        if problem.cause is ProblemCause.WITHOUT_EFFECT:
            mentioned = [(problem.detail[0], problem.detail[1])]
    mentions: list[Mention] = []
    for of_kind, item_id in mentioned:
        if quoted(item_id) in sentence:
            sentence = sentence.replace(quoted(item_id), MENTION.format(len(mentions)), 1)
            mentions.append((of_kind, organization_id, item_id))
    return ShownProblem(problem.place, kind, fields, with_mentions(sentence, mentions))


def _shared_sentence(first: Sequence[ShownProblem]) -> str:
    """The sentence of all problems, if it differs only in the records that it mentions; else empty."""
    sentences = {"…".join(part for part in one.sentence if isinstance(part, str)) for one in first if one.kind}
    if len(sentences) != 1 or len(first) == 1 or not all(one.kind for one in first):
        return ""
    return _WHICH.sub(r"a \1 that", sentences.pop())


def _shared_fields(first: Sequence[ShownProblem]) -> Sequence[Field]:
    """The fields that all problems have with the same value, if there are several."""
    fields = first[0].fields if len(first) > 1 else ()
    return [field for field in fields if all(field in one.fields for one in first)]


def _problems(counts: Sequence[ProblemCount]) -> list[tuple[ProblemCount, str, str]]:
    return [(count, *MEANINGS[ProblemSort(count.sort)]) for count in counts]


def _command(state: SourceState) -> str:
    """The command that accepts a refused read, or removes the records of an unconfigured source; empty: none."""
    if "--accept-empty" in state.last_reason:
        return f"usher directory refresh --accept-empty {quote(state.name)}"
    if state.refused:
        return f"usher directory refresh --accept-shrink {quote(state.name)}"
    return "" if state.is_configured else f"usher directory forget {quote(state.name)}"
