"""The lock."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from app.foundation.database.engine import is_sqlite, open_engine
from app.sync.runs.lock import sync_lock


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    opened = open_engine(database_url)
    with opened.connect():
        pass
    yield opened
    opened.dispose()


def test_lock_is_held_by_one_at_a_time(engine: Engine) -> None:
    one, other = sync_lock(engine), sync_lock(engine)
    assert not one.held()
    assert one.acquire()
    assert (one.held(), other.held()) == (True, False)
    assert not other.acquire()
    one.release()
    assert not one.held()
    assert other.acquire()
    other.release()


def test_lock_is_not_taken_twice_by_its_holder(engine: Engine) -> None:
    lock = sync_lock(engine)
    assert lock.acquire()
    assert not lock.acquire()
    lock.release()
    lock.release()
    assert not lock.held()


def test_acquire_waits_for_the_lock(engine: Engine) -> None:
    one, other = sync_lock(engine), sync_lock(engine)
    assert one.acquire()
    timer = threading.Timer(0.2, one.release)
    timer.start()
    assert other.acquire(timeout=20)
    timer.join()
    other.release()


def test_any_thread_may_ask(engine: Engine) -> None:
    lock = sync_lock(engine)
    assert lock.acquire()
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(lock.held())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 8
    lock.release()


@pytest.mark.process
def test_lock_is_freed_when_its_holder_is_killed(engine: Engine) -> None:
    url = engine.url.render_as_string(hide_password=False)
    program = (
        "import sys, time\n"
        "from app.foundation.database.engine import open_engine\n"
        "from app.sync.runs.lock import sync_lock\n"
        "lock = sync_lock(open_engine(sys.argv[1]))\n"
        "print(lock.acquire(), flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, url], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline().strip() == "True"
        lock = sync_lock(engine)
        assert not lock.acquire()
        holder.kill()
        holder.wait()
        assert lock.acquire(timeout=20)
        lock.release()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_lock_is_lost_with_its_session(engine: Engine) -> None:
    if is_sqlite(engine):
        pytest.skip("a file lock has no session")
    lock = sync_lock(engine)
    assert lock.acquire()
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            )
        )
    assert not lock.held()
    assert not lock.held()
    other = sync_lock(engine)
    assert other.acquire(timeout=5)
    other.release()
