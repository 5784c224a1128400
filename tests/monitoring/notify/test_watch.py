"""Which notifications are sent, and how often."""

import base64
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Never

import pytest
import structlog
from sqlalchemy import Engine, insert, select, text

from app.access.records import Fill, Membership, Organization, User
from app.access.stored_problems import count_problems
from app.commands.bootstrap.application import concern_finder
from app.directory.source import EVERYTHING, End, Found, Reading, ReadRequest, Verdict
from app.foundation.database.engine import open_engine, reading, writing
from app.monitoring.notify.channels import channels_from_settings
from app.monitoring.notify.message import Channel, Message, NotDeliveredError
from app.monitoring.notify.settings import NotificationSettings
from app.monitoring.notify.tables import ConcernRow
from app.monitoring.notify.watch import Watch
from app.settings import Settings
from app.sync.ledger.ledger import open_ledger
from app.sync.runs.directory_reads import ReadOptions, forget, read_directory
from app.sync.runs.run import RunRequest, RunStatus
from app.sync.runs.workers import Heartbeat, workers
from tests.monitoring.notify.conftest import Past, Receiver
from tests.ports import free_port
from tests.worlds.changing_source import ChangingSource
from tests.worlds.clock import SimulatedTime

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes 123").decode()
SETTINGS = Settings.model_validate({"sync": {"schedule": "every 15m", "verify_schedule": ""}})


@dataclass
class Kept:
    """A channel that records messages, after ``refuses`` failures."""

    name: str = "webhook"
    refuses: int = 0
    got: list[Message] = field(default_factory=list)

    def send(self, message: Message) -> None:
        if self.refuses:
            self.refuses -= 1
            raise NotDeliveredError("not now")
        self.got.append(message)

    def events(self) -> list[tuple[str, str]]:
        """Event and cause of each message, in order."""
        return [(message.content["type"].partition(".")[2], message.content["data"]["cause"]) for message in self.got]


@pytest.fixture
def kept() -> Kept:
    return Kept()


MakeWatch = Callable[..., Watch]


@pytest.fixture
def make_watch(engine: Engine, time: SimulatedTime) -> MakeWatch:
    def make(*channels: Channel, settings: Settings = SETTINGS, seed: int = 1, tries: int = 3) -> Watch:
        return Watch(
            interval=10.0,
            engine=engine,
            find_concerns=concern_finder(settings),
            channels=channels,
            clock=time,
            random=Random(seed),
            stop=threading.Event(),
            tries=tries,
            monotonic=lambda: time().timestamp(),
        )

    return make


def test_concern_of_a_newer_version_is_left_to_it(
    make_watch: MakeWatch, kept: Kept, past: Past, engine: Engine
) -> None:
    row = {
        "concern_key": "novel:",
        "cause": "novel",
        "fingerprint": "",
        "says": "it is new",
        "since_at": 0,
        "told_at": 0,
    }
    with writing(engine) as connection:
        connection.execute(insert(ConcernRow.__table__).values(row))
    past.held(30)
    make_watch(kept).tick()
    assert kept.events() == [("began", "held")]
    with reading(engine) as connection:
        assert "novel" in connection.scalars(select(ConcernRow.__table__.c.cause)).all()


def test_held_run_is_reported_once_however_often_it_is_held_again(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    for _ in range(5):
        run = past.held(30)
        watch.tick()
        watch.tick()
        time.move_on(minutes=15)
    assert kept.events() == [("began", "held")]
    data = kept.got[0].content["data"]
    assert data["count"] == 30
    assert data["summary"].startswith("30 deletes wait for approval until 2026-11-27 12:00 UTC: in acme, 30 deletes")
    assert data["runId"] != run.run_id
    # The held deletes of the message can still be approved.
    past.runs.approve(data["runId"])


def test_held_run_is_reported_again_when_it_changes_and_when_it_is_over(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    steps: list[tuple[Callable[[], object], list[tuple[str, str]]]] = [
        (lambda: past.held(30), [("began", "held")]),
        (lambda: past.held(31), []),
        (lambda: past.held(20), []),
        (lambda: past.held(60), [("changed", "held")]),
        (lambda: past.held(60, organization="bravo"), [("changed", "held")]),
        (lambda: past.ended(RunStatus.DONE), [("over", "held")]),
        (lambda: past.held(30), [("began", "held")]),
        (lambda: past.runs.discard(past.runs.recent(1)[0].run_id), [("over", "held")]),
    ]
    for number, (step, expected) in enumerate(steps):
        kept.got.clear()
        time.move_on(minutes=15)
        step()
        watch.tick()
        assert kept.events() == expected, number


def test_failure_is_reported_once_and_when_it_is_over(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    first = time()
    for attempt in range(4):
        past.ended(RunStatus.FAILED, error=f"the backend: no answer to call {attempt} at 12:{attempt}")
        watch.tick()
        time.move_on(minutes=15)
    past.ended(RunStatus.FAILED, error="the backend: UNAUTHENTICATED")
    watch.tick()
    time.move_on(minutes=15)
    past.ended(RunStatus.DONE)
    watch.tick()
    assert kept.events() == [("began", "failed"), ("changed", "failed"), ("over", "failed")]
    assert kept.got[0].content["data"]["since"] == f"{first:%Y-%m-%dT%H:%M:%SZ}"


def test_cancelled_and_narrowed_runs_are_no_failure(make_watch: MakeWatch, kept: Kept, past: Past) -> None:
    past.ended(RunStatus.DONE)
    past.ended(RunStatus.CANCELLED, error="told to stop")
    make_watch(kept).tick()
    assert kept.events() == []


def test_run_that_does_not_begin_is_reported_after_a_delay(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    time.move_on(seconds=20)  # as a start that was put off a little
    past.ended(RunStatus.DONE)
    for minutes in (14, 30, 30):
        time.move_on(minutes=minutes)
        watch.tick()
    assert kept.events() == []
    time.move_on(minutes=1)
    watch.tick()
    time.move_on(hours=5)
    watch.tick()
    assert kept.events() == [("began", "missed")]
    data = kept.got[0].content["data"]
    assert data["summary"] == "no run has begun since 2026-11-20 12:00 UTC; one was due at 2026-11-20 12:15 UTC"
    past.ended(RunStatus.DONE)
    watch.tick()
    assert kept.events()[1:] == [("over", "missed")]


def test_worker_that_never_began_is_missed_from_the_first_request_on(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    past.runs.enqueue(RunRequest(trigger="resync"))
    time.move_on(hours=2)
    watch = make_watch(kept)
    watch.tick()
    time.move_on(minutes=1)
    watch.tick()
    assert kept.events() == [("began", "missed")]


def test_nothing_is_missed_without_a_schedule_or_when_nobody_asks(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    past.ended(RunStatus.DONE)
    time.move_on(days=30)
    never = Settings.model_validate({"sync": {"schedule": "", "verify_schedule": ""}})
    unasked = Settings.model_validate({"sync": {"schedule": "every 1m"}, "notifications": {"missed_after": 0}})
    make_watch(kept, settings=never).tick()
    make_watch(kept, settings=unasked).tick()
    assert kept.events() == []


@pytest.mark.parametrize(("parked", "cause"), [(False, "failing"), (True, "parked")])
def test_refused_items_are_reported_once_when_they_double_and_when_they_are_over(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime, *, parked: bool, cause: str
) -> None:
    watch = make_watch(kept)
    first = time()
    steps: list[tuple[int, list[tuple[str, str]]]] = [
        (1, [("began", cause)]),
        (1, []),
        (2, [("changed", cause)]),
        (3, []),
        (0, [("over", cause)]),
    ]
    for number, (items, expected) in enumerate(steps):
        kept.got.clear()
        past.failing(*[f"doc{n}" for n in range(items)], parked=parked)
        watch.tick()
        assert kept.events() == expected, number
        if number == 0:
            data = kept.got[0].content["data"]
            assert data["since"] == f"{first:%Y-%m-%dT%H:%M:%SZ}"
            assert data["count"] == 1
            assert data["summary"].endswith(", such as document doc0 of acme: too long")
        time.move_on(minutes=15)


def test_the_kind_of_a_failed_item_is_in_words(make_watch: MakeWatch, kept: Kept, past: Past, engine: Engine) -> None:
    past.failing("ada")
    with writing(engine) as connection:
        connection.execute(text("UPDATE item_failure SET kind = 'documentUser', container_id = 'plan'"))
    make_watch(kept).tick()
    summary = kept.got[0].content["data"]["summary"]
    assert summary.endswith(", such as document member ada of acme: too long")


def test_failures_of_another_backend_concern_nobody(
    make_watch: MakeWatch, kept: Kept, past: Past, engine: Engine, time: SimulatedTime
) -> None:
    past.failing("doc1")
    other = open_ledger(engine, "https://another.example", "key", time)
    past.ended(RunStatus.DONE, ledger_id=other.ledger_id)
    make_watch(kept).tick()
    assert kept.events() == []


def test_run_that_does_nothing_but_fail_is_a_failure_until_something_is_done(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    refused = {"document": {"add": {"planned": 120, "failed": 120}}}
    resting = {"document": {"add": {"planned": 120, "waiting": 120}}}
    in_part = {"document": {"add": {"planned": 120, "failed": 119, "done": 1}}}
    steps: list[tuple[dict[str, dict[str, dict[str, int]]], list[tuple[str, str]]]] = [
        (in_part, []),
        (refused, [("began", "failed")]),
        (resting, []),
        (refused, []),
        (in_part, [("over", "failed")]),
    ]
    for number, (counts, expected) in enumerate(steps):
        kept.got.clear()
        run = past.ended(RunStatus.PARTIAL, counts=counts)
        watch.tick()
        assert kept.events() == expected, number
        if number == 1:
            data = kept.got[0].content["data"]
            assert data["summary"] == "every item of the last run failed: 120 items"
            assert data["runId"] == run.run_id
        time.move_on(minutes=15)


def _beating(engine: Engine, time: SimulatedTime, name: str) -> Heartbeat:
    stop = threading.Event()
    return Heartbeat(engine=engine, worker_id=name, name=name, leads=lambda: False, clock=time, stop=stop)


def test_dead_worker_is_reported_within_minutes_and_is_over_when_another_lives(
    make_watch: MakeWatch, kept: Kept, engine: Engine, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    first, second = (_beating(engine, time, name) for name in ("node:1", "node:2"))
    first.beat()
    time.move_on(seconds=179)
    watch.tick()
    assert kept.events() == []
    time.move_on(seconds=1)
    watch.tick()
    time.move_on(seconds=19)
    watch.tick()
    assert kept.events() == []
    time.move_on(seconds=1)
    watch.tick()
    watch.tick()
    assert kept.events() == [("began", "worker")]
    data = kept.got[0].content["data"]
    assert data["summary"] == "no worker is running: the last heartbeat, of node:1, was at 2026-11-20 12:00 UTC"
    second.beat()
    watch.tick()
    assert kept.events()[1:] == [("over", "worker")]


def test_stopped_worker_is_not_dead(make_watch: MakeWatch, kept: Kept, engine: Engine, time: SimulatedTime) -> None:
    heartbeat = _beating(engine, time, "node:1")
    heartbeat.stop.set()
    heartbeat.run()
    heartbeat.beat()
    heartbeat.end()
    time.move_on(minutes=30)
    make_watch(kept).tick()
    assert kept.events() == []


def test_clock_that_jumps_forward_raises_nothing(
    make_watch: MakeWatch, kept: Kept, engine: Engine, past: Past, time: SimulatedTime
) -> None:
    """All heartbeats look old until the next one, and the schedule has not run yet."""
    monotonic = 0.0
    watch = make_watch(kept)
    watch.monotonic = lambda: monotonic
    jumps: list[int] = []

    class Stop(threading.Event):
        """Stops the heartbeat after three seconds. The clock jumps in the second one."""

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal monotonic
            monotonic += timeout or 0
            time.move_on(seconds=timeout or 0)
            if monotonic == 2:
                time.move_on(hours=2)
                watch.tick()  # before the heart beats again
            if monotonic == 3:
                self.set()
            return self.is_set()

    heartbeat = Heartbeat(
        engine=engine,
        worker_id="node:1",
        name="node:1",
        leads=lambda: False,
        clock=time,
        stop=Stop(),
        monotonic=lambda: monotonic,
        after_jump=lambda: jumps.append(1),
    )
    past.ended(RunStatus.DONE)
    heartbeat.run()
    with reading(engine) as connection:
        [worker] = workers(connection)
    assert worker.seen_at == round(time().timestamp() * 1000) - 1000, "it beat at once"
    assert jumps == [1]
    past.ended(RunStatus.DONE)  # the schedule, which was woken
    for _ in range(3):
        monotonic += 60
        time.move_on(seconds=60)
        heartbeat.beat()
        watch.tick()
    assert kept.events() == []


def test_worker_that_ends_in_peace_takes_along_whom_it_replaced(engine: Engine, time: SimulatedTime) -> None:
    _beating(engine, time, "killed").beat()
    time.move_on(minutes=4)
    other, replacing = _beating(engine, time, "other"), _beating(engine, time, "replacing")
    for one in (other, replacing):
        one.beat()
    replacing.end()
    with reading(engine) as connection:
        assert [one.name for one in workers(connection)] == ["other"]


def test_workers_that_die_repeatedly_are_reported_although_one_lives(
    make_watch: MakeWatch, kept: Kept, engine: Engine, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    living = _beating(engine, time, "node:9")
    for number in range(1, 4):
        assert kept.events() == []
        _beating(engine, time, f"node:{number}").beat()
        time.move_on(minutes=4)
        living.beat()
        watch.tick()
    time.move_on(minutes=1)
    watch.tick()
    assert kept.events() == [("began", "worker")]
    assert kept.got[0].content["data"]["summary"] == ("workers die repeatedly: 3 within an hour, the last one node:3")
    time.move_on(hours=1)
    living.beat()
    watch.tick()
    assert kept.events()[1:] == [("over", "worker")]


class Given:
    """A source with one record and a verdict."""

    def __init__(self, verdict: Verdict, reason: str = "", name: str = "people") -> None:
        self.end = End(verdict, reason)
        self.name = name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        yield Found(User(user_id="ada", name="Ada", email="ada@acme.example"), "people:1")
        yield self.end


def test_source_is_reported_by_name_when_it_fails_is_partial_and_recovers(
    make_watch: MakeWatch, kept: Kept, engine: Engine, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    events = []
    for end in (
        Given(Verdict.COMPLETE),
        Given(Verdict.FAILED, "people.jsonl:7: the file ends in the middle of a line"),
        Given(Verdict.FAILED, "people.jsonl:9: the file ends in the middle of a line"),
        Given(Verdict.PARTIAL, "3 malformed records"),
        Given(Verdict.PARTIAL, "4 malformed records"),
        Given(Verdict.COMPLETE),
    ):
        time.move_on(minutes=1)
        read_directory(engine, [end], clock=time)
        watch.tick()
        events.append(len(kept.got))
    assert events == [0, 1, 1, 2, 2, 3]
    assert kept.events() == [("began", "source"), ("changed", "source"), ("over", "source")]
    assert {message.content["data"]["about"] for message in kept.got} == {"people"}
    assert kept.got[0].content["data"]["since"] == "2026-11-20T12:01:00Z"


def test_removed_source_is_reported_until_it_is_forgotten(
    make_watch: MakeWatch, kept: Kept, engine: Engine, time: SimulatedTime
) -> None:
    watch = make_watch(kept)
    for name in ("people", "renamed"):
        time.move_on(minutes=1)
        read_directory(engine, [Given(Verdict.COMPLETE, name=name)], clock=time)
        watch.tick()
    assert kept.events() == [("began", "source")]
    data = kept.got[0].content["data"]
    assert data["about"] == "people"
    assert data["summary"] == "source people is no longer among directory.sources; 1 of its records is still in force"
    assert data["advice"].startswith("remove them with usher directory forget people")
    forget(engine, "people", [], clock=time)
    watch.tick()
    assert kept.events() == [("began", "source"), ("over", "source")]


def test_shrunk_source_is_reported_until_it_is_accepted(
    make_watch: MakeWatch, kept: Kept, engine: Engine, time: SimulatedTime
) -> None:
    source = ChangingSource("people")
    for number in range(100):
        source.put(str(number), User(user_id=str(number), name="N", email=""))
    watch = make_watch(kept)
    read_directory(engine, [source], clock=time)
    for number in range(60):
        source.remove(str(number))
        if number >= 57:
            time.move_on(minutes=1)
            read_directory(engine, [source], clock=time)
            watch.tick()
    assert kept.events() == [("began", "shrunk")]
    data = kept.got[0].content["data"]
    assert data["summary"] == (
        "source people would take away 58 of 100 user records, more than 20 and more than 20 %; "
        "additions and changes were applied, removals were not"
    )
    assert data["advice"].endswith("usher directory refresh --accept-shrink people")
    read_directory(engine, [source], ReadOptions(accept_shrink=["people"]), clock=time)
    watch.tick()
    assert kept.events() == [("began", "shrunk"), ("over", "shrunk")]


def test_message_is_tried_again_with_growing_pauses_and_then_given_up(
    make_watch: MakeWatch, past: Past, time: SimulatedTime, engine: Engine
) -> None:
    kept, broken = Kept(refuses=2), Kept("email", refuses=99)
    watch = make_watch(kept, broken, tries=3)
    past.held(30)
    watch.tick()
    tried = {}
    for second in range(0, 1200, 10):
        before = (kept.refuses, broken.refuses, len(kept.got))
        watch.tick()
        if (kept.refuses, broken.refuses, len(kept.got)) != before:
            tried[second] = before
        time.move_on(seconds=10)
    assert list(tried) == [30, 150]
    assert len(kept.got) == 1
    assert broken.refuses == 96
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT channel, next_try_at, delivered_at IS NULL, tries FROM notification"))
        assert sorted(tuple(row) for row in rows) == [("email", None, True, 3), ("webhook", None, False, 3)]


def test_several_watches_report_an_event_once(make_watch: MakeWatch, past: Past) -> None:
    channels = [Kept() for _ in range(4)]
    watches = [make_watch(channel, seed=number) for number, channel in enumerate(channels)]
    past.held(30)
    barrier = threading.Barrier(4)

    def work(watch: Watch) -> None:
        barrier.wait()
        for _ in range(3):
            watch.tick()

    threads = [threading.Thread(target=work, args=(watch,)) for watch in watches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [events for channel in channels for events in channel.events()] == [("began", "held")]


def test_message_of_a_worker_that_died_over_it_is_sent_by_another(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime
) -> None:
    class Dies(Kept):
        def send(self, message: Message) -> None:
            raise SystemExit

    past.held(30)
    with pytest.raises(SystemExit):
        make_watch(Dies()).tick()
    other = make_watch(kept)
    other.tick()
    assert kept.got == []
    time.move_on(minutes=10)
    other.tick()
    assert kept.events() == [("began", "held")]


def test_messages_for_a_channel_that_is_no_more_are_dropped(
    make_watch: MakeWatch, kept: Kept, past: Past, time: SimulatedTime, engine: Engine
) -> None:
    gone = Kept("email", refuses=1)
    past.held(30)
    make_watch(kept, gone).tick()
    time.move_on(hours=1)
    past.ended(RunStatus.DONE)
    make_watch(kept, seed=2).tick()
    with engine.connect() as connection:
        assert set(connection.execute(text("SELECT channel FROM notification")).scalars()) == {"webhook"}


def test_each_matter_is_one_line_in_the_log_at_its_level(
    make_watch: MakeWatch, past: Past, time: SimulatedTime
) -> None:
    watch = make_watch()
    with structlog.testing.capture_logs() as lines:
        past.held(30)
        watch.tick()
        watch.tick()
        time.move_on(minutes=1)
        past.ended(RunStatus.FAILED, error="postgresql://me:TOPSECRET@h/n")
        watch.tick()
        time.move_on(minutes=1)
        past.ended(RunStatus.DONE)
        watch.tick()
    events = [(line["event"], line["log_level"], line["cause"]) for line in lines]
    assert events == [
        ("attention_needed", "warning", "held"),
        ("attention_needed", "error", "failed"),
        ("attention_over", "info", "held"),
        ("attention_over", "info", "failed"),
    ]
    assert "TOPSECRET" not in json.dumps(lines, default=str)


@dataclass
class Pauses(threading.Event):
    """Records pauses instead of waiting, and stops with the last one. ``steps`` run before pauses, by number."""

    last: int
    steps: dict[int, Callable[[], object]] = field(default_factory=dict)
    asked: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.asked.append(timeout)
        self.steps.get(len(self.asked), lambda: None)()
        return len(self.asked) == self.last


def test_database_that_is_away_is_waited_for_and_is_one_line_for_each_outage(
    engine: Engine, make_watch: MakeWatch, kept: Kept, past: Past
) -> None:
    past.held(30)
    nobody_there = open_engine(f"postgresql+psycopg://usher@127.0.0.1:{free_port()}/usher")
    watch = make_watch(kept)
    watch.engine = nobody_there
    watch.stop = Pauses(
        11,
        {
            6: lambda: setattr(watch, "engine", engine),
            8: lambda: setattr(watch, "engine", nobody_there),
            10: lambda: setattr(watch, "engine", engine),
        },
    )
    with structlog.testing.capture_logs() as lines:
        watch.run()
    assert watch.stop.asked == [20, 40, 80, 120, 120, 120, 10, 10, 20, 40, 10]
    assert [line["event"] for line in lines] == [
        "watch_waits",
        "attention_needed",
        "notification_sent",
        "watch_goes_on",
        "watch_waits",
        "watch_goes_on",
    ]
    assert lines[0]["problem"].startswith("the database: ")
    assert "refused" in lines[0]["problem"]
    assert not any("exc_info" in line for line in lines)
    assert kept.events() == [("began", "held")]
    nobody_there.dispose()


def test_program_error_is_logged_with_its_traceback(engine: Engine, make_watch: MakeWatch) -> None:
    def broken(*_: object) -> Never:
        raise KeyError("oops")

    watch = make_watch()
    watch.find_concerns = broken
    watch.stop = Pauses(2)
    with structlog.testing.capture_logs() as lines:
        watch.run()
    assert [(line["event"], line["problem"], line["again_in"]) for line in lines] == [
        ("watch_failed", "KeyError", 20),
        ("watch_failed", "KeyError", 40),
    ]
    assert all(isinstance(line["exc_info"], KeyError) for line in lines)


def test_configured_webhook_gets_what_a_watch_finds(
    make_watch: MakeWatch, receiver: Receiver, past: Past, time: SimulatedTime
) -> None:
    settings = NotificationSettings.model_validate({"webhook": {"url": receiver.url, "secret": SECRET}})
    receiver.answers = [503, 204]
    watch = make_watch(*channels_from_settings(settings, clock=time))
    past.held(30)
    watch.tick()
    time.move_on(minutes=1)
    watch.tick()
    first, second = receiver.posted
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    assert SECRET.removeprefix("whsec_") not in str(receiver.posted)


def test_nothing_is_sent_where_nothing_is_configured() -> None:
    assert channels_from_settings(NotificationSettings(), clock=SimulatedTime()) == []


def test_unclear_aliases_need_attention(make_watch: MakeWatch, kept: Kept, engine: Engine, time: SimulatedTime) -> None:
    people, hr = ChangingSource("people"), ChangingSource("hr")
    people.put("acme", Organization(organization_id="acme", organization_name="Acme"))
    for user_id, alias in (("u5", "ann@x"), ("u6", "bob@x"), ("u7", "ann@x")):
        people.put(user_id, User(user_id=user_id, name="N", email="", aliases=(alias,)))
    hr.put("1", Fill(user_alias="who@x", disabled=True))
    hr.put("2", Fill(user_alias="ann@x", disabled=True))
    hr.put("3", Fill(user_alias="bob@x", disabled=True))
    hr.put("4", Membership(organization_id="acme", user_alias="ann@x"))
    watch = make_watch(kept)
    read_directory(engine, [people, hr], clock=time)
    watch.tick()
    assert sorted(kept.events()) == [("began", "ambiguous"), ("began", "disabling")]
    assert sorted(one.content["data"]["summary"] for one in kept.got) == [
        (
            "2 records of source hr refer to a user by an alias that several users have, such as: "
            "fill userAlias='ann@x' refers to the user 'ann@x' (userAlias), an alias of several: 'u5', 'u7'"
        ),
        (
            "of the records of source hr that disable a user, 1 match no user, such as 'who@x'; "
            "1 match several users and disable them all, such as 'ann@x': 'u5', 'u7'"
        ),
    ]
    hr.remove("1")
    people.put("u7", User(user_id="u7", name="N", email=""))
    time.move_on(minutes=5)
    read_directory(engine, [people, hr], clock=time)
    count_problems(engine, time)
    watch.tick()
    # All users with the alias stay disabled.
    assert sorted(kept.events()[2:]) == [("changed", "disabling"), ("over", "ambiguous")]
    hr.remove("2")
    time.move_on(minutes=5)
    read_directory(engine, [people, hr], clock=time)
    count_problems(engine, time)
    watch.tick()
    assert kept.events()[4:] == [("over", "disabling")]
