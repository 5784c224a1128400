"""Adds scheduled runs to the queue, and calls the housekeeping of a worker.

Any number of workers may have a scheduler: the due time is the idempotency key of its run, so each has one run.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from threading import Event

import structlog
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from app.foundation.clock import Clock
from app.foundation.database.errors import log_fields
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import Run, RunRequest
from app.sync.runs.schedule import interval_seconds, latest_due_time, trigger_of
from app.sync.runs.settings import SyncSettings

_log = structlog.stdlib.get_logger(__name__)


def scheduler_for(
    settings: SyncSettings,
    runs: Runs,
    *,
    prune: Callable[[], object],
    count_problems: Callable[[], object],
    clock: Clock,
    random: Random,
    stop: Event,
) -> BackgroundScheduler:
    """A scheduler, not yet started, that puts runs into the queue, calls ``prune`` once a day and ``count_problems``
    once a minute.

    An empty schedule is never due. Several due times in which the machine slept cause one run.
    Raises ``ScheduleError``.
    """
    scheduler = BackgroundScheduler(
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}, timezone="UTC"
    )
    for name, schedule, verify in (
        ("schedule", settings.schedule, False),
        ("verify_schedule", settings.verify_schedule, True),
    ):
        if not schedule:
            continue
        trigger = trigger_of(schedule, settings.timezone)
        seconds = interval_seconds(schedule)
        jitter = settings.jitter if seconds is None else min(settings.jitter, seconds / 2)
        scheduler.add_job(
            scheduled_run,
            trigger,
            id=name,
            kwargs={
                "runs": runs,
                "request": RunRequest(trigger=name, verify=verify),
                "due": trigger,
                "clock": clock,
                "delay": _random_delay(random, jitter, stop),
            },
        )
    scheduler.add_job(_log_errors, IntervalTrigger(days=1), id="prune", args=("prune_failed", prune))
    scheduler.add_job(
        _log_errors, IntervalTrigger(minutes=1), id="problems", args=("problems_not_counted", count_problems)
    )
    return scheduler


def _log_errors(event: str, job: Callable[[], object]) -> None:
    try:
        job()
    except Exception as error:  # noqa: BLE001 - log_fields contains all of it
        _log.warning(event, **log_fields(error))


def _random_delay(random: Random, longest: float, stop: Event) -> Callable[[], bool]:
    """Waits at most ``longest`` seconds, so that deployments do not all start a run at the same time. The result is
    whether ``stop`` was set meanwhile."""
    return lambda: longest > 0 and stop.wait(random.uniform(0, longest))


def scheduled_run(
    *, runs: Runs, request: RunRequest, due: BaseTrigger, clock: Clock, delay: Callable[[], bool]
) -> Run | None:
    """Queues the run of the latest due time, unless another worker did. ``delay``: waits, and returns whether the
    worker is stopped. Returns None then, and if the run cannot be queued."""
    key = f"{request.trigger} {latest_due_time(due, clock()):%Y-%m-%dT%H:%M:%SZ}"
    if delay():
        return None
    try:
        run, created = runs.enqueue(replace(request, idempotency_key=key))
    except Exception as error:  # noqa: BLE001 - log_fields logs the full error
        _log.warning("schedule_missed", due=key, **log_fields(error))
        return None
    if created:
        _log.info("run_scheduled", run_id=run.run_id, due=key)
    return run
