"""Polls of several workers, and the runs that follow."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import Engine

from app.access.export import export_records
from app.access.records import Membership, Organization, User
from app.access.source_states import SourceState, source_states
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.source import EVERYTHING, End, Reading, ReadRequest, Source, Verdict
from app.directory.source_settings import GuardSettings
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import ReadOptions, read_directory
from app.sync.runs.lifecycle import Runs
from app.sync.runs.polling import SourcePoller, source_pollers
from app.sync.runs.queue import CHANGES
from tests.tables import make_tables
from tests.worlds.changing_source import ChangingSource, Fault
from tests.worlds.clock import SimulatedTime


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


@pytest.fixture
def time() -> SimulatedTime:
    return SimulatedTime()


@pytest.fixture
def people() -> ChangingSource:
    source = ChangingSource("people")
    source.put("acme", Organization(organization_id="acme", organization_name="acme"))
    for user_id in ("ada", "bob"):
        source.put(user_id, *person(user_id))
    return source


@pytest.fixture
def others() -> ChangingSource:
    source = ChangingSource("others")
    source.put("eve", User(user_id="eve", name="Eve", email=""))
    return source


def person(user_id: str, *, disabled: bool = False) -> list[User | Membership]:
    return [
        User(user_id=user_id, name=user_id, email="", disabled=disabled),
        Membership(organization_id="acme", user_id=user_id),
    ]


def polls(engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource) -> list[SourcePoller]:
    sources = [
        BoundedSource(people, timeout=30, policy=Policy(poll=60)),
        BoundedSource(others, timeout=30),
        BoundedSource(ChangingSource("never read"), timeout=30, policy=Policy(poll=60)),
    ]
    return source_pollers(engine, sources, guard=GuardSettings(), clock=time, stop=threading.Event())


def users(engine: Engine) -> dict[str, bool]:
    """id → whether they are disabled."""
    with reading(engine) as connection:
        return {one.user_id: one.disabled for one in export_records(connection) if isinstance(one, User)}


def state(engine: Engine, name: str = "people") -> SourceState:
    with reading(engine) as connection:
        return next(one for one in source_states(connection) if one.name == name)


def test_due_poll_reads_changes_and_queues_a_narrowed_run(
    engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource
) -> None:
    runs = Runs(engine, time, Random(1))
    poll, never = polls(engine, time, people, others)
    assert (poll.name, never.name) == ("people", "never read")
    # The first sync reads everything; nobody polls before.
    assert poll.tick() is None
    read_directory(engine, [people, others], clock=time)
    people.put("bob", *person("bob", disabled=True))
    others.put("eve", User(user_id="eve", name="Evelyn", email=""))
    asked_of_others = len(others.asked)
    time.move_on(seconds=58)
    assert poll.tick() is None
    # The next look would come when the minute is over.
    time.move_on(seconds=1)
    report = poll.tick()
    assert report is not None
    assert [(one.name, one.answered, one.records) for one in report.sources] == [("people", "changes", 2)]
    assert users(engine) == {"ada": False, "bob": True, "eve": False}
    assert len(others.asked) == asked_of_others
    assert never.tick() is not None
    [run] = runs.enqueue_changes(timedelta(0))
    assert (run.trigger, run.organization_ids, run.user_ids) == (CHANGES, (), ("bob",))
    # Nothing changed since.
    time.move_on(minutes=2)
    again = poll.tick()
    assert again is not None
    assert not again.changed
    assert runs.enqueue_changes(timedelta(0)) == []


def test_of_several_workers_one_polls(
    engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource
) -> None:
    read_directory(engine, [people, others], clock=time)
    time.move_on(minutes=1)
    asked = len(people.asked)
    workers = [polls(engine, time, people, others)[0] for _ in range(3)]
    assert sum(worker.tick() is not None for worker in workers) == 1
    assert len(people.asked) == asked + 1


def test_failed_poll_changes_nothing_and_is_repeated(
    engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource
) -> None:
    [poll, _] = polls(engine, time, people, others)
    read_directory(engine, [people, others], clock=time)
    people.remove("bob")
    people.faults.append(Fault.CUT)
    time.move_on(minutes=1)
    report = poll.tick()
    assert report is not None
    assert (report.sources[0].verdict, report.changed) == (Verdict.FAILED, False)
    assert poll.tick() is None
    time.move_on(minutes=1)
    assert poll.tick() is not None
    assert set(users(engine)) == {"ada", "eve"}


def test_source_that_failed_in_the_first_sync_is_polled(
    engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource
) -> None:
    people.faults.append(Fault.CUT)
    read_directory(engine, [people, others], clock=time)
    assert users(engine).keys() == {"eve"}
    [poll, _] = polls(engine, time, people, others)
    time.move_on(minutes=1)
    assert poll.tick() is not None
    assert users(engine).keys() == {"ada", "bob", "eve"}


def test_polls_of_a_source_that_fails_back_off(
    engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource
) -> None:
    read_directory(engine, [people, others], clock=time)
    workers = [polls(engine, time, people, others)[0] for _ in range(2)]
    people.faults += [Fault.CUT] * 8
    asked = len(people.asked)
    moments = []
    for minute in range(25):
        time.move_on(minutes=1)
        moments += [minute + 1 for worker in workers if worker.tick() is not None]
    # Two workers count the same failures; the longest pause is five minutes.
    assert moments == [1, 2, 4, 8, 13, 18, 23]
    assert len(people.asked) == asked + 7
    people.faults.clear()
    time.move_on(minutes=5)
    assert any(worker.tick() is not None for worker in workers)
    time.move_on(minutes=1)
    assert any(worker.tick() is not None for worker in workers)


class Refusing(ChangingSource):
    """Refuses the login while ``refuses`` is set."""

    refuses = True

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        if not self.refuses:
            yield from super().read(request)
            return
        self.asked.append(request)
        yield End(Verdict.FAILED, "bind_dn cn=usher: the password is wrong", login_refused=True)


def test_polls_stop_after_three_refused_logins_until_a_sync_succeeds(engine: Engine, time: SimulatedTime) -> None:
    source = Refusing("people")
    source.refuses = False
    source.put("ada", *person("ada"))
    guarded = BoundedSource(source, timeout=30, policy=Policy(poll=60))

    def started() -> SourcePoller:
        [poll] = source_pollers(engine, [guarded], guard=GuardSettings(), clock=time, stop=threading.Event())
        return poll

    read_directory(engine, [source], clock=time)
    source.refuses = True
    workers = [started(), started()]
    asked = len(source.asked)
    for _ in range(60):
        time.move_on(minutes=1)
        for worker in workers:
            worker.tick()
    assert len(source.asked) == asked + 3
    assert state(engine).last_reason == "bind_dn cn=usher: the password is wrong"
    # A worker that starts again may have other settings.
    again = started()
    time.move_on(minutes=10)
    assert again.tick() is not None
    source.refuses = False
    read_directory(engine, [source], clock=time)
    time.move_on(minutes=1)
    assert workers[0].tick() is not None


def test_poll_that_another_read_overtakes_is_no_failure(
    engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource
) -> None:
    [poll, _] = polls(engine, time, people, others)
    read_directory(engine, [people, others], clock=time)
    people.put("bob", *person("bob", disabled=True))
    people.faults.append(Fault.MOVED)

    def meanwhile() -> None:
        read_directory(engine, [people, others], clock=time)

    people.meanwhile = meanwhile  # type: ignore[method-assign] # that is what it is for
    time.move_on(minutes=1)
    assert poll.tick() is not None
    assert users(engine)["bob"]
    assert (state(engine).last_verdict, state(engine).last_reason) == ("complete", "")


def test_complete_read_that_changes_overtook_takes_effect_once_it_caught_up(
    engine: Engine, time: SimulatedTime, people: ChangingSource, others: ChangingSource
) -> None:
    read_directory(engine, [people, others], clock=time)
    time.move_on(minutes=1)
    whole: list[Source] = [BoundedSource(people, timeout=30, policy=Policy(full_every=0)), others]

    def meanwhile() -> None:
        people.put("bob", *person("bob", disabled=True))
        time.move_on(minutes=1)
        read_directory(engine, [people, others], ReadOptions(only={"people"}), clock=time)

    people.faults.append(Fault.MOVED)
    people.meanwhile = meanwhile  # type: ignore[method-assign] # that is what it is for
    report = read_directory(engine, whole, clock=time)
    assert report.sources[0].verdict is Verdict.COMPLETE
    assert users(engine) == {"ada": False, "bob": True, "eve": False}


def test_polling_ends_when_the_process_is_to_end(engine: Engine, time: SimulatedTime, people: ChangingSource) -> None:
    let_go, asked, stop = threading.Event(), threading.Event(), threading.Event()

    class Hanging(ChangingSource):
        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            asked.set()
            let_go.wait(60)
            yield from super().read(request)

    read_directory(engine, [people], clock=time)
    time.move_on(minutes=1)
    source = BoundedSource(Hanging("people"), timeout=0, stop=stop, policy=Policy(poll=60))
    [poll] = source_pollers(engine, [source], guard=GuardSettings(), clock=time, stop=stop)
    poll.check_interval = 0.01
    thread = threading.Thread(target=poll.run)
    thread.start()
    try:
        assert asked.wait(30)
        stop.set()
        thread.join(30)
        assert not thread.is_alive()
    finally:
        let_go.set()
