"""The background thread of the self-hosted backend."""

from threading import Event, Thread

import pytest

from app.backend.http.background import Background


def test_work_runs_again_after_a_call_during_a_run() -> None:
    runs = 0
    started, may_end, ran_again = Event(), Event(), Event()

    def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            started.set()
            assert may_end.wait(5)
        else:
            ran_again.set()

    background = Background(work)
    background.wake()
    assert started.wait(5)
    background.wake()
    background.wake()
    may_end.set()
    assert ran_again.wait(5)
    assert runs == 2


def test_a_thread_that_cannot_start_does_not_block_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Event()
    background = Background(ran.set)

    def start(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", start)
        with pytest.raises(RuntimeError):
            background.wake()
    background.wake()
    assert ran.wait(5)
