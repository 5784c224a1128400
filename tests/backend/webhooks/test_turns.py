"""Receivers that do not answer keep back the webhooks of their own API key alone."""

import time
from threading import Event

import pytest
from sqlalchemy import func, select

from app.backend.webhooks import queues
from app.backend.webhooks.delivery import join, start_workers
from app.backend.webhooks.sender import Outcome
from app.backend.webhooks.tables import WEBHOOK_QUEUE
from app.backend.webhooks.turns import Turns, Waiting

from .conftest import DOCUMENT, Post


def test_api_keys_take_turns_and_failed_ones_come_last() -> None:
    turns = Turns(4)
    waiting = [
        Waiting("a", failed=False, since=1),
        Waiting("b", failed=False, since=2),
        Waiting("c", failed=True, since=0),
    ]
    assert turns.choose(waiting) == ["a", "b", "c"]
    turns.begin("a")
    assert turns.choose(waiting) == ["b", "a", "c"]
    turns.begin("b")
    turns.begin("a")
    # It has half of the workers now.
    assert turns.choose(waiting) == ["b", "c"]
    with turns.of("a"):
        pass
    assert turns.over.is_set()
    assert turns.choose(waiting) == ["b", "a", "c"]


def test_what_is_remembered_of_turns_is_bounded() -> None:
    turns = Turns(2)
    for number in range(10_100):
        turns.begin(f"k{number}")
        with turns.of(f"k{number}"):
            pass
    assert len(turns._served) == 10_000
    assert not turns._busy


def test_one_keys_silent_receivers_do_not_hold_up_anothers(post: Post) -> None:
    """Forty of them, which would keep all workers busy for minutes."""
    post.enable()
    for number in range(40):
        post.endpoint(f"https://silent.example/{number}")
    other = post.world.tenant()
    other("update_advanced_webhook_config", isEnabled=True)
    other("create_advanced_webhook_endpoint", url="https://quick.example/")
    silent, quick = 1.0, Event()
    calls: list[str] = []

    def send(url: str, *_: object) -> Outcome:
        calls.append(url)
        if "quick" in url:
            quick.set()
            return Outcome(status_code=200)
        time.sleep(silent)
        return Outcome("no answer in time")

    stop = Event()
    post.begin_thread("t1")
    threads = start_workers(lambda: post.worker(send=send), 4, stop)
    try:
        time.sleep(0.5)
        began = time.monotonic()
        other("add_users", **DOCUMENT, users=[{"userId": "ada"}])
        post.begin_thread("t1", other)
        assert quick.wait(10)
        assert time.monotonic() - began < 3
        # And one after the other: two of four workers for the silent ones.
        assert sum("silent" in url for url in calls) <= 2 * (1 + (time.monotonic() - began + 0.5) / silent)
    finally:
        stop.set()
        join(threads)


def test_workers_without_work_look_one_at_a_time(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(queues, "claim", lambda *_: looks.append(time.monotonic()))
    stop = Event()
    threads = start_workers(post.worker, 8, stop)
    time.sleep(2.2)
    stop.set()
    join(threads)
    assert 2 <= len(looks) <= 6


def test_many_receivers_of_one_key_are_all_told_without_delay(post: Post) -> None:
    """Turns that one must wait for are over as soon as they are over, not at the next look."""
    post.enable()
    for number in range(40):
        post.endpoint(f"https://quick.example/{number}")
    post.begin_thread("t1")
    done = Event()
    calls: list[str] = []

    def send(url: str, *_: object) -> Outcome:
        calls.append(url)
        if len(calls) == 40:
            done.set()
        return Outcome(status_code=200)

    stop = Event()
    began = time.monotonic()
    threads = start_workers(lambda: post.worker(send=send), 4, stop)
    try:
        assert done.wait(30)
        # Forty looks half a second apart, two at a time, would take ten.
        assert time.monotonic() - began < 7
    finally:
        stop.set()
        join(threads)
    with post.world.engine.connect() as connection:
        waiting = select(func.count()).select_from(WEBHOOK_QUEUE).where(WEBHOOK_QUEUE.c.holder != "")
        assert connection.scalar(waiting) == 0
