"""The problems that a refresh finds, and how much of them is kept.

The rules: ``app/model/README.md``, "Problems".

Everything is counted; of the texts the first hundred are kept, and of those that say the same the first three, so that
a directory that is wrong from end to end costs no more memory than one that is right, and one mistake that stands
everywhere does not hide another. Beside them stand the first hundred of each source and sort (``keeping.py``).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

PROBLEMS_KEPT = 100

_ALIKE_KEPT = 3
_SHAPES_KEPT = 1_000
_PARTICULARS = re.compile(r"'(?:[^'\\]|\\.)*'…?|\"(?:[^\"\\]|\\.)*\"…?|\d+")
"""What differs between two reasons that say the same: quoted values and numbers."""


class ProblemSort(StrEnum):
    """What is wrong, in one word."""

    MALFORMED = "malformed"
    """It cannot be understood, and is left out."""
    REMARK = "remark"
    """Odd, but used."""
    DUPLICATE = "duplicate"
    """The same source gives the same key twice: the last one counts; where it has objects, the first of them."""
    OWNED_ELSEWHERE = "ownedElsewhere"
    """A source further up gives the same key, and this record is left out."""
    DANGLING = "dangling"
    """It refers to something that is nowhere in the directory, and is left out."""
    AMBIGUOUS = "ambiguous"
    """It names a user by an alias that several have, and is left out."""
    FOLDER_CYCLE = "folderCycle"
    """A folder in a cycle, or below one; left out."""
    GROUP_CYCLE = "groupCycle"
    """Groups that contain each other; they are kept, and all have the union of their members."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the directory."""

    sort: ProblemSort
    source: str
    """The source's name."""
    place: str
    """``file:line`` or ``file:users[3]``."""
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """Problems of a source that say the same."""

    sort: ProblemSort
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


Shape = tuple[ProblemSort, str, str]


def _shape(problem: Problem) -> Shape:
    return problem.sort, problem.source, _PARTICULARS.sub("…", problem.reason)


@dataclass(slots=True)
class OfSource:
    """The problems of one sort of one source."""

    count: int = 0
    first: list[Problem] = field(default_factory=list)

    def add(self, count: int, problems: Sequence[Problem], most: int) -> None:
        """Counts them, and keeps the first."""
        self.count += count
        self.first.extend(problems[: most - len(self.first)])


class ProblemList:
    """Counts all problems and keeps the first of them."""

    def __init__(self, kept: int = PROBLEMS_KEPT, *, of_each: int = PROBLEMS_KEPT) -> None:
        """``kept``: how many texts in all; ``of_each``: how many of each source and sort, beside them."""
        self._room = kept
        self._of_each = of_each
        self._by_source: dict[tuple[str, ProblemSort], OfSource] = {}
        self._problems: list[Problem] = []
        self._counts: Counter[ProblemSort] = Counter()
        self._alike: Counter[Shape] = Counter()

    def add(self, problem: Problem) -> None:
        """Counts a problem, and keeps it while there is room, and while it says something new."""
        self._counts[problem.sort] += 1
        self._of(problem.source, problem.sort).add(1, [problem], self._of_each)
        shape = _shape(problem)
        if shape not in self._alike and len(self._alike) >= _SHAPES_KEPT:
            return
        self._alike[shape] += 1
        if self.room and self._alike[shape] <= _ALIKE_KEPT:
            self._problems.append(problem)

    def add_counted(self, sort: ProblemSort, counts: Mapping[str, int], sample: Sequence[Problem]) -> None:
        """Counts problems (source → how many) of which only a sample is at hand, ``of_each`` source at most."""
        self._counts[sort] += sum(counts.values())
        self._problems.extend(sample[: self.room])
        for source, count in counts.items():
            of_source = [problem for problem in sample if problem.source == source and problem.sort == sort]
            self._of(source, sort).add(count, of_source, self._of_each)

    def add_all(self, others: "ProblemList") -> None:
        """Counts and keeps what another list did."""
        self._counts.update({ProblemSort(sort): count for sort, count in others.counts.items()})
        self._alike.update(others.alike)
        self._problems.extend(others.kept[: self.room])
        for (source, sort), one in others.by_source.items():
            self._of(source, sort).add(one.count, one.first, self._of_each)

    def _of(self, source: str, sort: ProblemSort) -> OfSource:
        return self._by_source.setdefault((source, sort), OfSource())

    @property
    def of_each(self) -> int:
        """How many texts of each source and sort are kept: of so many the reasons are asked for."""
        return self._of_each

    @property
    def by_source(self) -> Mapping[tuple[str, ProblemSort], OfSource]:
        """(source, sort) → those that were found."""
        return self._by_source

    @property
    def room(self) -> int:
        """How many more texts are kept."""
        return self._room - len(self._problems)

    @property
    def kept(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    @property
    def alike(self) -> Counter[Shape]:
        """How many of those that were added one by one say the same."""
        return self._alike

    @property
    def groups(self) -> tuple[ProblemGroup, ...]:
        """The problems that are kept, those that say the same together, in the order of the first of each."""
        found: dict[Shape, list[Problem]] = {}
        for problem in self._problems:
            found.setdefault(_shape(problem), []).append(problem)
        alone = Counter(sort for sort, _, _ in found)
        return tuple(
            ProblemGroup(
                sort=first.sort,
                source=first.source,
                reason=first.reason,
                places=tuple(problem.place for problem in (first, *others) if problem.place)[:_ALIKE_KEPT],
                # Of what the database found a sample is known, and how many there are in all.
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
        """sort → how many, for sorts of which there are any."""
        return {str(sort): count for sort, count in self._counts.items() if count}
