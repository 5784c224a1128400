"""The scheduler of a worker, on both databases."""

from random import Random
from threading import Event

from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import Run, RunRequest
from app.sync.runs.schedule import trigger_of
from app.sync.runs.settings import SyncSettings
from app.sync.scheduler import scheduled_run, scheduler_for
from tests.worlds.clock import SimulatedTime


def test_due_time_has_one_run_even_after_it_ended(runs: Runs, time: SimulatedTime) -> None:
    def tick() -> Run:
        run = scheduled_run(
            runs=runs,
            request=RunRequest(trigger="schedule"),
            due=trigger_of("*/15 * * * *", "UTC"),
            clock=time,
            delay=lambda: False,
        )
        assert run is not None
        return run

    first = tick()
    runs.cancel(first.run_id)
    time.move_on(seconds=40)
    assert tick().run_id == first.run_id
    time.move_on(minutes=15)
    assert tick().run_id != first.run_id
    assert len(runs.recent()) == 2


def test_scheduled_run_is_dropped_if_the_worker_stops_during_its_delay(runs: Runs, time: SimulatedTime) -> None:
    trigger = trigger_of("every 1m", "UTC")
    request = RunRequest(trigger="schedule")
    assert scheduled_run(runs=runs, request=request, due=trigger, clock=time, delay=lambda: True) is None
    assert runs.recent() == []


def test_scheduler_puts_due_runs_into_the_queue(runs: Runs, time: SimulatedTime) -> None:
    scheduler = scheduler_for(
        SyncSettings(schedule="every 1s", verify_schedule="", jitter=0),
        runs,
        prune=lambda: None,
        count_problems=lambda: None,
        clock=time,
        random=Random(1),
        stop=Event(),
    )
    assert {job.id for job in scheduler.get_jobs()} == {"schedule", "prune", "problems"}
    scheduler.start()
    try:
        for _ in range(300):
            if runs.recent():
                break
            Event().wait(0.02)
    finally:
        scheduler.shutdown()
    assert [run.trigger for run in runs.recent()] == ["schedule"]
