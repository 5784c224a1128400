"""Real workers that are killed, paused or stopped, and that compete."""

import re
import signal
import time
from functools import partial
from random import Random
from typing import Any

import pytest

from app.sync.runs.run import RunStatus
from tests.conftest import POSTGRES
from tests.crashes.sessions import HOLDS_LOCK, end_sessions
from tests.faults.comparing import differences, ledger_differences
from tests.faults.layer import Fault
from tests.faults.live import LiveWorld, until
from tests.forking import Forked, command
from tests.worlds.company import Company, rename_all

needs_postgres = pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server")

TAKE_OVER = 15.0
"""Seconds within which another worker has to go on."""


def converged(world: LiveWorld) -> bool:
    run = world.ended(world.enqueue())
    assert run.status is RunStatus.DONE, run.error
    found = [*differences(world), *ledger_differences(world)]
    assert found == []
    return True


@pytest.mark.extended
def test_worker_killed_at_random_instants_loses_nothing(world: LiveWorld) -> None:
    world.serve(Company(Random(11), size=1))
    world.front.delay = 0.02
    random = Random(5)
    for _ in range(2):
        worker = world.start_worker()
        world.enqueue()
        before = len(world.front.seen)
        until(partial(world.has_seen_more_than, before))
        time.sleep(random.random())
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        rename_all(world.company)
        world.write_settings()
    world.start_worker()
    assert converged(world)


@pytest.mark.extended
def test_stopped_worker_ends_its_run(world: LiveWorld) -> None:
    world.serve(Company(Random(12), size=1))
    world.front.delay = 0.2
    worker = world.start_worker()
    run = world.enqueue()
    until(lambda: len(world.front.seen) > 2)
    worker.send_signal(signal.SIGTERM)
    # That it does not go on to its end shows in the status; the time is for a machine that is busy with other things.
    assert worker.wait(30) == 0, world.log_of(worker)
    ended = world.runs.get(run.run_id)
    assert (ended.status, ended.error) == (RunStatus.CANCELLED, "stopped: the process was asked to end")
    assert not world.ask_database("SELECT 1 FROM call WHERE settled_at IS NULL")
    assert ended.interrupted
    assert ended.continued_by is not None
    # The rest does not wait for the schedule: the next worker continues the run.
    world.front.delay = 0.0
    world.start_worker()
    follower = world.ended(world.runs.get(ended.continued_by))
    assert (follower.trigger, follower.status) == ("continuation", RunStatus.DONE)
    assert [*differences(world), *ledger_differences(world)] == []


@pytest.mark.extended
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_sync_that_a_service_manager_stops_is_continued_and_one_that_an_operator_cancels_is_not(
    world: LiveWorld, number: signal.Signals
) -> None:
    world.serve(Company(Random(12), size=1))
    world.front.delay = 0.2
    config = str(world.write_settings())
    log = world.folder / "sync.log"
    process = Forked(command, "sync", "--config", config, folder=world.folder, out=log, err=log)
    until(lambda: len(world.front.seen) > 2)
    process.send_signal(number)
    assert process.wait(30) == 128 + number, log.read_text()
    run = world.runs.recent()[-1]
    assert run.status is RunStatus.CANCELLED
    assert run.interrupted == (number is signal.SIGTERM)
    last = log.read_text().splitlines()[-1]
    if number is signal.SIGINT:
        assert run.error == "cancelled with Ctrl-C"
        assert run.continued_by is None
        assert re.fullmatch(rf"stopped: \d+ done, \d+ left to the next sync; run {run.run_id}", last)
        return
    assert run.continued_by is not None
    assert re.fullmatch(
        rf"stopped: \d+ done, \d+ left to run {run.continued_by}, which a worker or the next usher sync executes", last
    )
    # Without a worker the next sync of the same executes it.
    world.front.delay = 0.0
    again = Forked(command, "sync", "--config", config, folder=world.folder, out=log, err=log)
    assert again.wait(60) == 0, log.read_text()
    follower = world.runs.get(run.continued_by)
    assert (follower.trigger, follower.status) == ("continuation", RunStatus.DONE)
    assert world.runs.next_queued() is None
    assert [*differences(world), *ledger_differences(world)] == []


def test_stopped_worker_does_not_wait_for_a_throttled_call(world: LiveWorld) -> None:
    world.serve(Company(Random(12), size=1))
    world.front.always = Fault.THROTTLED_SECONDS
    worker = world.start_worker()
    run = world.enqueue()
    until(lambda: world.front.seen)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(15) == 0, world.log_of(worker)  # the backend asks it to retry after 30 s
    assert world.runs.get(run.run_id).status is RunStatus.CANCELLED


@pytest.mark.extended
def test_connections_that_really_break_are_survived(world: LiveWorld) -> None:
    world.serve(Company(Random(13), size=1))
    world.front.faults = [Fault.RESET_AFTER, Fault.CUT, Fault.RESET_BEFORE, Fault.BAD_GATEWAY, Fault.UNAVAILABLE]
    world.start_worker()
    # Items whose response was lost are "there already" in the next run, which sends them again.
    assert world.ended(world.enqueue()).status is RunStatus.DONE
    assert converged(world)


@needs_postgres
@pytest.mark.postgres
@pytest.mark.parametrize("workers", [2, 3])
def test_leader_killed_another_takes_over(world: LiveWorld, postgres: str, workers: int, record_property: Any) -> None:
    world.serve(Company(Random(14), size=2), database_url=postgres)
    world.front.delay = 0.05
    for _ in range(workers):
        world.start_worker()
    world.enqueue()
    until(lambda: len(world.front.seen) > 5)
    leader = next(worker for worker in world.workers if worker.pid == world.front.seen[-1].pid)
    others = {worker.pid for worker in world.workers} - {leader.pid}
    leader.send_signal(signal.SIGKILL)
    leader.wait()
    died = time.monotonic()
    taken = until(lambda: next((seen for seen in world.front.seen if seen.pid in others), None), TAKE_OVER)
    record_property("take_over_seconds", round(taken.began - died, 2))
    print(f"took over after {taken.began - died:.2f} s")
    assert taken.began - died < TAKE_OVER
    assert converged(world)
    assert world.front.overlaps() == []


@pytest.mark.extended
@needs_postgres
@pytest.mark.postgres
@pytest.mark.parametrize("throttled", [False, True])
def test_paused_worker_that_lost_its_lock_sends_no_further_call(
    world: LiveWorld, postgres: str, throttled: bool
) -> None:
    world.serve(Company(Random(15), size=1), database_url=postgres)
    if throttled:
        # The backend answers each call with 503 and Retry-After: the worker waits between its calls.
        world.front.always = Fault.UNAVAILABLE
    else:
        world.front.open.clear()
    paused = world.start_worker()
    first = world.enqueue()
    until(lambda: world.front.seen)
    paused.send_signal(signal.SIGSTOP)
    time.sleep(0.5)  # what was on its way has arrived
    assert end_sessions(postgres, HOLDS_LOCK) == 1
    before = len(world.front.of(paused.pid))
    world.front.always = None
    world.front.open.set()
    world.start_worker()
    assert converged(world)
    paused.send_signal(signal.SIGCONT)
    time.sleep(3)
    assert len(world.front.of(paused.pid)) == before
    assert world.runs.get(first.run_id).status is RunStatus.FAILED
    assert paused.poll() is None, world.log_of(paused)
    assert converged(world)
    assert world.front.overlaps() == []


@pytest.mark.extended
@needs_postgres
@pytest.mark.postgres
def test_database_sessions_ended_during_a_run(world: LiveWorld, postgres: str) -> None:
    world.serve(Company(Random(16), size=1), database_url=postgres)
    world.front.delay = 0.05
    worker = world.start_worker()
    for _ in range(3):
        run = world.enqueue()
        before = len(world.front.seen)
        until(partial(world.has_seen_more_than, before + 2))
        end_sessions(postgres, "TRUE")
        world.engine.dispose()
        ended = world.ended(run)
        assert "error of the program" not in (ended.error or ""), ended.error
        rename_all(world.company)
        world.write_settings()
    assert worker.poll() is None
    assert converged(world)
    assert "Traceback" not in world.log_of(worker)
