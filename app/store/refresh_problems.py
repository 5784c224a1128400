"""What does a refresh find wrong, and how much of it is kept?

Everything is counted; of the texts the first hundred are kept, so that a directory that is wrong from end to end costs
no more memory than one that is right.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

PROBLEMS_KEPT = 100


class ProblemSort(StrEnum):
    """What is wrong, in one word."""

    MALFORMED = "malformed"
    """It cannot be understood, and is left out."""
    REMARK = "remark"
    """Odd, but used."""
    DUPLICATE = "duplicate"
    """Another record of the same source, further down, has the same key and replaces it."""
    OWNED_ELSEWHERE = "ownedElsewhere"
    """A source further up gives the same key, and this record is left out."""
    DANGLING = "dangling"
    """It refers to something that is nowhere in the directory, and is left out."""
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


class ProblemList:
    """Counts all problems and keeps the first of them."""

    def __init__(self, kept: int = PROBLEMS_KEPT) -> None:
        self._room = kept
        self._problems: list[Problem] = []
        self._counts: Counter[ProblemSort] = Counter()

    def add(self, problem: Problem) -> None:
        """Counts a problem, and keeps it while there is room."""
        self._counts[problem.sort] += 1
        if self.room:
            self._problems.append(problem)

    def add_counted(self, sort: ProblemSort, count: int, sample: Sequence[Problem]) -> None:
        """Counts problems of which only a sample is at hand."""
        self._counts[sort] += count
        self._problems.extend(sample[: self.room])

    def add_all(self, others: "ProblemList") -> None:
        """Counts and keeps what another list did."""
        self._counts.update({ProblemSort(sort): count for sort, count in others.counts.items()})
        self._problems.extend(others.kept[: self.room])

    @property
    def room(self) -> int:
        """How many more texts are kept."""
        return self._room - len(self._problems)

    @property
    def kept(self) -> tuple[Problem, ...]:
        return tuple(self._problems)

    @property
    def total(self) -> int:
        return self._counts.total()

    @property
    def counts(self) -> dict[str, int]:
        """sort → how many, for sorts of which there are any."""
        return {str(sort): count for sort, count in self._counts.items() if count}
