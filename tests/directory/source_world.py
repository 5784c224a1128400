"""The worlds of the source contract suite: an external directory, its content, and the state of its source's readers.

A ``SourceWorld`` contains people and teams. Its source yields a ``User`` for each person (``userId``, name and email),
and a ``Membership`` for each person in a team, whose id is that of the organization. Other records are ignored.
Unsupported operations raise ``CannotError`` with the reason.
"""

import random
import unittest
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

from app.access.records import Membership, Record, User
from app.directory.source import EVERYTHING, End, Found, Gone, Malformed, ObjectId, ReadRequest, Remark, Source, Verdict


class Person(NamedTuple):
    """Somebody in a directory."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Content:
    """What a directory says."""

    people: Mapping[str, Person] = field(default_factory=dict)
    """id → the person."""
    teams: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """id → the ids of those who belong to it; all of them are among the people."""


class CannotError(unittest.SkipTest):
    """A world that cannot do what a test asks of it; the text says why."""


class SourceWorld(ABC):
    """An external directory and the source that reads it. Unsupported operations raise ``CannotError``."""

    secret: str = ""
    """The password or token of the source, which no error text may contain."""

    @abstractmethod
    def source(self) -> Source:
        """The source as a new process would create it."""

    @abstractmethod
    def bring(self, content: Content) -> None:
        """Brings the directory to this content, by as few changes as that takes."""

    def cut(self, share: float) -> AbstractContextManager[None]:
        """As long as it is open, the source's reads break after about this share of all that they would read.

        From 0 (before anything was answered) to just below 1 (after almost everything).
        """
        raise CannotError("nothing comes between this source and what it reads")

    def spoil(self, person_id: str, text: str) -> None:
        """Puts a person with this id into the directory whose name is ``text``."""
        raise CannotError("the directory takes no names that could do harm")

    def deepen(self, person_id: str, depth: int) -> None:
        """Puts a person with this id into the directory with an attribute that is nested ``depth`` deep."""
        raise CannotError("values are flat there")

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        """Ways in which a read fails (a wrong password, nobody listening) → a source of which every read fails."""
        raise CannotError("there is no way for it to fail")


Step = Found | Gone | Malformed | Remark | End


class Kept:
    """What readers of a source remember of it: the records of each of its objects."""

    def __init__(self) -> None:
        self._records: dict[ObjectId | str, list[Record]] = {}
        self.cursor = ""

    def take(self, steps: Sequence[Step]) -> End:
        """Takes a read in as the port says that it is meant, and returns its verdict."""
        end = steps[-1]
        claim(isinstance(end, End), "a read has to end with its verdict")
        assert isinstance(end, End)
        if end.verdict is Verdict.FAILED:
            return end
        read: dict[ObjectId | str, list[Record]] = {}
        for step in steps:
            if isinstance(step, Found):
                read.setdefault(step.origin.object if step.origin is not None else step.place, []).append(step.record)
            elif isinstance(step, Gone):
                claim(end.answered is not None, "Gone is told among changes alone")
                read.setdefault(step.object, [])
        if end.answered is None and end.verdict is Verdict.COMPLETE:
            self._records = read
        else:
            self._records |= read
        self.cursor = end.cursor
        return end

    def content(self) -> Content:
        """The people and teams that the records tell of."""
        people: dict[str, Person] = {}
        teams: dict[str, set[str]] = {}
        for record in (record for records in self._records.values() for record in records):
            if isinstance(record, User):
                people[record.user_id] = Person(record.name, record.email)
            elif isinstance(record, Membership):
                teams.setdefault(record.organization_id, set()).add(record.user_id or "")
        return Content(people, {team: frozenset(members) for team, members in teams.items()})


def read(source: Source, request: ReadRequest = EVERYTHING) -> list[Step]:
    """All steps of a read, of which the last, and no other, is its ``End``."""
    steps: list[Step] = list(source.read(request))
    ends = [number for number, step in enumerate(steps) if isinstance(step, End)]
    claim(
        ends == [len(steps) - 1],
        f"a read has exactly one verdict, as the last of its steps; {len(steps)} steps, verdicts at {ends}",
    )
    return steps


def some_content(people: int) -> Content:
    """So many people, in teams of several sizes: one with everybody, an empty one, and some between."""
    everybody = {
        f"p{number:06}": Person(f"First{number} Läst{number}", f"p{number}@contract.example")
        for number in range(people)
    }
    ids = list(everybody)
    teams = {f"t{number}": frozenset(ids[number :: number + 2]) for number in range(5)}
    return Content(everybody, {"all": frozenset(ids)} | {team: members for team, members in teams.items() if members})


def changed(content: Content, chance: random.Random, number: int) -> Content:
    """The content after somebody came, some changed, some left, and teams gained and lost members."""
    people = dict(content.people)
    for one in chance.sample(sorted(people), min(3, len(people))):
        people[one] = Person(f"Renamed {number}", f"{one}.{number}@contract.example")
    for one in chance.sample(sorted(people), min(2, len(people))):
        del people[one]
    for come in range(2):
        people[f"new{number}-{come}"] = Person(f"New {number}", f"new{number}.{come}@contract.example")
    teams = {team: set(members) & people.keys() for team, members in content.teams.items()}
    for team in chance.sample(sorted(teams), min(2, len(teams))):
        teams[team] ^= set(chance.sample(sorted(people), min(4, len(people))))
    teams[f"team{number}"] = set(chance.sample(sorted(people), min(3, len(people))))
    if number % 2 and len(teams) > 1:
        del teams[min(teams)]
    return Content(people, {team: frozenset(members) for team, members in teams.items() if members})


def claim(holds: bool, text: str) -> None:
    """Fails with a text of its own: nothing rewrites the assertions of this module."""
    if not holds:
        raise AssertionError(text)
