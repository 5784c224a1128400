"""Guarded sources that hang, are slow, or raise exceptions."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from app.access.records import User
from app.directory import bounded
from app.directory.bounded import BoundedSource, ParallelReads, ReadingStoppedError
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.directory.source import EVERYTHING, End, Found, Reading, ReadRequest, Remark, Step, Verdict

COMPLETE = End(Verdict.COMPLETE)


def found(number: int) -> Found:
    return Found(User(user_id=f"u{number}", name="U", email="u@acme.example"), f"people:{number}")


class GivenSource:
    """A source made of one function."""

    name = "people"

    def __init__(self, steps: Callable[[], Reading]) -> None:
        self.steps = steps
        self.reads = 0

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        self.reads += 1
        return self.steps()


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    """What a hanging source hangs on."""
    event = threading.Event()
    yield event
    event.set()


def test_bounded_source_yields_every_step_in_order() -> None:
    steps: list[Any] = [
        *map(found, range(200)),
        Remark("people:7", "odd"),
        *map(found, range(200, 300)),
        COMPLETE,
    ]
    bounded = BoundedSource(GivenSource(lambda: iter(steps)), timeout=10)
    assert bounded.name == "people"
    assert list(bounded.read()) == steps
    assert list(bounded.read()) == steps


def test_hanging_source_fails_after_its_timeout(let_go: threading.Event) -> None:
    def hangs() -> Reading:
        yield from map(found, range(100))
        let_go.wait(60)
        yield COMPLETE

    began = time.monotonic()
    *given, end = BoundedSource(GivenSource(hangs), timeout=0.2).read()
    assert time.monotonic() - began < 10
    assert end == End(Verdict.FAILED, "kept its reader waiting for 0.2 s; the read is given up")
    assert len(given) < 100


@pytest.mark.extended
@pytest.mark.slow
def test_source_that_still_hangs_is_failed_without_another_thread(let_go: threading.Event) -> None:
    def hangs_at_first() -> Reading:
        let_go.wait(60)
        yield found(1)
        yield COMPLETE

    source = GivenSource(hangs_at_first)
    bounded = BoundedSource(source, timeout=0.1)
    list(bounded.read())
    for _ in range(3):
        assert list(bounded.read()) == [End(Verdict.FAILED, "an earlier read that was given up still hangs")]
    assert source.reads == 1
    let_go.set()
    for thread in threading.enumerate():
        if thread.name == "source people":
            thread.join(10)
    assert list(bounded.read()) == [found(1), COMPLETE]


def test_slow_source_fails_after_its_timeout_in_total(let_go: threading.Event) -> None:
    def trickles() -> Reading:
        for number in range(10_000):
            if let_go.wait(0.001):
                return
            yield found(number)

    *_, end = BoundedSource(GivenSource(trickles), timeout=0.3).read()
    assert isinstance(end, End)
    assert end.verdict is Verdict.FAILED


def test_time_of_the_reader_does_not_count() -> None:
    steps: list[Any] = [*map(found, range(200)), COMPLETE]
    given = []
    for number, step in enumerate(BoundedSource(GivenSource(lambda: iter(steps)), timeout=0.5).read()):
        if number % 64 == 0:
            time.sleep(0.3)
        given.append(step)
    assert given == steps


def test_an_endless_source_fails_although_its_reader_is_slower() -> None:
    now = 0.0

    def endless() -> Iterator[Step]:
        number = 0
        while True:
            number += 1
            yield Remark(f"row {number}", "there is always one more")

    arrived = threading.Event()
    running = BoundedSource(GivenSource(endless), timeout=5, monotonic=lambda: now).begin(EVERYTHING, arrived)
    steps: list[Step] = []
    while not running.has_ended:
        # The source never keeps its reader waiting: the next steps are ready before any time passes.
        assert arrived.wait(30)
        arrived.clear()
        now += 1
        steps = running.take() or []
        assert now < 60
    assert steps == [End(Verdict.FAILED, "did not end within 50 s; the read is given up")]
    assert now >= 50


@pytest.mark.parametrize("timeout", [0, 60])
def test_a_read_stops_at_once_with_the_process(let_go: threading.Event, timeout: float) -> None:
    def hangs() -> Reading:
        yield from map(found, range(100))
        let_go.wait(60)
        yield COMPLETE

    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    with pytest.raises(ReadingStoppedError):
        list(BoundedSource(GivenSource(hangs), timeout=timeout, stop=stop).read())
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, BaseException])
def test_source_that_raises_is_failed(error: type[BaseException]) -> None:
    def breaks() -> Reading:
        yield found(1)
        raise error("password=TOPSECRET")

    *_, end = BoundedSource(GivenSource(breaks), timeout=0).read()
    assert isinstance(end, End)
    assert end.verdict is Verdict.FAILED
    assert error.__name__ in end.reason
    assert "TOPSECRET" not in end.reason


def test_steps_after_the_first_verdict_are_ignored() -> None:
    failed = End(Verdict.FAILED, "half of it")
    bounded = BoundedSource(GivenSource(lambda: iter([found(1), failed, found(2), COMPLETE])), timeout=10)
    assert list(bounded.read()) == [found(1), failed]


def test_source_without_a_verdict_is_failed() -> None:
    *_, end = BoundedSource(GivenSource(lambda: iter([found(1)])), timeout=10).read()
    assert end == End(Verdict.FAILED, "the source ended without a verdict")


def test_a_closed_read_leaves_no_thread_behind() -> None:
    reading = BoundedSource(GivenSource(lambda: map(found, range(100_000))), timeout=10).read()
    next(reading)
    reading.close()  # type: ignore[attr-defined] # a generator, as every reading
    deadline = time.monotonic() + 10
    while any(thread.name == "source people" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(thread.name == "source people" for thread in threading.enumerate())


def read_all(*sources: BoundedSource) -> list[list[Step]]:
    """The steps of each source, read in parallel."""
    given: list[list[Step]] = [[] for _ in sources]
    with ParallelReads() as side_by_side:
        for number, source in enumerate(sources):
            side_by_side.begin(number, source)
        for number, steps in side_by_side.steps():
            given[number].extend(steps)
    return given


def test_parallel_reads_keep_the_order_of_each_source() -> None:
    steps = [[*map(found, range(size)), COMPLETE] for size in (0, 1, 64, 1000)]
    assert read_all(*(BoundedSource(GivenSource(partial(iter, one)), timeout=10) for one in steps)) == steps


def test_a_hanging_source_does_not_stop_others(let_go: threading.Event) -> None:
    others_are_done = threading.Event()

    def hangs() -> Reading:
        yield from map(found, range(100))
        let_go.wait(60)
        yield COMPLETE

    def goes_on() -> Reading:
        yield from map(found, range(5_000))
        others_are_done.set()
        yield COMPLETE

    hanging = BoundedSource(GivenSource(hangs), timeout=0.5)
    first, second = read_all(hanging, BoundedSource(GivenSource(goes_on), timeout=60))
    assert others_are_done.is_set()
    assert first[-1] == End(Verdict.FAILED, "kept its reader waiting for 0.5 s; the read is given up")
    assert second == [*map(found, range(5_000)), COMPLETE]


def test_each_source_has_its_own_timeout(let_go: threading.Event) -> None:
    def waits(seconds: float) -> Callable[[], Reading]:
        def steps() -> Reading:
            let_go.wait(seconds)
            yield COMPLETE

        return steps

    short = BoundedSource(GivenSource(waits(30)), timeout=0.2)
    long = BoundedSource(GivenSource(waits(0.6)), timeout=30)
    first, second = read_all(short, long)
    assert isinstance(first[-1], End)
    assert (first[-1].verdict, second) == (Verdict.FAILED, [COMPLETE])


def test_parallel_reads_buffer_only_a_few_steps(let_go: threading.Event) -> None:
    given = [0, 0]

    def counts(number: int) -> Callable[[], Reading]:
        def steps() -> Reading:
            for one in range(100_000):
                given[number] += 1
                yield found(one)

        return steps

    with ParallelReads() as side_by_side:
        for number in range(2):
            side_by_side.begin(number, BoundedSource(GivenSource(counts(number)), timeout=10))
        for _ in side_by_side.steps():
            let_go.wait(0.3)
            break
    assert max(given) <= 4 * bounded._BATCH


def test_parallel_reads_stop_with_the_process(let_go: threading.Event) -> None:
    def hangs() -> Reading:
        let_go.wait(60)
        yield COMPLETE

    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(ReadingStoppedError):
        read_all(*(BoundedSource(GivenSource(hangs), timeout=0, stop=stop) for _ in range(3)))


def test_configured_sources_are_bounded() -> None:
    settings = DirectorySettings.model_validate({"sources": [{"type": "file", "path": "x.jsonl", "name": "people"}]})
    [source] = sources_from_settings(settings)
    assert isinstance(source, BoundedSource)
    assert source.name == "people"
