"""Counting, writing and reading the activity of nodes."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Event

import pytest
from sqlalchemy import Engine, text

from app.access.decision.decide import Rule
from app.commands.schema import METADATA
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import open_engine, reading, writing
from app.monitoring.activity import HEARTBEAT, RETENTION, NodeActivity, activity_since, delete_old_activity, nodes
from app.monitoring.tables import BUCKETS
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime

DENIES = next(rule for rule in Rule if rule.denies)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


def read(engine: Engine, time: SimulatedTime, limit: int = 120) -> list[tuple[float, float, float | None]]:
    """Requests and denials per minute, and p99, of each interval of the last day."""
    with reading(engine) as connection:
        found = activity_since(
            connection, since=epoch_ms(time() - timedelta(days=1)), now=epoch_ms(time()), limit=limit
        )
    return [(one.requests_per_minute, one.denied_per_minute, one.p99) for one in found]


def test_processes_of_a_node_are_summed_and_gaps_are_zero(engine: Engine) -> None:
    time = SimulatedTime()
    one, two = (NodeActivity(node="n:1", role="service", clock=time) for _ in range(2))
    other = NodeActivity(node="n:2", role="service", clock=time)
    one.answered(3, {DENIES: 1}, 0, 0.0004)
    two.answered(2, {}, 1, 0.0004)
    other.answered(1, {}, 0, 0.0004)
    time.move_on(minutes=1, seconds=1)
    assert all(process.write(engine) for process in (one, two, other))
    time.move_on(minutes=2)
    one.answered(0, {DENIES: 4}, 0, 60)
    assert one.write(engine)
    time.move_on(minutes=1)
    assert [found[:2] for found in read(engine, time)] == [(8, 1), (0, 0), (4, 4), (0, 0)]
    p99 = [found[2] for found in read(engine, time)]
    assert p99[0] is not None
    assert 0 < p99[0] <= BUCKETS[0]
    assert p99[1] is None
    assert p99[2] is not None
    assert p99[2] > BUCKETS[-1]
    # One interval of four minutes.
    assert [found[:2] for found in read(engine, time, limit=1)] == [(3, 1.25)]


def test_counts_that_could_not_be_written_are_written_later(engine: Engine) -> None:
    time = SimulatedTime()
    process = NodeActivity(node="n", role="service", clock=time)
    process.answered(5, {}, 0, 0.1)
    with writing(engine) as connection:
        connection.execute(text("ALTER TABLE node_minute RENAME TO away"))
    assert not process.write(engine)
    process.answered(1, {}, 0, 0.1)
    with writing(engine) as connection:
        connection.execute(text("ALTER TABLE away RENAME TO node_minute"))
    time.move_on(minutes=1)
    assert process.write(engine)
    time.move_on(minutes=1)
    assert [found[0] for found in read(engine, time)] == [6, 0]


def test_node_is_alive_for_a_minute_after_a_heartbeat(engine: Engine) -> None:
    time = SimulatedTime()
    NodeActivity(node="n:1", role="service", clock=time).write(engine)
    time.move_on(seconds=60)
    NodeActivity(node="n", role="worker", clock=time).write(engine)
    for seconds, seen in ((0, [("n", "worker"), ("n:1", "service")]), (1, [("n", "worker")]), (60, [])):
        time.move_on(seconds=seconds)
        assert alive(engine, time) == seen


def alive(engine: Engine, time: SimulatedTime) -> list[tuple[str, str]]:
    """The nodes with a recent heartbeat."""
    with reading(engine) as connection:
        return [(one.node, one.role) for one in nodes(connection, now=epoch_ms(time()))]


def test_running_process_is_always_alive_and_a_dead_one_missed_within_a_minute(engine: Engine) -> None:
    time = SimulatedTime()
    time.move_on(seconds=7)
    process = NodeActivity(node="n:1", role="service", clock=time)
    seen, counted = [], 0

    class Stop(Event):
        """Advances the time by the timeout, and checks right before the next write, for three minutes."""

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal counted
            assert timeout is not None
            time.move_on(seconds=timeout)
            seen.append(alive(engine, time))
            process.answered(1, {}, 0, 0.0004)
            counted += 1
            return time() - time.began > timedelta(minutes=3)

    process.keep_writing(engine, Stop())
    assert seen == [[("n:1", "service")]] * counted
    # It was killed.
    time.move_on(seconds=61)
    assert alive(engine, time) == []
    # The first write happens before anything is counted.
    assert [found[0] for found in read(engine, time)][:3] == [0, 3, 3]


def test_two_heartbeats_may_be_lost(engine: Engine) -> None:
    time = SimulatedTime()
    process = NodeActivity(node="n:1", role="service", clock=time)
    assert process.write(engine)
    with writing(engine) as connection:
        connection.execute(text("ALTER TABLE node_minute RENAME TO away"))
    for _ in range(2):
        time.move_on(seconds=HEARTBEAT.total_seconds())
        assert not process.write(engine)
    with writing(engine) as connection:
        connection.execute(text("ALTER TABLE away RENAME TO node_minute"))
    time.move_on(seconds=HEARTBEAT.total_seconds() - 0.5)
    assert alive(engine, time) == [("n:1", "service")]


def test_rows_are_kept_for_thirty_days(engine: Engine) -> None:
    time = SimulatedTime()
    process = NodeActivity(node="n", role="service", clock=time)
    process.write(engine)
    time.move_on(days=RETENTION.days, minutes=2)
    process.write(engine)
    with writing(engine) as connection:
        assert delete_old_activity(connection, epoch_ms(time())) == 1
        assert delete_old_activity(connection, epoch_ms(time())) == 0


def test_without_rows_there_is_no_interval(engine: Engine) -> None:
    time = SimulatedTime()
    assert read(engine, time) == []
    NodeActivity(node="n", role="service", clock=time).write(engine)
    assert len(read(engine, time)) == 1
