"""The contract suite of sources: what each of them has to pass, as a class to subclass with one fixture.

::

    class TestMine(SourceContract):
        @pytest.fixture
        def world(self, tmp_path):
            return MyWorld(tmp_path)

A ``World`` is a directory outside of Usher that holds people and teams, and of which a source is made whose records
are a ``User`` for each person (``userId``, name, e-mail address) and a ``Membership`` for each of them in a team, whose
id is the organization's. Whatever else the source gives is not looked at. What a world cannot do it says by
``CannotError``, with the reason: the obligation is then shown as skipped, for that reason.

It lives beside the port, and imports nothing but the standard library, so that whoever writes a source of their own can
run it, too.
"""

import random
import threading
import time
import tracemalloc
import unittest
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from app.access.records import Membership, Record, User
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Found,
    Gone,
    Malformed,
    ObjectId,
    Part,
    ReadRequest,
    Remark,
    Source,
    Verdict,
)


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


class World(ABC):
    """A directory outside of Usher, and the source that reads it. What cannot be done raises ``CannotError``."""

    secret: str = ""
    """The password or token that the source was given; no reason may tell it."""

    @abstractmethod
    def source(self) -> Source:
        """The source, as a process that has just begun would make it."""

    @abstractmethod
    def bring(self, content: Content) -> None:
        """Brings the directory to this content, by as few changes as that takes."""

    def cut(self, share: float) -> AbstractContextManager[None]:  # noqa: ARG002 - for those that can
        """As long as it is open, the source's reads break after about this share of all that they would read.

        From 0 (before anything was answered) to just below 1 (after almost everything).
        """
        raise CannotError("nothing comes between this source and what it reads")

    def spoil(self, person_id: str, text: str) -> None:  # noqa: ARG002 - for those that can
        """Puts a person with this id into the directory whose name is ``text``."""
        raise CannotError("the directory takes no names that could do harm")

    def deepen(self, person_id: str, depth: int) -> None:  # noqa: ARG002 - for those that can
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
        _claim(isinstance(end, End), "a read has to end with its verdict")
        assert isinstance(end, End)  # noqa: S101 - for the type checker; the line above has said it
        if end.verdict is Verdict.FAILED:
            return end
        read: dict[ObjectId | str, list[Record]] = {}
        for step in steps:
            if isinstance(step, Found):
                read.setdefault(step.origin.object if step.origin is not None else step.place, []).append(step.record)
            elif isinstance(step, Gone):
                _claim(end.answered is not None, "Gone is told among changes alone")
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


class SourceContract:
    """The obligations. A subclass has a fixture ``world`` that gives a ``World``, which holds nothing yet."""

    people = 300
    """How many people the directory has where the number does not matter."""
    many = 10_000
    """How many people the directory has where it has to be large."""
    cuts: Iterable[float] = (0.0, 0.02, 0.3, 0.6, 0.9, 0.99)
    """Where reads are cut."""
    rounds = 6
    """How many changes follow one another."""

    def test_what_the_directory_says_is_read_and_ends_with_one_verdict(self, world: World) -> None:
        """All of it, as it is."""
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        end = kept.take(read(world.source()))
        _claim(end.verdict is Verdict.COMPLETE, f"a whole directory is read completely, but: {end}")
        _claim(end.answered is None, "whoever asks for everything gets everything")
        _same(kept.content(), content)

    def test_each_read_begins_anew(self, world: World) -> None:
        """One source is read again and again, and an iterator that was given up disturbs nobody."""
        content = some_content(self.people)
        world.bring(content)
        source = world.source()
        given_up = source.read()
        next(given_up, None)
        _close(given_up)
        for _ in range(2):
            kept = Kept()
            kept.take(read(source))
            _same(kept.content(), content)

    def test_an_empty_directory_is_no_failure(self, world: World) -> None:
        """It is for the readers to find it odd."""
        world.bring(Content())
        kept = Kept()
        end = kept.take(read(world.source()))
        _claim(end.verdict is Verdict.COMPLETE, f"an empty directory is read completely, but: {end}")
        _same(kept.content(), Content())

    def test_wherever_it_is_cut_it_is_not_complete(self, world: World) -> None:
        """And what was told before is true; afterwards it is read as if nothing had been."""
        content = some_content(self.people)
        world.bring(content)
        source = world.source()
        for share in self.cuts:
            with world.cut(share):
                steps = read(source)
            end = steps[-1]
            _claim(
                isinstance(end, End) and end.verdict is not Verdict.COMPLETE,
                f"cut after {share:g} of it, and yet complete",
            )
            _reason_is_fit(end, world.secret)
            _nothing_is_invented(steps, content)
        kept = Kept()
        end = kept.take(read(source))
        _claim(end.verdict is Verdict.COMPLETE, f"nothing is cut any more, but: {end}")
        _same(kept.content(), content)

    def test_a_full_read_is_an_earlier_one_and_what_changed_since(self, world: World) -> None:
        """For people who come, change and go, and for teams that gain and lose them."""
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        kept.take(read(world.source()))
        chance = random.Random(20261122)  # noqa: S311 - the same changes each time
        for number in range(self.rounds):
            content = changed(content, chance, number)
            world.bring(content)
            _follow(world.source(), kept)
            _same(kept.content(), content)
        whole = Kept()
        whole.take(read(world.source()))
        _same(whole.content(), content)

    def test_whoever_is_gone_is_gone(self, world: World) -> None:
        """From the people, and from all teams."""
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        kept.take(read(world.source()))
        leaver = next(iter(sorted(next(team for team in content.teams.values() if team))))
        content = Content(
            {one: person for one, person in content.people.items() if one != leaver},
            {team: members - {leaver} for team, members in content.teams.items()},
        )
        world.bring(content)
        _follow(world.source(), kept)
        _same(kept.content(), content)

    def test_nothing_changed_is_told_as_that(self, world: World) -> None:
        """Again and again, with each cursor."""
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        kept.take(read(world.source()))
        for _ in range(3):
            _follow(world.source(), kept)
            _same(kept.content(), content)

    def test_a_cursor_that_is_none_is_refused_or_leads_to_everything(self, world: World) -> None:
        """Never to a handful of changes that leave the rest as it was."""
        content = some_content(self.people)
        world.bring(content)
        for cursor in ("nonsense", "0", "\x1f", "x" * 5000, "{}", '{"cursor":1}'):
            steps = read(world.source(), ReadRequest(since=cursor))
            end = steps[-1]
            assert isinstance(end, End)  # noqa: S101 - for the type checker; read() has claimed it
            if end.verdict is Verdict.FAILED:
                _claim(
                    end.answered is Answered.CURSOR_REFUSED,
                    f"a cursor that is not accepted is said to be refused, but: {end}",
                )
                _claim(not any(isinstance(step, Found | Gone) for step in steps), "a refused cursor gives nothing")
            else:
                _claim(end.answered is None, f"{cursor[:20]!r} was no cursor, and yet: {end}")
                kept = Kept()
                kept.take(steps)
                _same(kept.content(), content)

    def test_a_part_is_true_and_says_so(self, world: World) -> None:
        """Whoever asks for one person gets them, and perhaps more, but nothing as gone that is there."""
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        first = read(world.source())
        kept.take(first)
        one = sorted(content.people)[len(content.people) // 2]
        origins = {
            step.origin.object
            for step in first
            if isinstance(step, Found)
            and step.origin is not None
            and isinstance(step.record, User | Membership)
            and step.record.user_id == one
        }
        content = Content({**content.people, one: Person("Renamed", "renamed@contract.example")}, content.teams)
        world.bring(content)
        steps = read(world.source(), ReadRequest(part=Part(user_ids=(one,), objects=tuple(sorted(origins)))))
        end = kept.take(steps)
        _claim(end.verdict is Verdict.COMPLETE, f"one person could not be read: {end}")
        _claim(end.answered in (None, Answered.PART), f"a part was asked for, but: {end}")
        _same(kept.content(), content)

    def test_it_stops_within_a_second(self, world: World) -> None:
        """Whoever closes a read does not wait for the rest of it."""
        world.bring(some_content(self.many))
        reading = world.source().read()
        for _ in range(10):
            next(reading)
        began = time.monotonic()
        _close(reading)
        took = time.monotonic() - began
        _claim(took < 1, f"a read that was closed took {took:.1f} s to stop")

    def test_memory_does_not_grow_with_the_directory(self, world: World) -> None:
        """What is held at a time is the same for ten times as many people."""
        world.bring(some_content(self.many // 10))
        few = _peak(world.source())
        world.bring(some_content(self.many))
        many = _peak(world.source())
        _claim(many < few * 2 + 1_000_000, f"{few:,} bytes for a tenth of the directory, {many:,} for all of it")

    def test_a_nul_character_reaches_no_record(self, world: World) -> None:
        """No database could hold it; the others are read all the same."""
        self._spoilt(world, "nul", "Nu\0ll")

    def test_half_a_surrogate_pair_reaches_no_record(self, world: World) -> None:
        """Nothing could be written of it."""
        self._spoilt(world, "half", "Ha\ud800lf")

    def test_what_is_nested_too_deep_reaches_no_record(self, world: World) -> None:
        """Neither does it end the process."""
        for depth in (40, 5_000):
            content = some_content(20)
            world.bring(content)
            world.deepen("deep", depth)
            self._others_are_read(world, content, "deep")

    def test_no_reason_tells_a_secret(self, world: World) -> None:
        """Whatever goes wrong is said in one line."""
        world.bring(some_content(20))
        for way, failing in world.failures().items():
            with failing as source:
                end = read(source)[-1]
            assert isinstance(end, End)  # noqa: S101 - for the type checker; read() has claimed it
            _claim(end.verdict is Verdict.FAILED, f"{way}: a read that cannot work has failed, but: {end}")
            _claim(bool(end.reason), f"{way}: a read that failed says why")
            _reason_is_fit(end, world.secret)

    def test_readers_in_several_threads_do_not_disturb_each_other(self, world: World) -> None:
        """A sync and a look at the sources may meet."""
        content = some_content(self.people)
        world.bring(content)
        source = world.source()
        seen: list[Content] = []

        def look() -> None:
            kept = Kept()
            kept.take(read(source))
            seen.append(kept.content())

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _claim(len(seen) == 3, "a reader broke")
        for one in seen:
            _same(one, content)

    def _spoilt(self, world: World, person_id: str, text: str) -> None:
        content = some_content(20)
        world.bring(content)
        world.spoil(person_id, text)
        self._others_are_read(world, content, person_id)

    @staticmethod
    def _others_are_read(world: World, content: Content, person_id: str) -> None:
        steps = read(world.source())
        end = steps[-1]
        assert isinstance(end, End)  # noqa: S101 - for the type checker; read() has claimed it
        _claim(end.verdict is not Verdict.FAILED, f"one bad entry is no reason to read nothing: {end}")
        kept = Kept()
        kept.take(steps)
        found = kept.content()
        spoilt = found.people.get(person_id)
        if spoilt is None:
            _claim(end.verdict is Verdict.PARTIAL, "somebody was left out, and yet the read was complete")
        else:
            _claim("\0" not in spoilt.name and spoilt.name.encode(errors="replace").decode() == spoilt.name, "it is in")
        others = {one: person for one, person in found.people.items() if one != person_id}
        _same(Content(others, found.teams), content)


def read(source: Source, request: ReadRequest = EVERYTHING) -> list[Step]:
    """All steps of a read, of which the last, and no other, is its ``End``."""
    steps: list[Step] = list(source.read(request))
    ends = [number for number, step in enumerate(steps) if isinstance(step, End)]
    _claim(
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


def _follow(source: Source, kept: Kept) -> None:
    """Brings what is kept up to date, by changes where the source has a cursor for them."""
    steps = read(source, ReadRequest(since=kept.cursor))
    end = steps[-1]
    assert isinstance(end, End)  # noqa: S101 - for the type checker; read() has claimed it
    if end.answered is Answered.CURSOR_REFUSED:
        steps = read(source)
    end = kept.take(steps)
    _claim(end.verdict is Verdict.COMPLETE, f"what changed could not be read: {end}")


def _nothing_is_invented(steps: Sequence[Step], content: Content) -> None:
    for step in steps:
        if isinstance(step, Found) and isinstance(step.record, User):
            person = content.people.get(step.record.user_id)
            _claim(person == (step.record.name, step.record.email), f"{step.record} is not what the directory says")
        elif isinstance(step, Found) and isinstance(step.record, Membership):
            members = content.teams.get(step.record.organization_id, frozenset())
            _claim(step.record.user_id in members, f"{step.record} is not what the directory says")


def _reason_is_fit(end: Step, secret: str) -> None:
    assert isinstance(end, End)  # noqa: S101 - for the type checker; read() has claimed it
    _claim("\n" not in end.reason, f"a reason is one line: {end.reason!r}")
    _claim("Traceback" not in end.reason, f"a reason is in words: {end.reason!r}")
    _claim(len(end.reason) <= 1000, f"a reason is short: {end.reason!r}")
    _claim(not secret or secret not in end.reason, "a reason tells a secret")


def _same(found: Content, wanted: Content) -> None:
    """Claims that two contents are the same, and says in what they differ, rather than both of them."""
    differing = [
        f"{one}: {found.people.get(one)}, not {wanted.people.get(one)}"
        for one in sorted(found.people.keys() | wanted.people.keys())
        if found.people.get(one) != wanted.people.get(one)
    ]
    for team in sorted(found.teams.keys() | wanted.teams.keys()):
        members, meant = found.teams.get(team, frozenset()), wanted.teams.get(team, frozenset())
        if members != meant:
            differing.append(f"team {team}: without {sorted(meant - members)[:3]}, with {sorted(members - meant)[:3]}")
    _claim(not differing, f"{len(differing)} differences: {'; '.join(differing[:5])}")


def _peak(source: Source) -> int:
    """The bytes that a read holds at most."""
    with _traced():
        for step in source.read():
            _claim(not isinstance(step, End) or step.verdict is Verdict.COMPLETE, f"not complete: {step}")
        return tracemalloc.get_traced_memory()[1]


@contextmanager
def _traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def _close(reading: object) -> None:
    close = getattr(reading, "close", None)
    if close is not None:
        close()


def _claim(holds: bool, text: str) -> None:
    """Fails with a text of its own: nothing rewrites the assertions of this module."""
    if not holds:
        raise AssertionError(text)
