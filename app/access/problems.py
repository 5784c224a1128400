"""Problems of the directory as data, and their rendering as English sentences.

The rules: ``app/access/README.md``, "Problems". ``refresh/problems.py`` finds problems, ``problem_list.py`` collects
those of a report, and ``stored_problems.py`` stores and reads them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.access.kinds import KINDS
from app.foundation.text import quoted

_MAX_GROUPS = 8
"""The most groups of a cycle that its sentence names."""


class ProblemSort(StrEnum):
    """The sorts of problems."""

    MALFORMED = "malformed"
    """It cannot be understood, and is not used."""
    REMARK = "remark"
    """Odd, but used."""
    DUPLICATE = "duplicate"
    """The same source provides a key twice. The last record of an object wins, and of several objects the first."""
    OWNED_ELSEWHERE = "ownedElsewhere"
    """A more authoritative source provides the same key. The record has no effect."""
    DANGLING = "dangling"
    """It refers to something that is not in the directory, and has no effect."""
    AMBIGUOUS = "ambiguous"
    """It names a user by an alias that several have, and has no effect."""
    FOLDER_CYCLE = "folderCycle"
    """A folder in a cycle. It has no effect."""
    GROUP_CYCLE = "groupCycle"
    """Groups that contain each other. All have the union of their members."""


class UnclearDisabling(StrEnum):
    """Sorts of disabling fills that are stored beside the problems, for a concern."""

    NOBODY = "disablesNobody"
    """It matches no user."""
    SEVERAL = "disablesSeveral"
    """Several users have its alias, and all of them are disabled."""


AnySort = ProblemSort | UnclearDisabling


class ProblemCause(StrEnum):
    """Why a record is a problem. ``Problem.detail`` holds the values of the sentence."""

    REPLACED = "replaced"
    """Detail: where the same object provides the key again."""
    REPEATED = "repeated"
    """Detail: where another object of the source provides the key."""
    OWNED = "owned"
    """Detail: the source that owns the key, and where it provides it."""
    UNKNOWN_ALIAS = "unknownAlias"
    """Detail: the alias."""
    SHARED_ALIAS = "sharedAlias"
    """Detail: the alias, and the first users who have it."""
    UNKNOWN = "unknown"
    """Detail: kind, id and field of the reference."""
    WITHOUT_EFFECT = "withoutEffect"
    """Detail: kind, id and field of the reference, to a record without effect."""
    FOLDER_CYCLE = "folderCycle"
    GROUP_CYCLE = "groupCycle"
    """Detail: the groups."""
    TOO_MANY = "tooMany"
    """An organization has more groups in groups than are searched for cycles."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the directory."""

    sort: AnySort
    source: str
    """The source's name. Empty: no source alone has it."""
    place: str
    """``file:line`` or ``file:users[3]``. May be empty."""
    text: str = ""
    """The sentence of the reader that found it. Empty if there is a ``cause``."""
    cause: ProblemCause | None = None
    """Why the record is a problem. None: ``text`` describes it."""
    kind: str = ""
    """The kind of the record. Empty: it could not be understood."""
    key: tuple[str, ...] = ()
    """The values of the record's key, in the order of ``RecordKind.keys``. Empty if absent."""
    detail: tuple[str, ...] = ()
    origin: str = ""
    """The object of the source, if a read found the problem (``app.access.source_tables.origin_text``)."""

    @property
    def reason(self) -> str:
        """The problem as an English sentence without its place."""
        if self.cause is None:
            return self.text
        sentence = self.sentence(lambda _, item_id, field: f"{quoted(item_id)} ({field})" if field else quoted(item_id))
        return f"{described(self.kind, self.key)} {sentence}" if self.is_about_record else sentence

    @property
    def is_about_record(self) -> bool:
        """Whether ``sentence`` is about the record of ``kind`` and ``key``, which it does not contain."""
        return self.cause not in {None, ProblemCause.GROUP_CYCLE, ProblemCause.TOO_MANY}

    def sentence(self, mention: "Mention") -> str:
        """The sentence of the cause, with the texts of ``mention`` for the records that it refers to."""
        return self.text if self.cause is None else _SENTENCES[self.cause](self, mention)

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


def described(kind: str, key: Sequence[str]) -> str:
    """A record in a sentence: its kind and its ids."""
    ids = zip((field.name for field in KINDS[kind].keys), key, strict=True)
    return f"{kind} {', '.join(f'{name}={quoted(value)}' for name, value in ids if value)}"


Mention = Callable[[str, str, str], str]
"""The kind of a record (empty: its id is an alias), its id, and the field that refers to it, which may be empty → the
text for it in a sentence."""


def _reference(consequence: str) -> Callable[[Problem, Mention], str]:
    """A sentence about a reference, whose kind, id and field are the detail."""

    def render(problem: Problem, mention: Mention) -> str:
        kind, item_id, field = problem.detail
        return f"refers to the {kind} {mention(kind, item_id, field)}, which {consequence}"

    return render


def _shared_alias(problem: Problem, mention: Mention) -> str:
    alias, *users = problem.detail
    mentioned = ", ".join(mention("user", user_id, "") for user_id in users)
    return f"refers to the user {mention('', alias, 'userAlias')}, an alias of several: {mentioned}"


def _group_cycle(problem: Problem, mention: Mention) -> str:
    groups = [mention("group", group_id, "") for group_id in problem.detail[:_MAX_GROUPS]]
    if len(problem.detail) > _MAX_GROUPS:
        groups.append("…")
    of_organization = f"{', '.join(groups)} of {quoted(problem.key[0])}"
    if len(groups) == 1:
        return f"the group {of_organization} contains itself"
    return f"the groups {of_organization} contain each other; all have the union of their members"


_SENTENCES: Mapping[ProblemCause, Callable[[Problem, Mention], str]] = {
    ProblemCause.REPLACED: lambda problem, _: f"is repeated at {problem.detail[0]}, which replaces this record",
    ProblemCause.REPEATED: lambda problem, _: f"is also provided at {problem.detail[0]}, which is used instead",
    ProblemCause.OWNED: lambda problem, _: (
        f"belongs to the source {quoted(problem.detail[0])}, which provides it at {problem.detail[1]}"
    ),
    ProblemCause.UNKNOWN_ALIAS: lambda problem, mention: (
        f"refers to the user {mention('', problem.detail[0], 'userAlias')}, an alias that no user has"
    ),
    ProblemCause.SHARED_ALIAS: _shared_alias,
    ProblemCause.UNKNOWN: _reference("is nowhere in the directory"),
    ProblemCause.WITHOUT_EFFECT: _reference("is left out itself"),
    ProblemCause.FOLDER_CYCLE: lambda *_: "is in a cycle of folders",
    ProblemCause.GROUP_CYCLE: _group_cycle,
    ProblemCause.TOO_MANY: lambda problem, _: (
        f"{quoted(problem.key[0])} has too many groups in groups to search them for cycles"
    ),
}
