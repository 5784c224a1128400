"""The problems of a report: counts all of them, lists the first, and groups those that differ only in values."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.access.problems import AnySort, Problem, ProblemSort

PROBLEMS_KEPT = 100
"""The most problems of a source and sort that are stored, and the most that a report lists."""

_MAX_SIMILAR = 3
"""The most problems of one shape that are listed, and the most places that a group shows."""
_MAX_SHAPES = 1_000
"""The most shapes whose problems are listed. It bounds the memory of a list."""
_VALUES = re.compile(r"'(?:[^'\\]|\\.)*'…?|\"(?:[^\"\\]|\\.)*\"…?|\d+")
"""The parts that differ between two lines about the same mistake: quoted values and numbers."""


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
"""The sort, the source, and the reason without its values."""


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
"""Id of the source, and sort → its problems."""


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
