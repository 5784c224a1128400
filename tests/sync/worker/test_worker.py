"""The loop of a worker, on both databases."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
import structlog
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from app.commands.bootstrap.worker import delete_old_rows
from app.foundation.database.engine import open_engine
from app.sync.apply.progress import Progress
from app.sync.runs.lifecycle import MAX_CONTINUATIONS, Runs
from app.sync.runs.lock import SyncLock, sync_lock
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.worker import Worker
from tests.worlds.clock import SimulatedTime

Execute = Callable[[str, SyncLock, Progress, Event], Run]


def done(runs: Runs) -> Execute:
    """An engine whose runs succeed at once."""

    def execute(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        assert lock.held()
        runs.move(run_id, RunStatus.QUEUED, RunStatus.READING, started_at=runs.clock())
        runs.move(run_id, RunStatus.READING, RunStatus.PLANNING)
        return runs.move(run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=runs.clock())

    return execute


class Killed(BaseException):
    """The process was killed."""


def be_killed(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
    raise Killed


@pytest.fixture
def worker(runs: Runs, engine: Engine, time: SimulatedTime) -> Worker:
    return Worker(runs=runs, lock=sync_lock(engine), execute=done(runs), clock=time, stop=Event(), poll=0.01)


def test_tick_executes_queued_runs_in_order(worker: Worker, runs: Runs, time: SimulatedTime) -> None:
    first, _ = runs.enqueue(RunRequest(trigger="resync"))
    time.move_on(seconds=1)
    second, _ = runs.enqueue(RunRequest(trigger="command", verify=True))
    assert worker.tick() == 2
    assert [runs.get(run.run_id).status for run in (first, second)] == [RunStatus.DONE, RunStatus.DONE]
    assert worker.tick() == 0
    assert not worker.lock.held()


def test_tick_executes_nothing_without_the_lock(worker: Worker, runs: Runs, engine: Engine) -> None:
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    other = sync_lock(engine)
    assert other.acquire()
    assert worker.tick() == 0
    assert runs.get(run.run_id).status is RunStatus.QUEUED
    other.release()
    assert worker.tick() == 1


def test_tick_ends_runs_whose_process_died(worker: Worker, runs: Runs, time: SimulatedTime) -> None:
    worker.tick()
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, worker="gone:1")
    worker.tick()
    assert runs.get(run.run_id).status is RunStatus.READING  # orphans are searched every few seconds
    time.move_on(seconds=11)
    worker.tick()
    ended = runs.get(run.run_id)
    assert ended.status is RunStatus.FAILED
    assert "gone:1" in (ended.error or "")


def test_tick_reports_why_its_own_run_lost_the_database(
    worker: Worker, runs: Runs, engine: Engine, time: SimulatedTime
) -> None:
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    execute = worker.execute

    def lose_the_database(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        runs.move(run_id, RunStatus.QUEUED, RunStatus.READING, worker="this:1")
        with engine.connect() as connection:
            connection.execute(text("SELECT 1 FROM nowhere"))
        return execute(run_id, lock, progress, stop)

    worker.execute = lose_the_database
    with pytest.raises(DBAPIError):
        worker.tick()
    worker.execute = execute
    time.move_on(seconds=11)
    assert worker.tick() == 1  # the continuation
    error = runs.get(run.run_id).error or ""
    assert error.startswith("the database: ")
    assert "nowhere" in error
    assert error.endswith("; the next run continues from there")
    assert "process" not in error


def test_tick_ends_a_run_that_cannot_start_and_executes_the_next(
    worker: Worker, runs: Runs, time: SimulatedTime
) -> None:
    broken, _ = runs.enqueue(RunRequest(trigger="resync", verify=True))
    time.move_on(seconds=1)
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    execute = worker.execute

    def fail_once(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        if run_id == broken.run_id:
            raise ValueError("a secret")
        return execute(run_id, lock, progress, stop)

    worker.execute = fail_once
    with structlog.testing.capture_logs() as logs:
        assert worker.tick() == 2
    ended = runs.get(broken.run_id)
    error = "an error of the program, ValueError; the log has the details"
    assert (ended.status, ended.error, ended.finished_at) == (RunStatus.FAILED, error, time())
    assert [(entry["run_id"], entry["exc_info"]) for entry in logs if entry["event"] == "run_broke"] == [
        (broken.run_id, True)
    ]
    assert runs.get(run.run_id).status is RunStatus.DONE


def test_tick_continues_runs_of_dead_processes_up_to_a_maximum(worker: Worker, runs: Runs, time: SimulatedTime) -> None:
    worker.tick()
    request = RunRequest(
        trigger="resync", organization_ids=("acme",), verify=True, retry=True, kinds=("document", "folder")
    )
    run, _ = runs.enqueue(request)
    worker.execute = be_killed
    for _ in range(MAX_CONTINUATIONS):
        runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, worker="gone:1")
        time.move_on(seconds=11)
        with pytest.raises(Killed):
            worker.tick()
        worker.lock.release()
        ended = runs.get(run.run_id)
        assert (ended.status, ended.interrupted) == (RunStatus.FAILED, True)
        assert ended.continued_by is not None
        run = runs.get(ended.continued_by)
        assert run.trigger == "continuation"
        assert (run.organization_ids, run.verify) == (("acme",), True)
        assert (run.retry, run.kinds) == (True, ("document", "folder"))
    # A run that kills each worker is not continued for ever.
    runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, worker="gone:9")
    time.move_on(seconds=11)
    assert worker.tick() == 0
    assert runs.next_queued() is None
    assert runs.get(run.run_id).continued_by is None


def test_tick_continues_a_run_that_lost_its_connection_at_once(worker: Worker, runs: Runs, time: SimulatedTime) -> None:
    execute = worker.execute

    def cut(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        worker.execute = execute
        runs.move(run_id, RunStatus.QUEUED, RunStatus.READING)
        values = {"interrupted": True, "error": "the connection was cut", "finished_at": time()}
        return runs.move(run_id, RunStatus.READING, RunStatus.FAILED, **values)

    worker.execute = cut
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    assert worker.tick() == 2
    follower = runs.get(run.run_id).continued_by
    assert follower is not None
    assert runs.get(follower).status is RunStatus.DONE


def test_tick_continues_runs_that_stopped_with_their_worker_without_a_maximum(
    worker: Worker, runs: Runs, time: SimulatedTime
) -> None:
    execute = worker.execute

    def stop(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        stop.set()
        runs.move(run_id, RunStatus.QUEUED, RunStatus.READING)
        values = {"interrupted": True, "error": "the process was asked to end", "finished_at": time()}
        return runs.move(run_id, RunStatus.READING, RunStatus.CANCELLED, **values)

    worker.execute = stop
    first, _ = runs.enqueue(RunRequest(trigger="resync", organization_ids=("acme",)))
    run = first
    # Ten deployments during one long sync are no crash loop.
    for _ in range(2 * MAX_CONTINUATIONS):
        worker.stop.clear()
        assert worker.tick() == 1
        follower = runs.get(run.run_id).continued_by
        assert follower is not None
        run = runs.get(follower)
        assert (run.status, run.organization_ids) == (RunStatus.QUEUED, ("acme",))
    worker.stop.clear()
    worker.execute = execute
    assert worker.tick() == 1
    assert runs.get(run.run_id).status is RunStatus.DONE


def test_tick_executes_no_further_run_after_stop(worker: Worker, runs: Runs, time: SimulatedTime) -> None:
    for verify in (False, True):
        runs.enqueue(RunRequest(trigger="resync", verify=verify))
        time.move_on(seconds=1)
    execute = worker.execute

    def stop_then_execute(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        stop.set()
        return execute(run_id, lock, progress, stop)

    worker.execute = stop_then_execute
    assert worker.tick() == 1
    assert runs.next_queued() is not None


def test_tick_survives_a_cancelled_run(worker: Worker, runs: Runs) -> None:
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    execute = worker.execute

    def too_late(run_id: str, lock: SyncLock, progress: Progress, stop: Event) -> Run:
        runs.cancel(run_id)
        return execute(run_id, lock, progress, stop)

    worker.execute = too_late
    worker.tick()
    assert runs.get(run.run_id).status is RunStatus.CANCELLED


def test_worker_waits_for_the_database_and_stops_on_request(worker: Worker, runs: Runs) -> None:
    ticks = []
    real_tick = worker.tick

    def tick() -> int:
        ticks.append(1)
        if len(ticks) == 1:
            raise OSError("unavailable")
        return real_tick()

    worker.tick = tick  # type: ignore[method-assign]
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    thread = Thread(target=worker.run)
    thread.start()
    for _ in range(500):
        if runs.get(run.run_id).status is RunStatus.DONE:
            break
        Event().wait(0.02)
    worker.stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert runs.get(run.run_id).status is RunStatus.DONE


def test_only_old_runs_are_deleted(runs: Runs, worker: Worker, time: SimulatedTime) -> None:
    runs.enqueue(RunRequest(trigger="resync"))
    worker.tick()
    time.move_on(days=20)
    runs.enqueue(RunRequest(trigger="resync", verify=True))
    worker.tick()
    time.move_on(days=15)
    delete_old_rows(runs, keep_runs=timedelta(days=30), keep_audit=timedelta(days=400))
    assert [run.verify for run in runs.recent()] == [True]


def test_unavailable_database_is_one_line_in_the_log(worker: Worker, tmp_path: Path, time: SimulatedTime) -> None:
    (tmp_path / "folder.db").mkdir()
    worker.runs = Runs(open_engine(f"sqlite:///{tmp_path}/folder.db"), time, Random(3))
    with structlog.testing.capture_logs() as lines:
        thread = Thread(target=worker.run)
        thread.start()
        for _ in range(500):
            if lines:
                break
            Event().wait(0.02)
        worker.stop.set()
        thread.join(5)
    assert lines[0]["event"] == "tick_failed"
    assert lines[0]["problem"] == "OperationalError"
    assert lines[0]["reason"].endswith("folder.db is a directory (unable to open database file)")
    assert "exc_info" not in lines[0]
