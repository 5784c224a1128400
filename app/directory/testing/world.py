"""The interface of the directories that the contract suite changes and reads, and the content of such a directory.

A ``SourceWorld`` contains people and teams. Its source yields a ``User`` for each person (``userId``, name and email),
and a ``Membership`` for each person in a team, whose id is that of the organization. Other records are ignored.
Unsupported operations raise ``UnsupportedError`` with the reason.
"""

import random
import unittest
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from app.access.records import Membership, Record, User
from app.directory.configured import source_from_settings
from app.directory.settings import DirectorySettings
from app.directory.source import EVERYTHING, End, Found, Gone, ObjectId, ReadRequest, Source, Step, Verdict


class Person(NamedTuple):
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a directory."""

    people: Mapping[str, Person] = field(default_factory=dict)
    """id → the person."""
    teams: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """id → the ids of its members, who are among the people."""


class UnsupportedError(unittest.SkipTest):
    """The world does not support the operation of a test, with the reason. The test is skipped."""


class SourceWorld(ABC):
    """An external directory and the source that reads it. Unsupported operations raise ``UnsupportedError``."""

    secret: str = ""
    """The password or token of the source, which no reason may contain."""

    @abstractmethod
    def source(self) -> Source:
        """The source as a new process would create it."""

    @abstractmethod
    def set_content(self, content: Content) -> None:
        """Changes the directory to this content, with as few changes as possible."""

    def cut(self, share: float) -> AbstractContextManager[None]:
        """A context in which reads break after this share of the directory, from 0 to just below 1."""
        raise UnsupportedError("reads cannot be cut")

    def add_unusable(self, person_id: str, text: str) -> None:
        """Adds a person with this id and a name that may be unusable."""
        raise UnsupportedError("such names cannot be stored")

    def add_nested(self, person_id: str, depth: int) -> None:
        """Adds a person with this id and an attribute that is nested ``depth`` deep."""
        raise UnsupportedError("values are flat")

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        """Causes of failure (a wrong password, no server) → a source whose reads fail."""
        raise UnsupportedError("reads cannot fail")


class KeptRecords:
    """The records that readers of a source keep, by object. ``source``: the first to read."""

    def __init__(self, source: Source | None = None) -> None:
        self._records: dict[ObjectId | str, list[Record]] = {}
        self.cursor = ""
        if source is not None:
            self.read(source)

    def read(self, source: Source, request: ReadRequest = EVERYTHING) -> End:
        """Reads a source, applies the read, and returns its end."""
        return self.take(read(source, request))

    def take(self, steps: Sequence[Step]) -> End:
        """Applies a read by the rules of the port, and returns its end."""
        end = steps[-1]
        assert isinstance(end, End)
        if end.verdict is Verdict.FAILED:
            return end
        records: dict[ObjectId | str, list[Record]] = {}
        for step in steps:
            if isinstance(step, Found):
                object_ = step.place if step.origin is None else step.origin.object
                records.setdefault(object_, []).append(step.record)
            elif isinstance(step, Gone):
                claim(end.answered is not None, "only reads of changes and parts may yield Gone")
                records.setdefault(step.object, [])
        if end.answered is None and end.verdict is Verdict.COMPLETE:
            self._records = records
        else:
            self._records |= records
        self.cursor = end.cursor
        return end

    def content(self) -> Content:
        """The people and teams of the records."""
        people: dict[str, Person] = {}
        teams: dict[str, set[str]] = {}
        for record in (record for records in self._records.values() for record in records):
            if isinstance(record, User):
                people[record.user_id] = Person(record.name, record.email)
            elif isinstance(record, Membership):
                teams.setdefault(record.organization_id, set()).add(record.user_id or "")
        return Content(people, {team: frozenset(members) for team, members in teams.items()})


def source_of(settings: Mapping[str, object], spool: Path | None = None) -> Source:
    """The source of these settings, which have a ``type``. ``spool``: the folder for members between reads."""
    [source] = DirectorySettings.model_validate({"sources": [settings]}).sources
    return source_from_settings(source, spool)


def read(source: Source, request: ReadRequest = EVERYTHING) -> list[Step]:
    """All steps of a read, of which the last, and no other, is its ``End``."""
    steps: list[Step] = list(source.read(request))
    ends = [number for number, step in enumerate(steps) if isinstance(step, End)]
    claim(
        ends == [len(steps) - 1],
        f"a read must end with its only verdict, but has {len(steps)} steps, and verdicts at {ends}",
    )
    return steps


def some_content(people: int) -> Content:
    """People in teams of several sizes, one of them with all people."""
    people_by_id = {
        f"p{number:06}": Person(f"First{number} Läst{number}", f"p{number}@contract.example")
        for number in range(people)
    }
    ids = list(people_by_id)
    teams = {f"t{number}": frozenset(ids[number :: number + 2]) for number in range(5)}
    return Content(
        people_by_id, {"all": frozenset(ids)} | {team: members for team, members in teams.items() if members}
    )


def changed(content: Content, chance: random.Random, number: int) -> Content:
    """The content with some people added, changed and removed, and other members in some teams."""
    people = dict(content.people)
    for person_id in chance.sample(sorted(people), min(3, len(people))):
        people[person_id] = Person(f"Renamed {number}", f"{person_id}.{number}@contract.example")
    for person_id in chance.sample(sorted(people), min(2, len(people))):
        del people[person_id]
    for index in range(2):
        people[f"new{number}-{index}"] = Person(f"New {number}", f"new{number}.{index}@contract.example")
    teams = {team: set(members) & people.keys() for team, members in content.teams.items()}
    for team in chance.sample(sorted(teams), min(2, len(teams))):
        teams[team] ^= set(chance.sample(sorted(people), min(4, len(people))))
    teams[f"team{number}"] = set(chance.sample(sorted(people), min(3, len(people))))
    if number % 2 and len(teams) > 1:
        del teams[min(teams)]
    return Content(people, {team: frozenset(members) for team, members in teams.items() if members})


def claim(holds: bool, text: str) -> None:
    """Fails with a message, because pytest does not rewrite the assertions of this module."""
    if not holds:
        raise AssertionError(text)
