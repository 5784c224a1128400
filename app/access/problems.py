"""Problems of the directory as data, and their rendering as English sentences.

The rules: ``app/access/README.md``, "Problems". ``refresh/problems.py`` finds problems, ``stored_problems.py`` stores
and reads them.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.access.kinds import KINDS
from app.foundation.text import quoted

PROBLEMS_KEPT = 100
"""The most problems of a source and sort that are stored, and the most that a report lists."""

_MAX_SIMILAR = 3
_MAX_SHAPES = 1_000
_VALUES = re.compile(r"'(?:[^'\\]|\\.)*'…?|\"(?:[^\"\\]|\\.)*\"…?|\d+")
"""The parts that differ between two lines about the same mistake: quoted values and numbers."""

_MAX_GROUPS = 8


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
        return self.text if self.cause is None else _SENTENCES[self.cause](self)

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


def described(kind: str, key: Sequence[str]) -> str:
    """A record in a sentence: its kind and its ids."""
    ids = zip((field.name for field in KINDS[kind].keys), key, strict=True)
    return f"{kind} {', '.join(f'{name}={quoted(value)}' for name, value in ids if value)}"


class _Value(str):
    """A value for a sentence: ``{0}`` inserts it in quotes, ``{0:plain}`` as it is."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self) if spec == "plain" else quoted(self)


def _of_record(sentence: str) -> Callable[[Problem], str]:
    """A sentence about a record, with the values of the detail."""

    def render(problem: Problem) -> str:
        return f"{described(problem.kind, problem.key)} {sentence.format(*map(_Value, problem.detail))}"

    return render


def _shared_alias(problem: Problem) -> str:
    alias, *users = map(quoted, problem.detail)
    record = described(problem.kind, problem.key)
    return f"{record} refers to the user {alias} (userAlias), an alias of several: {', '.join(users)}"


def _group_cycle(problem: Problem) -> str:
    groups = [quoted(group) for group in problem.detail[:_MAX_GROUPS]]
    if len(problem.detail) > _MAX_GROUPS:
        groups.append("…")
    of_organization = f"{', '.join(groups)} of {quoted(problem.key[0])}"
    if len(groups) == 1:
        return f"the group {of_organization} contains itself"
    return f"the groups {of_organization} contain each other; all have the union of their members"


_REFERS = "refers to the {0:plain} {1} ({2:plain})"
_SENTENCES: Mapping[ProblemCause, Callable[[Problem], str]] = {
    ProblemCause.REPLACED: _of_record("is repeated at {0:plain}, which replaces this record"),
    ProblemCause.REPEATED: _of_record("is also provided at {0:plain}, which is used instead"),
    ProblemCause.OWNED: _of_record("belongs to the source {0}, which provides it at {1:plain}"),
    ProblemCause.UNKNOWN_ALIAS: _of_record("refers to the user {0} (userAlias), an alias that no user has"),
    ProblemCause.SHARED_ALIAS: _shared_alias,
    ProblemCause.UNKNOWN: _of_record(f"{_REFERS}, which is nowhere in the directory"),
    ProblemCause.WITHOUT_EFFECT: _of_record(f"{_REFERS}, which is left out itself"),
    ProblemCause.FOLDER_CYCLE: _of_record("is in a cycle of folders"),
    ProblemCause.GROUP_CYCLE: _group_cycle,
    ProblemCause.TOO_MANY: lambda problem: (
        f"{quoted(problem.key[0])} has too many groups in groups to search them for cycles"
    ),
}


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """Problems of a source whose lines differ only in values."""

    sort: AnySort
    source: str
    reason: str
    """The reason of the first problem."""
    places: tuple[str, ...]
    """The places of the first problems."""
    count: int

    def __str__(self) -> str:
        if self.count == 1:
            return f"{self.sort.value}: {': '.join(filter(None, (*self.places, self.reason)))}"
        more = f" and {self.count - len(self.places):,} more" if self.count > len(self.places) else ""
        return f"{self.sort.value}, {self.count:,} times: {self.reason} (at {', '.join(self.places)}{more})"


_Shape = tuple[AnySort, str, str]


def _shape(problem: Problem) -> _Shape:
    return problem.sort, problem.source, _VALUES.sub("…", problem.reason)


@dataclass(slots=True)
class ProblemSample:
    """The problems of a sort and source: how many, and the first."""

    count: int = 0
    first: list[Problem] = field(default_factory=list)

    def add(self, count: int, problems: Sequence[Problem], limit: int = PROBLEMS_KEPT) -> None:
        """Counts problems, and stores the first."""
        self.count += count
        self.first.extend(problems[: limit - len(self.first)])


ProblemSamples = Mapping[tuple[int, str], ProblemSample]
"""(source, sort) → its problems."""


class ProblemList:
    """The problems of a report: counts all of them and lists at most ``PROBLEMS_KEPT``.

    Of problems that are added one by one it lists three of each shape, so that a frequent mistake does not hide others.
    """

    def __init__(self) -> None:
        self.by_source: dict[tuple[str, AnySort], ProblemSample] = {}
        """(source, sort) → its problems."""
        self._listed: list[Problem] = []
        self._counts: Counter[AnySort] = Counter()
        self._similar: Counter[_Shape] = Counter()
        """How many of the problems that were added one by one have the same shape."""

    def add(self, problem: Problem) -> None:
        """Counts a problem, and lists it if there is room and its shape is rare so far."""
        self._counts[problem.sort] += 1
        self._add_to_source(problem.source, problem.sort, 1, [problem])
        shape = _shape(problem)
        if shape not in self._similar and len(self._similar) >= _MAX_SHAPES:
            return
        self._similar[shape] += 1
        if self._similar[shape] <= _MAX_SIMILAR:
            self._list([problem])

    def add_all(self, others: "ProblemList") -> None:
        """Adds the problems of another list."""
        self._counts.update({sort: others.counts[sort] for sort in ProblemSort if sort in others.counts})
        self._similar.update(others._similar)  # noqa: SLF001 - of the same class
        self._list(others.listed)
        for (source, sort), sample in others.by_source.items():
            self._add_to_source(source, sort, sample.count, sample.first)

    def add_samples(self, samples: ProblemSamples) -> None:
        """Adds problems that were counted in the database, at least one of each source and sort."""
        for (_, name), sample in samples.items():
            sort = ProblemSort(name)
            self._counts[sort] += sample.count
            self._list(sample.first)
            self._add_to_source(sample.first[0].source, sort, sample.count, sample.first)

    def _add_to_source(self, source: str, sort: AnySort, count: int, problems: Sequence[Problem]) -> None:
        self.by_source.setdefault((source, sort), ProblemSample()).add(count, problems)

    def _list(self, problems: Sequence[Problem]) -> None:
        self._listed.extend(problems[: PROBLEMS_KEPT - len(self._listed)])

    @property
    def listed(self) -> tuple[Problem, ...]:
        """The listed problems."""
        return tuple(self._listed)

    @property
    def groups(self) -> tuple[ProblemGroup, ...]:
        """The listed problems grouped by shape, in the order of the first of each group."""
        by_shape: dict[_Shape, list[Problem]] = {}
        for problem in self._listed:
            by_shape.setdefault(_shape(problem), []).append(problem)
        shapes = Counter(sort for sort, _, _ in by_shape)
        groups = []
        for shape, problems in by_shape.items():
            first = problems[0]
            places = tuple(problem.place for problem in problems if problem.place)[:_MAX_SIMILAR]
            # Only a sample of counted problems is listed. Their count is known if no other group has the same sort.
            counted = self._counts[first.sort] if shapes[first.sort] == 1 else 0
            count = max(self._similar[shape], len(problems), counted)
            groups.append(ProblemGroup(first.sort, first.source, first.reason, places, count))
        return tuple(groups)

    @property
    def total(self) -> int:
        return self._counts.total()

    @property
    def counts(self) -> dict[str, int]:
        """sort → number, for sorts that occur."""
        return {str(sort): count for sort, count in self._counts.items() if count}
