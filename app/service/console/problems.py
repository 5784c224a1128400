"""Problems of the directory as pages show them: the words for each sort, and sentences whose records are links."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from app.access.kinds import KINDS
from app.access.problems import Problem, ProblemSort
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

# The sentences are those of ``app.access.problems``, which reports and logs contain as well.
_WHICH = re.compile(r"the (\w+) …, which")
"""A single record in a sentence that is shown for several."""


class ShownProblem(NamedTuple):
    """A problem, with the records that it mentions as items of their own."""

    place: str
    kind: str
    """It is empty if the sentence describes the record."""
    fields: Sequence[Field]
    sentence: Sequence[str | Mention]


def show_problem(problem: Problem) -> ShownProblem:
    """The sentence of a problem in parts, and the fields of its record."""
    organization_id = problem.key[0] if problem.key else ""
    kind, fields, mentions = "", list[Field](), list[Mention]()

    def mention(mentioned_kind: str, item_id: str, _field: str) -> str:
        if not mentioned_kind:
            return quoted(item_id)
        mentions.append((mentioned_kind, organization_id, item_id))
        return MENTION.format(len(mentions) - 1)

    if problem.is_about_record:
        kind = problem.kind
        keys = zip((key.name for key in KINDS[kind].keys), problem.key, strict=True)
        fields = [field_of(name, value, organization_id) for name, value in keys if value]
    return ShownProblem(problem.place, kind, fields, with_mentions(problem.sentence(mention), mentions))


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
