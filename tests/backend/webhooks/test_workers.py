"""The workers of one process."""

import time
from threading import Event

import pytest
from sqlalchemy import func, select

from app.backend.webhooks import queues
from app.backend.webhooks.delivery import start_workers
from app.backend.webhooks.sender import Outcome
from app.backend.webhooks.tables import WEBHOOK_QUEUE

from .conftest import DOCUMENT, Post


def test_silent_receivers_do_not_delay_others(post: Post) -> None:
    """Queues without failures go first, so that the others wait for one request at most."""
    post.enable()
    for number in range(40):
        post.endpoint(f"https://silent.example/{number}")
    other = post.world.tenant()
    other("update_advanced_webhook_config", isEnabled=True)
    other("create_advanced_webhook_endpoint", url="https://quick.example/")
    quick = Event()
    calls: list[str] = []

    def send(url: str, *_: object) -> Outcome:
        calls.append(url)
        if "quick" in url:
            quick.set()
            return Outcome(status_code=200)
        time.sleep(1)
        return Outcome("no answer in time")

    post.begin_thread("t1")
    post.work(send=lambda *_: Outcome("no answer in time"))
    post.clock.move_on(seconds=60)
    stop = start_workers(lambda: post.worker(send=send), 4)
    try:
        time.sleep(0.5)
        began = time.monotonic()
        other("add_users", **DOCUMENT, users=[{"userId": "ada"}])
        post.begin_thread("t1", other)
        assert quick.wait(10)
        assert time.monotonic() - began < 3
        assert sum("silent" in url for url in calls) >= 4
    finally:
        stop()


@pytest.mark.extended
def test_one_worker_at_a_time_polls_the_database(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    polls: list[float] = []
    monkeypatch.setattr(queues, "claim", lambda *_: polls.append(time.monotonic()))
    stop = start_workers(post.worker, 8)
    time.sleep(2.2)
    stop()
    assert 2 <= len(polls) <= 6


def test_many_receivers_of_one_key_are_served_without_delay(post: Post) -> None:
    """A worker takes the next queue at once, not after the next poll."""
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

    began = time.monotonic()
    stop = start_workers(lambda: post.worker(send=send), 4)
    try:
        assert done.wait(30)
        # Forty polls half a second apart, four at a time, would take five seconds.
        assert time.monotonic() - began < 4
    finally:
        stop()
    with post.world.engine.connect() as connection:
        waiting = select(func.count()).select_from(WEBHOOK_QUEUE).where(WEBHOOK_QUEUE.c.holder != "")
        assert connection.scalar(waiting) == 0
