"""Problems of the directory: data, and the one place that renders them as English.

The rules: ``app/access/README.md``, "Problems". ``refresh/problems.py`` finds and stores them, ``stored_problems.py``
reads what is stored.
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

_ALIKE_KEPT = 3
_SHAPES_KEPT = 1_000
_PARTICULARS = re.compile(r"'(?:[^'\\]|\\.)*'…?|\"(?:[^\"\\]|\\.)*\"…?|\d+")
"""What differs between two lines about the same mistake: quoted values and numbers."""

_GROUPS_SHOWN = 8


class ProblemSort(StrEnum):
    """The sorts of problems."""

    MALFORMED = "malformed"
    """It cannot be understood, and is left out."""
    REMARK = "remark"
    """Odd, but used."""
    DUPLICATE = "duplicate"
    """The same source provides the same key twice: the last one wins; of several objects, the first."""
    OWNED_ELSEWHERE = "ownedElsewhere"
    """A source further up provides the same key. The record has no effect."""
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
    """It matches nobody."""
    SEVERAL = "disablesSeveral"
    """Its alias is one of several users, and all of them are disabled."""


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
    """The same; the other record exists, but has no effect itself."""
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
    """The source's name; empty: no source alone has it."""
    place: str
    """``file:line`` or ``file:users[3]``; may be empty."""
    cause: str
    """A ``ProblemCause`` if it is about a record, otherwise a sentence from whatever read the source."""
    kind: str = ""
    """The kind of the record; empty: there is none, it could not be understood."""
    key: tuple[str, ...] = ()
    """The values of the record's key, in the order of ``RecordKind.keys``; empty if absent."""
    detail: tuple[str, ...] = ()
    origin: str = ""
    """The object of the source, if a read found the problem (``app.access.source_tables.origin_text``)."""

    @property
    def reason(self) -> str:
        """The problem as an English sentence without its place."""
        return _SENTENCES[ProblemCause(self.cause)](self) if self.kind else self.cause

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


def described(kind: str, key: Sequence[str]) -> str:
    """A record in a sentence: its kind and the ids that it has."""
    ids = zip((one.name for one in KINDS[kind].keys), key, strict=True)
    return f"{kind} {', '.join(f'{name}={quoted(value)}' for name, value in ids if value)}"


def _of_record(sentence: str, *, plain: Sequence[int] = ()) -> Callable[[Problem], str]:
    """A sentence about a record, with the values of the detail; ``plain``: which of them are not quoted."""

    def render(problem: Problem) -> str:
        values = [value if at in plain else quoted(value) for at, value in enumerate(problem.detail)]
        return f"{described(problem.kind, problem.key)} {sentence.format(*values)}"

    return render


def _shared_alias(problem: Problem) -> str:
    alias, *users = map(quoted, problem.detail)
    record = described(problem.kind, problem.key)
    return f"{record} refers to the user {alias} (userAlias), an alias of several: {', '.join(users)}"


def _group_cycle(problem: Problem) -> str:
    groups = [quoted(group) for group in problem.detail[:_GROUPS_SHOWN]]
    if len(problem.detail) > _GROUPS_SHOWN:
        groups.append("…")
    of_organization = f"{', '.join(groups)} of {quoted(problem.key[0])}"
    if len(groups) == 1:
        return f"the group {of_organization} contains itself"
    return f"the groups {of_organization} contain each other; all have the union of their members"


def _too_many(problem: Problem) -> str:
    return f"{quoted(problem.key[0])} has too many groups in groups to search them for cycles"


_REFERS = "refers to the {0} {1} ({2})"
_SENTENCES = {
    ProblemCause.REPLACED: _of_record("stands again at {0}, which replaces this record", plain=[0]),
    ProblemCause.REPEATED: _of_record("stands at {0} as well, which counts", plain=[0]),
    ProblemCause.OWNED: _of_record("belongs to the source {0}, which gives it at {1}", plain=[1]),
    ProblemCause.UNKNOWN_ALIAS: _of_record("refers to the user {0} (userAlias), an alias that nobody has"),
    ProblemCause.SHARED_ALIAS: _shared_alias,
    ProblemCause.UNKNOWN: _of_record(f"{_REFERS}, which is nowhere in the directory", plain=[0, 2]),
    ProblemCause.WITHOUT_EFFECT: _of_record(f"{_REFERS}, which is left out itself", plain=[0, 2]),
    ProblemCause.FOLDER_CYCLE: _of_record("is in a cycle of folders"),
    ProblemCause.GROUP_CYCLE: _group_cycle,
    ProblemCause.TOO_MANY: _too_many,
}


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """Problems of a source whose lines differ in values alone."""

    sort: AnySort
    source: str
    reason: str
    """The first one's."""
    places: tuple[str, ...]
    """The first ones'."""
    count: int

    def __str__(self) -> str:
        if self.count == 1:
            return f"{self.sort.value}: {': '.join(filter(None, (*self.places, self.reason)))}"
        more = f" and {self.count - len(self.places):,} more" if self.count > len(self.places) else ""
        return f"{self.sort.value}, {self.count:,} times: {self.reason} (at {', '.join(self.places)}{more})"


_Shape = tuple[AnySort, str, str]


def _shape(problem: Problem) -> _Shape:
    return problem.sort, problem.source, _PARTICULARS.sub("…", problem.reason)


@dataclass(slots=True)
class ProblemSample:
    """The problems of a sort and source: how many, and the first."""

    count: int = 0
    first: list[Problem] = field(default_factory=list)

    def add(self, count: int, problems: Sequence[Problem], most: int = PROBLEMS_KEPT) -> None:
        """Counts them, and keeps the first."""
        self.count += count
        self.first.extend(problems[: most - len(self.first)])


class ProblemList:
    """Counts all problems of a report and keeps the first: a hundred in total, and of those added one by one the first
    three of each shape, so that one frequent mistake does not hide the others."""

    def __init__(self) -> None:
        self._by_source: dict[tuple[str, AnySort], ProblemSample] = {}
        self._problems: list[Problem] = []
        self._counts: Counter[AnySort] = Counter()
        self._alike: Counter[_Shape] = Counter()

    def add(self, problem: Problem) -> None:
        """Counts a problem, and keeps it if there is room and its shape is rare so far."""
        self._counts[problem.sort] += 1
        self._found(problem.source, problem.sort).add(1, [problem])
        shape = _shape(problem)
        if shape not in self._alike and len(self._alike) >= _SHAPES_KEPT:
            return
        self._alike[shape] += 1
        if self._room and self._alike[shape] <= _ALIKE_KEPT:
            self._problems.append(problem)

    def add_counted(self, sort: AnySort, counts: Mapping[str, int], sample: Sequence[Problem]) -> None:
        """Counts problems (source → number) of which only the first of each source are in ``sample``."""
        self._counts[sort] += sum(counts.values())
        self._problems.extend(sample[: self._room])
        for source, count in counts.items():
            self._found(source, sort).add(count, [one for one in sample if one.source == source])

    def add_all(self, others: "ProblemList") -> None:
        """Adds the problems of another list."""
        self._counts.update({sort: others.counts[sort] for sort in ProblemSort if sort in others.counts})
        self._alike.update(others.alike)
        self._problems.extend(others.kept[: self._room])
        for (source, sort), one in others.by_source.items():
            self._found(source, sort).add(one.count, one.first)

    def add_found(self, found: Mapping[tuple[int, str], ProblemSample]) -> None:
        """Adds what was found in the database: (source, sort) → problems."""
        for (_, sort), one in found.items():
            self.add_counted(ProblemSort(sort), {one.first[0].source: one.count}, one.first)

    def _found(self, source: str, sort: AnySort) -> ProblemSample:
        return self._by_source.setdefault((source, sort), ProblemSample())

    @property
    def by_source(self) -> Mapping[tuple[str, AnySort], ProblemSample]:
        """(source, sort) → what was found."""
        return self._by_source

    @property
    def alike(self) -> Mapping[_Shape, int]:
        """How many of the problems that were added one by one have the same shape."""
        return self._alike

    @property
    def _room(self) -> int:
        return PROBLEMS_KEPT - len(self._problems)

    @property
    def kept(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    @property
    def groups(self) -> tuple[ProblemGroup, ...]:
        """The problems that are kept, grouped by shape, in the order of the first of each group."""
        found: dict[_Shape, list[Problem]] = {}
        for problem in self._problems:
            found.setdefault(_shape(problem), []).append(problem)
        alone = Counter(sort for sort, _, _ in found)
        return tuple(
            ProblemGroup(
                sort=first.sort,
                source=first.source,
                reason=first.reason,
                places=tuple(problem.place for problem in (first, *others) if problem.place)[:_ALIKE_KEPT],
                # Of counted problems there is a sample: its count is known if no other group shares the sort.
                count=max(
                    self._alike[shape], 1 + len(others), self._counts[first.sort] if alone[first.sort] == 1 else 0
                ),
            )
            for shape, (first, *others) in found.items()
        )

    @property
    def total(self) -> int:
        return self._counts.total()

    @property
    def counts(self) -> dict[str, int]:
        """sort → number, for sorts of which there are any."""
        return {str(sort): count for sort, count in self._counts.items() if count}
