"""Retries and the rate limiter."""

import random
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.client.retry import RateLimiter, RetryPolicy, Stopped

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers())
def test_backoff_stays_within_its_bounds(number: int, seed: int) -> None:
    policy = RetryPolicy()
    full = min(30, 0.5 * 2.0 ** min(number, 16))
    assert full / 2 <= policy.backoff(number, random.Random(seed)) <= full


class Clockwork:
    """A rate limiter in simulated time."""

    def __init__(self, most: int) -> None:
        self.now = 0.0
        self.paused: list[float] = []
        self.stop = threading.Event()
        self.limiter = RateLimiter(most, monotonic=lambda: self.now, pause=self.pause, stopped=self.stop.is_set)

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.now += seconds


def test_limiter_halves_once_for_concurrent_calls() -> None:
    work = Clockwork(16)
    with work.limiter.slot() as one, work.limiter.slot() as two:
        work.now += 1
        work.limiter.throttled(one, 2)
        work.limiter.throttled(two, 2)
    assert int(work.limiter._allowed) == 8
    with work.limiter.slot() as three:
        work.limiter.throttled(three, 2)
    assert int(work.limiter._allowed) == 4


def test_limiter_never_falls_below_one_and_recovers_slowly() -> None:
    work = Clockwork(8)
    for _ in range(10):
        with work.limiter.slot() as began:
            work.limiter.throttled(began, 1)
    assert int(work.limiter._allowed) == 1
    needed = 0
    while int(work.limiter._allowed) < 8:
        work.limiter.succeeded()
        needed += 1
    assert 60 < needed < 300
    for _ in range(100):
        work.limiter.succeeded()
    assert int(work.limiter._allowed) == 8


def test_limiter_pauses_all_calls() -> None:
    work = Clockwork(2)
    with work.limiter.slot() as began:
        work.limiter.throttled(began, 30)
        work.limiter.throttled(began, 5)
    with work.limiter.slot() as began:
        assert began == 30
    assert work.paused == [30]


def test_limiter_lets_a_waiting_thread_stop() -> None:
    work = Clockwork(1)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(Stopped), work.limiter.slot():
            pass
        ended.set()

    with work.limiter.slot():
        thread = threading.Thread(target=wait)
        thread.start()
        assert not ended.wait(0.3)
        work.stop.set()
        assert ended.wait(5)
    thread.join()


def test_limiter_waits_once_even_if_the_clock_stands_still() -> None:
    paused: list[float] = []
    limiter = RateLimiter(1, monotonic=lambda: 0.0, pause=paused.append, stopped=lambda: False)
    with limiter.slot() as began:
        limiter.throttled(began, 60)
    with limiter.slot():
        pass
    assert paused == [60]
