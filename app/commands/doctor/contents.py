"""Checks the contents of Usher's own database: ledger, access model, runs, workers, notifications."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from app.access.revisions import current_revision
from app.access.source_states import oldest_good_read, source_states
from app.commands.bootstrap.application import concern_finder
from app.commands.doctor.finding import Findings, ok, problem, warning
from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.text import are, counted
from app.monitoring.notify.concerns import Cause, Concern
from app.monitoring.notify.outbox import message_counts
from app.settings import Settings
from app.sync.ledger.ledger import is_another_workspace
from app.sync.runs.status import last_began, waiting_runs

_QUEUED_MS = 60_000
"""Age of a queued run that is reported."""

_CONCERNS = {
    Cause.HELD: ("held deletes", warning),
    Cause.FAILED: ("runs", problem),
    Cause.MISSED: ("runs", problem),
    Cause.FAILING: ("failing items", warning),
    Cause.PARKED: ("failing items", warning),
    Cause.WORKER: ("worker", problem),
    Cause.AMBIGUOUS: ("records", warning),
    Cause.DISABLING: ("records", warning),
}
"""Causes that become findings. Those of sources are missing, because the doctor reads the sources itself."""


def check_contents(connection: Connection, settings: Settings, now: datetime) -> Findings:
    """Checks the contents in one transaction."""
    api_key = settings.backend.api_key.get_secret_value()
    if api_key and is_another_workspace(connection, settings.backend.base_url, api_key):
        yield warning(
            "ledger",
            "backend.api_key has changed since the last run: perhaps it belongs to another workspace",
            "restore the key if the change is not intended; otherwise usher plan shows what the first sync would do",
        )
    yield from _check_access_model(connection, now, settings.directory.max_age)
    yield from _check_runs(connection, concern_finder(settings)(connection, now), now)
    undelivered = message_counts(connection)["given_up"]
    if undelivered:
        message = f"{undelivered} could not be delivered and will not be retried"
        yield warning("notifications", message, "the worker's log contains the reason")


def _check_access_model(connection: Connection, now: datetime, max_age: float) -> Findings:
    revision = current_revision(connection)
    read_at = oldest_good_read(source_states(connection))
    if revision == 0 or read_at is None:
        message = "the directory was never read: every answer denies"
        yield problem("access model", message, "run usher directory refresh")
        return
    age = max(0.0, now.timestamp() - read_at / 1000)
    message = f"revision {revision}, read {in_words(age)} ago"
    if max_age and age > max_age:
        message += f"; directory.max_age allows {in_words(max_age)}"
        yield problem("access model", message, "run usher directory check")
    else:
        yield ok("access model", message)


def _check_runs(connection: Connection, concerns: Sequence[Concern], now: datetime) -> Findings:
    """Reports what needs attention, runs that no worker executes, and the last run."""
    for concern in _with_one_of_items(concerns):
        if concern.cause in _CONCERNS:
            name, severity = _CONCERNS[concern.cause]
            advice = concern.advice
            if concern.cause is Cause.FAILED:
                advice = f"fix its cause, then run usher sync; usher runs {concern.run_id} shows details"
            yield severity(name, concern.summary, advice)
    waiting, since = waiting_runs(connection)
    if since is not None and epoch_ms(now) - since > _QUEUED_MS:
        queued = f"{counted(waiting, 'run')} {are(waiting)} queued, the first since {_minute(since)}"
        yield warning("runs", f"{queued}, and none is executed", "start usher worker, or run usher sync")
    began = last_began(connection)
    if began is None:
        yield warning("runs", "there was none yet", "run usher sync, or start usher worker")
    elif not any(concern.cause in {Cause.HELD, Cause.FAILED, Cause.MISSED} for concern in concerns):
        yield ok("runs", f"the last one began at {_minute(began)}")


def _with_one_of_items(concerns: Sequence[Concern]) -> Sequence[Concern]:
    """Parked items and those that are retried are one finding."""
    of_items = {concern.cause: concern for concern in concerns if concern.cause in {Cause.PARKED, Cause.FAILING}}
    if len(of_items) < 2:
        return concerns
    parked, retrying = of_items[Cause.PARKED], of_items[Cause.FAILING]
    items = counted(parked.size + retrying.size, "item")
    one = replace(parked, summary=f"{items}: {parked.summary}; {retrying.summary}")
    return [one if concern is parked else concern for concern in concerns if concern is not retrying]


def _minute(moment: int) -> str:
    return f"{from_epoch_ms(moment):%Y-%m-%d %H:%M} UTC"


def in_words(seconds: float) -> str:
    """A duration in its largest unit, rounded down."""
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(int(seconds // size), word)
    return f"{int(seconds)} s"
