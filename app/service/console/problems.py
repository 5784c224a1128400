"""Problems of the directory as pages show them: the words for each sort, and sentences whose records are links."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from app.access.kinds import KINDS
from app.access.problems import Problem, ProblemCause, ProblemSort, described
from app.foundation.text import quoted
from app.service.console.names import MENTION, Field, Mention, field_of, with_mentions


class SortWords(NamedTuple):
    name: str
    meaning: str


WORDS = {
    ProblemSort.MALFORMED: SortWords("Malformed", "It cannot be understood. It is left out."),
    ProblemSort.REMARK: SortWords("Suspicious", "It is used."),
    ProblemSort.DUPLICATE: SortWords("Repeated", "It is more than once in this source. One of them is used."),
    ProblemSort.OWNED_ELSEWHERE: SortWords(
        "Owned by another source", "A source with precedence provides it, too, and wins."
    ),
    ProblemSort.DANGLING: SortWords(
        "Missing target", "It refers to a record that is not in the directory. It is left out."
    ),
    ProblemSort.AMBIGUOUS: SortWords(
        "Ambiguous alias", "It names a user by an alias that several users have. It is left out."
    ),
    ProblemSort.FOLDER_CYCLE: SortWords(
        "Folders in a circle", "A folder in itself, or below such a folder. It is left out."
    ),
    ProblemSort.GROUP_CYCLE: SortWords(
        "Groups in a circle", "Groups contain each other. All have the union of their members."
    ),
}
"""Sort → its words."""

_WITHOUT_RECORD = frozenset({None, ProblemCause.GROUP_CYCLE, ProblemCause.TOO_MANY})
"""The causes of problems whose sentence does not begin with a record."""
# The sentences are those of ``app.access.problems``, which reports and logs contain as well.
_WHICH = re.compile(r"the (\w+) …, which")
"""A single record in a sentence that is shown for several."""
_WIRE_NAME = re.compile(r" \(\w+(Id|Alias)\)")
"""The name of a field in a sentence, which the fields of the record show in words."""


class ShownProblem(NamedTuple):
    """A problem, with the records that it mentions as items of their own."""

    place: str
    kind: str
    """It is empty if the sentence describes the record."""
    fields: Sequence[Field]
    sentence: Sequence[str | Mention]


def show_problem(problem: Problem) -> ShownProblem:
    """Replaces the quoted ids in the sentence of a problem by the records that they identify."""
    organization_id = problem.key[0] if problem.key else ""
    kind, fields, sentence = "", list[Field](), problem.reason
    if problem.cause not in _WITHOUT_RECORD:
        kind = problem.kind
        keys = zip((key.name for key in KINDS[kind].keys), problem.key, strict=True)
        fields = [field_of(name, value, organization_id) for name, value in keys if value]
        sentence = _WIRE_NAME.sub("", sentence.removeprefix(described(kind, problem.key)).lstrip())
    mentions: list[Mention] = []
    for mentioned_kind, item_id in _mentioned(problem):
        if quoted(item_id) in sentence:
            sentence = sentence.replace(quoted(item_id), MENTION.format(len(mentions)), 1)
            mentions.append((mentioned_kind, organization_id, item_id))
    return ShownProblem(problem.place, kind, fields, with_mentions(sentence, mentions))


def _mentioned(problem: Problem) -> list[tuple[str, str]]:
    """Kind and id of each record in the detail of a problem."""
    if problem.cause in _WITHOUT_RECORD:
        return [("group", group_id) for group_id in problem.detail]
    if problem.cause is ProblemCause.WITHOUT_EFFECT:
        kind, item_id, *_ = problem.detail
        return [(kind, item_id)]
    return [("user", user_id) for user_id in problem.detail[1:]]


def shared_sentence(problems: Sequence[ShownProblem]) -> str:
    """The sentence of all problems, if it differs only in the records that it mentions. Otherwise it is empty."""
    if len(problems) == 1 or not all(problem.kind for problem in problems):
        return ""
    sentences = {"…".join(part for part in problem.sentence if isinstance(part, str)) for problem in problems}
    return _WHICH.sub(r"a \1 that", sentences.pop()) if len(sentences) == 1 else ""


def shared_fields(problems: Sequence[ShownProblem]) -> Sequence[Field]:
    """The fields that all problems have with the same value, if there are several problems."""
    fields = problems[0].fields if len(problems) > 1 else ()
    return [field for field in fields if all(field in problem.fields for problem in problems)]
