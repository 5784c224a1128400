"""The contract suite of sources: a class of tests to subclass with one fixture.

::

    class TestMine(SourceContract):
        @pytest.fixture
        def world(self, tmp_path):
            return MyWorld(tmp_path)

The fixture returns a ``SourceWorld`` (``world.py``). If a world raises ``CannotError`` for an
unsupported operation, the test is skipped.
"""

import random
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from app.access.records import Membership, User
from app.directory.source import Answered, End, Found, Gone, Part, ReadRequest, Source, Verdict
from app.directory.testing.world import Content, Kept, Person, SourceWorld, Step, changed, claim, read, some_content


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
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        end = kept.take(read(world.source()))
        claim(end.verdict is Verdict.COMPLETE, f"a whole directory is read completely, but: {end}")
        claim(end.answered is None, "a request for everything is answered with everything")
        _same(kept.content(), content)

    def test_each_read_starts_from_the_beginning(self, world: SourceWorld) -> None:
        """A source can be read again, also after a read that was closed."""
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

    def test_a_read_of_an_empty_directory_does_not_fail(self, world: SourceWorld) -> None:
        """Whether it is unexpected is for the guard to decide."""
        world.bring(Content())
        kept = Kept()
        end = kept.take(read(world.source()))
        claim(end.verdict is Verdict.COMPLETE, f"an empty directory is read completely, but: {end}")
        _same(kept.content(), Content())

    def test_a_truncated_read_is_not_complete(self, world: SourceWorld) -> None:
        """The records before the cut are correct, and the next read is complete."""
        content = some_content(self.people)
        world.bring(content)
        source = world.source()
        for share in self.cuts:
            with world.cut(share):
                steps = read(source)
            end = steps[-1]
            claim(
                isinstance(end, End) and end.verdict is not Verdict.COMPLETE,
                f"cut after {share:g} of it, and yet complete",
            )
            _reason_is_fit(end, world.secret)
            _nothing_is_invented(steps, content)
        kept = Kept()
        end = kept.take(read(source))
        claim(end.verdict is Verdict.COMPLETE, f"nothing is cut any more, but: {end}")
        _same(kept.content(), content)

    def test_a_full_read_equals_an_earlier_one_and_the_changes(self, world: SourceWorld) -> None:
        """With people who are added, changed and removed, and teams whose members change."""
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        kept.take(read(world.source()))
        chance = random.Random(20261122)
        for number in range(self.rounds):
            content = changed(content, chance, number)
            world.bring(content)
            _follow(world.source(), kept)
            _same(kept.content(), content)
        whole = Kept()
        whole.take(read(world.source()))
        _same(whole.content(), content)

    def test_removed_people_are_gone(self, world: SourceWorld) -> None:
        """They are removed from the people and from all teams."""
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

    def test_an_incremental_read_without_changes_is_empty(self, world: SourceWorld) -> None:
        """With the cursor of each read."""
        content = some_content(self.people)
        world.bring(content)
        kept = Kept()
        kept.take(read(world.source()))
        for _ in range(3):
            _follow(world.source(), kept)
            _same(kept.content(), content)

    def test_an_invalid_cursor_is_refused_or_leads_to_a_full_read(self, world: SourceWorld) -> None:
        """It never leads to a few changes."""
        content = some_content(self.people)
        world.bring(content)
        for cursor in ("nonsense", "0", "\x1f", "x" * 5000, "{}", '{"cursor":1}'):
            steps = read(world.source(), ReadRequest(since=cursor))
            end = steps[-1]
            assert isinstance(end, End)
            if end.verdict is Verdict.FAILED:
                claim(
                    end.answered is Answered.CURSOR_REFUSED,
                    f"a cursor that is not accepted is said to be refused, but: {end}",
                )
                claim(not any(isinstance(step, Found | Gone) for step in steps), "a refused cursor gives nothing")
            else:
                claim(end.answered is None, f"{cursor[:20]!r} was no cursor, and yet: {end}")
                kept = Kept()
                kept.take(steps)
                _same(kept.content(), content)

    def test_a_partial_request_is_answered(self, world: SourceWorld) -> None:
        """A read of one person returns at least that person, and reports nothing as gone that exists."""
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
        claim(end.verdict is Verdict.COMPLETE, f"one person could not be read: {end}")
        claim(end.answered in (None, Answered.PART), f"a part was asked for, but: {end}")
        _same(kept.content(), content)

    def test_a_closed_read_stops_within_a_second(self, world: SourceWorld) -> None:
        """Closing a read does not read the rest."""
        world.bring(some_content(self.many))
        reading = world.source().read()
        for _ in range(10):
            next(reading)
        began = time.monotonic()
        _close(reading)
        took = time.monotonic() - began
        claim(took < 1, f"a read that was closed took {took:.1f} s to stop")

    def test_memory_does_not_grow_with_the_directory(self, world: SourceWorld) -> None:
        """It is about the same for ten times as many people."""
        world.bring(some_content(self.many // 10))
        few = peak(world.source())
        world.bring(some_content(self.many))
        many = peak(world.source())
        claim(many < few * 2 + 1_000_000, f"{few:,} bytes for a tenth of the directory, {many:,} for all of it")

    def test_no_record_contains_a_nul_character(self, world: SourceWorld) -> None:
        """Databases cannot store it. The other records are read."""
        self._spoilt(world, "nul", "Nu\0ll")

    def test_no_record_contains_half_a_surrogate_pair(self, world: SourceWorld) -> None:
        """It cannot be encoded. The other records are read."""
        self._spoilt(world, "half", "Ha\ud800lf")

    def test_no_record_contains_deeply_nested_values(self, world: SourceWorld) -> None:
        """Such values end neither the read nor the process."""
        for depth in (40, 5_000):
            content = some_content(20)
            world.bring(content)
            world.deepen("deep", depth)
            self._others_are_read(world, content, "deep")

    def test_no_reason_contains_a_secret(self, world: SourceWorld) -> None:
        """The reason of a failed read is one line."""
        world.bring(some_content(20))
        for way, failing in world.failures().items():
            with failing as source:
                end = read(source)[-1]
            assert isinstance(end, End)
            claim(end.verdict is Verdict.FAILED, f"{way}: a read that cannot work has failed, but: {end}")
            claim(bool(end.reason), f"{way}: a read that failed says why")
            _reason_is_fit(end, world.secret)

    def test_reads_in_several_threads_are_independent(self, world: SourceWorld) -> None:
        """A sync and a check of the sources may run at the same time."""
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
        claim(len(seen) == 3, "a reader broke")
        for one in seen:
            _same(one, content)

    def _spoilt(self, world: SourceWorld, person_id: str, text: str) -> None:
        content = some_content(20)
        world.bring(content)
        world.spoil(person_id, text)
        self._others_are_read(world, content, person_id)

    @staticmethod
    def _others_are_read(world: SourceWorld, content: Content, person_id: str) -> None:
        steps = read(world.source())
        end = steps[-1]
        assert isinstance(end, End)
        claim(end.verdict is not Verdict.FAILED, f"one bad entry is no reason to read nothing: {end}")
        kept = Kept()
        kept.take(steps)
        found = kept.content()
        spoilt = found.people.get(person_id)
        if spoilt is None:
            claim(end.verdict is Verdict.PARTIAL, "somebody was left out, and yet the read was complete")
        else:
            claim("\0" not in spoilt.name and spoilt.name.encode(errors="replace").decode() == spoilt.name, "it is in")
        others = {one: person for one, person in found.people.items() if one != person_id}
        _same(Content(others, found.teams), content)


def _follow(source: Source, kept: Kept) -> None:
    """Updates the kept records, by changes if the source has a cursor."""
    steps = read(source, ReadRequest(since=kept.cursor))
    end = steps[-1]
    assert isinstance(end, End)
    if end.answered is Answered.CURSOR_REFUSED:
        steps = read(source)
    end = kept.take(steps)
    claim(end.verdict is Verdict.COMPLETE, f"what changed could not be read: {end}")


def _nothing_is_invented(steps: Sequence[Step], content: Content) -> None:
    for step in steps:
        if isinstance(step, Found) and isinstance(step.record, User):
            person = content.people.get(step.record.user_id)
            claim(person == (step.record.name, step.record.email), f"{step.record} is not what the directory says")
        elif isinstance(step, Found) and isinstance(step.record, Membership):
            members = content.teams.get(step.record.organization_id, frozenset())
            claim(step.record.user_id in members, f"{step.record} is not what the directory says")


def _reason_is_fit(end: Step, secret: str) -> None:
    assert isinstance(end, End)
    claim("\n" not in end.reason, f"a reason is one line: {end.reason!r}")
    claim("Traceback" not in end.reason, f"a reason is in words: {end.reason!r}")
    claim(len(end.reason) <= 1000, f"a reason is short: {end.reason!r}")
    claim(not secret or secret not in end.reason, "a reason contains a secret")


def _same(found: Content, wanted: Content) -> None:
    """Compares two contents; the message contains the differences only."""
    differing = [
        f"{one}: {found.people.get(one)}, not {wanted.people.get(one)}"
        for one in sorted(found.people.keys() | wanted.people.keys())
        if found.people.get(one) != wanted.people.get(one)
    ]
    for team in sorted(found.teams.keys() | wanted.teams.keys()):
        members, meant = found.teams.get(team, frozenset()), wanted.teams.get(team, frozenset())
        if members != meant:
            differing.append(f"team {team}: without {sorted(meant - members)[:3]}, with {sorted(members - meant)[:3]}")
    claim(not differing, f"{len(differing)} differences: {'; '.join(differing[:5])}")


def peak(source: Source) -> int:
    """The peak memory of a read, in bytes."""
    with _traced():
        for step in source.read():
            claim(not isinstance(step, End) or step.verdict is Verdict.COMPLETE, f"not complete: {step}")
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
