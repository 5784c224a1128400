"""The contract suite of sources: a class of tests to subclass with one fixture.

::

    class TestMine(SourceContract):
        @pytest.fixture
        def world(self, tmp_path):
            return MyWorld(tmp_path)

The fixture returns a ``SourceWorld`` (``world.py``). If it raises ``UnsupportedError``, the test is skipped.
"""

import random
import threading
import time
import tracemalloc
from collections.abc import Iterable, Sequence

from app.access.records import Membership, User
from app.directory.source import Answered, End, Found, Gone, Part, ReadRequest, Source, Step, Verdict
from app.directory.testing.world import Content, KeptRecords, Person, SourceWorld, changed, claim, read, some_content


class SourceContract:
    """The tests. A subclass has a fixture ``world`` that returns an empty ``SourceWorld``."""

    people = 300
    """The number of people, if it does not matter."""
    many = 10_000
    """The number of people of a large directory."""
    cuts: Iterable[float] = (0.0, 0.02, 0.3, 0.6, 0.9, 0.99)
    """The shares of a read after which it is cut."""
    rounds = 6
    """The number of consecutive changes."""

    def test_a_read_yields_the_records_and_one_verdict(self, world: SourceWorld) -> None:
        """All people and teams are read."""
        content = _fill(world, self.people)
        kept = KeptRecords()
        end = kept.read(world.source())
        claim(end.verdict is Verdict.COMPLETE, f"everything was read, and yet: {end}")
        claim(end.answered is None, "a request for everything must be answered with everything")
        _same(kept.content(), content)

    def test_each_read_starts_from_the_beginning(self, world: SourceWorld) -> None:
        """A source can be read again, also after a read that was closed."""
        content = _fill(world, self.people)
        source = world.source()
        closed = source.read()
        next(closed, None)
        _close(closed)
        for _ in range(2):
            _same(KeptRecords(source).content(), content)

    def test_a_read_of_an_empty_directory_does_not_fail(self, world: SourceWorld) -> None:
        """The guard decides whether it is unexpected."""
        world.set_content(Content())
        kept = KeptRecords()
        end = kept.read(world.source())
        claim(end.verdict is Verdict.COMPLETE, f"an empty directory was read, and yet: {end}")
        _same(kept.content(), Content())

    def test_a_truncated_read_is_not_complete(self, world: SourceWorld) -> None:
        """The records before the cut are correct, and the next read is complete."""
        content = _fill(world, self.people)
        source = world.source()
        for share in self.cuts:
            with world.cut(share):
                steps = read(source)
            end = steps[-1]
            claim(
                isinstance(end, End) and end.verdict is not Verdict.COMPLETE,
                f"the read was cut after {share:g} of the directory, and yet is complete",
            )
            _check_reason(end, world.secret)
            _check_records(steps, content)
        kept = KeptRecords()
        end = kept.read(source)
        claim(end.verdict is Verdict.COMPLETE, f"the read was not cut, and yet: {end}")
        _same(kept.content(), content)

    def test_a_full_read_equals_an_earlier_one_and_the_changes(self, world: SourceWorld) -> None:
        """People are added, changed and removed, and teams get other members."""
        content = _fill(world, self.people)
        kept = KeptRecords(world.source())
        chance = random.Random(20261122)
        for number in range(self.rounds):
            content = changed(content, chance, number)
            world.set_content(content)
            _follow(world.source(), kept)
            _same(kept.content(), content)
        _same(KeptRecords(world.source()).content(), content)

    def test_removed_people_are_gone(self, world: SourceWorld) -> None:
        """They are removed from the people and from all teams."""
        content = _fill(world, self.people)
        kept = KeptRecords(world.source())
        leaver = min(next(team for team in content.teams.values() if team))
        content = Content(
            {person_id: person for person_id, person in content.people.items() if person_id != leaver},
            {team: members - {leaver} for team, members in content.teams.items()},
        )
        world.set_content(content)
        _follow(world.source(), kept)
        _same(kept.content(), content)

    def test_an_incremental_read_without_changes_is_empty(self, world: SourceWorld) -> None:
        """The cursor of each read can be used for the next one."""
        content = _fill(world, self.people)
        kept = KeptRecords(world.source())
        for _ in range(3):
            _follow(world.source(), kept)
            _same(kept.content(), content)

    def test_an_invalid_cursor_is_refused_or_leads_to_a_full_read(self, world: SourceWorld) -> None:
        """It never leads to a few changes."""
        content = _fill(world, self.people)
        for cursor in ("nonsense", "0", "\x1f", "x" * 5000, "{}", '{"cursor":1}'):
            steps = read(world.source(), ReadRequest(since=cursor))
            end = steps[-1]
            assert isinstance(end, End)
            if end.verdict is Verdict.FAILED:
                claim(end.answered is Answered.CURSOR_REFUSED, f"a refused cursor must be reported as such, but: {end}")
                claim(not any(isinstance(step, Found | Gone) for step in steps), "a refused cursor must yield nothing")
            else:
                claim(end.answered is None, f"{cursor[:20]!r} is no cursor, and yet: {end}")
                kept = KeptRecords()
                kept.take(steps)
                _same(kept.content(), content)

    def test_a_partial_request_is_answered(self, world: SourceWorld) -> None:
        """A read of one person returns at least that person, and reports nothing as gone that exists."""
        content = _fill(world, self.people)
        kept = KeptRecords()
        first = read(world.source())
        kept.take(first)
        person_id = sorted(content.people)[len(content.people) // 2]
        origins = {
            step.origin.object
            for step in first
            if isinstance(step, Found)
            and step.origin is not None
            and isinstance(step.record, User | Membership)
            and step.record.user_id == person_id
        }
        content = Content({**content.people, person_id: Person("Renamed", "renamed@contract.example")}, content.teams)
        world.set_content(content)
        part = Part(user_ids=(person_id,), objects=tuple(sorted(origins)))
        end = kept.read(world.source(), ReadRequest(part=part))
        claim(end.verdict is Verdict.COMPLETE, f"one person could not be read: {end}")
        claim(end.answered in (None, Answered.PART), f"a part was requested, but: {end}")
        _same(kept.content(), content)

    def test_a_closed_read_stops_within_a_second(self, world: SourceWorld) -> None:
        """Closing a read does not read the rest."""
        world.set_content(some_content(self.many))
        reading = world.source().read()
        for _ in range(10):
            next(reading)
        start = time.monotonic()
        _close(reading)
        seconds = time.monotonic() - start
        claim(seconds < 1, f"a read that was closed took {seconds:.1f} s to stop")

    def test_memory_does_not_grow_with_the_directory(self, world: SourceWorld) -> None:
        """Ten times as many people need about the same."""
        world.set_content(some_content(self.many // 10))
        few = peak(world.source())
        world.set_content(some_content(self.many))
        many = peak(world.source())
        claim(many < few * 2 + 1_000_000, f"{few:,} bytes for a tenth of the directory, {many:,} for all of it")

    def test_no_record_contains_a_nul_character(self, world: SourceWorld) -> None:
        """Databases cannot store it. The other records are read."""
        self._check_unusable(world, "nul", "Nu\0ll")

    def test_no_record_contains_half_a_surrogate_pair(self, world: SourceWorld) -> None:
        """It cannot be encoded. The other records are read."""
        self._check_unusable(world, "half", "Ha\ud800lf")

    def test_no_record_contains_deeply_nested_values(self, world: SourceWorld) -> None:
        """Such values end neither the read nor the process."""
        for depth in (40, 5_000):
            content = _fill(world, 20)
            world.add_nested("deep", depth)
            self._check_others(world, content, "deep")

    def test_no_reason_contains_a_secret(self, world: SourceWorld) -> None:
        """The reason of a failed read is one line."""
        world.set_content(some_content(20))
        for cause, failing in world.failures().items():
            with failing as source:
                end = read(source)[-1]
            assert isinstance(end, End)
            claim(end.verdict is Verdict.FAILED, f"{cause}: the read must fail, but: {end}")
            claim(bool(end.reason), f"{cause}: the read failed without a reason")
            _check_reason(end, world.secret)

    def test_reads_in_several_threads_are_independent(self, world: SourceWorld) -> None:
        """A sync and a check of the sources may run at the same time."""
        content = _fill(world, self.people)
        source = world.source()
        contents: list[Content] = []

        def read_all() -> None:
            contents.append(KeptRecords(source).content())

        threads = [threading.Thread(target=read_all) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        claim(len(contents) == 3, "a read raised an exception")
        for read_content in contents:
            _same(read_content, content)

    def _check_unusable(self, world: SourceWorld, person_id: str, text: str) -> None:
        content = _fill(world, 20)
        world.add_unusable(person_id, text)
        self._check_others(world, content, person_id)

    @staticmethod
    def _check_others(world: SourceWorld, content: Content, person_id: str) -> None:
        steps = read(world.source())
        end = steps[-1]
        assert isinstance(end, End)
        claim(end.verdict is not Verdict.FAILED, f"one unusable entry made the read fail: {end}")
        kept = KeptRecords()
        kept.take(steps)
        people = dict(kept.content().people)
        spoiled = people.pop(person_id, None)
        if spoiled is None:
            claim(end.verdict is Verdict.PARTIAL, "a person was left out, and yet the read is complete")
        else:
            is_usable = "\0" not in spoiled.name and spoiled.name.encode(errors="replace").decode() == spoiled.name
            claim(is_usable, "a record contains the unusable text")
        _same(Content(people, kept.content().teams), content)


def _fill(world: SourceWorld, people: int) -> Content:
    """Fills the directory, and returns its content."""
    content = some_content(people)
    world.set_content(content)
    return content


def _follow(source: Source, kept: KeptRecords) -> None:
    """Updates the kept records, by changes if the source has a cursor."""
    steps = read(source, ReadRequest(since=kept.cursor))
    end = steps[-1]
    assert isinstance(end, End)
    if end.answered is Answered.CURSOR_REFUSED:
        steps = read(source)
    end = kept.take(steps)
    claim(end.verdict is Verdict.COMPLETE, f"the changes could not be read: {end}")


def _check_records(steps: Sequence[Step], content: Content) -> None:
    for step in steps:
        if isinstance(step, Found) and isinstance(step.record, User):
            person = content.people.get(step.record.user_id)
            claim(person == (step.record.name, step.record.email), f"{step.record} is not in the directory")
        elif isinstance(step, Found) and isinstance(step.record, Membership):
            members = content.teams.get(step.record.organization_id, frozenset())
            claim(step.record.user_id in members, f"{step.record} is not in the directory")


def _check_reason(end: Step, secret: str) -> None:
    assert isinstance(end, End)
    claim("\n" not in end.reason, f"a reason must be one line: {end.reason!r}")
    claim("Traceback" not in end.reason, f"a reason must be a sentence: {end.reason!r}")
    claim(len(end.reason) <= 1000, f"a reason must be short: {end.reason!r}")
    claim(not secret or secret not in end.reason, "a reason contains a secret")


def _same(actual: Content, expected: Content) -> None:
    """Compares two contents. The message contains only the differences."""
    differences = [
        f"{person_id}: {actual.people.get(person_id)}, not {expected.people.get(person_id)}"
        for person_id in sorted(actual.people.keys() | expected.people.keys())
        if actual.people.get(person_id) != expected.people.get(person_id)
    ]
    for team in sorted(actual.teams.keys() | expected.teams.keys()):
        members, others = actual.teams.get(team, frozenset()), expected.teams.get(team, frozenset())
        if members != others:
            missing, surplus = sorted(others - members)[:3], sorted(members - others)[:3]
            differences.append(f"team {team}: without {missing}, with {surplus}")
    claim(not differences, f"{len(differences)} differences: {'; '.join(differences[:5])}")


def peak(source: Source) -> int:
    """The peak memory of a read, in bytes."""
    tracemalloc.start()
    try:
        for step in source.read():
            claim(not isinstance(step, End) or step.verdict is Verdict.COMPLETE, f"not complete: {step}")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _close(reading: object) -> None:
    close = getattr(reading, "close", None)
    if close is not None:
        close()
