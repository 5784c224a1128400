"""The Prometheus metrics that are read from the database: runs, items, workers and the access model.

They are read at every scrape, so every node reports the same values, whether or not a worker is running. The number of
ledger items takes long to count. It is counted only after the ledger has changed, and at most once a minute.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from hashlib import sha256
from typing import Any

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine, Row

from app.access.pending import pending_since
from app.access.refresh.push_sequences import PushState, push_states
from app.access.revisions import latest_revision
from app.access.source_states import SourceState, oldest_good_read, source_states
from app.directory.source import Verdict
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import reading
from app.foundation.database.errors import NoTurnError, is_outage, log_fields
from app.foundation.database.statements import run
from app.monitoring.notify.concerns import Cause, Concern, DueAfter
from app.monitoring.notify.outbox import message_counts
from app.monitoring.notify.watch import FindConcerns
from app.sync.ledger.failure_lists import count_failures
from app.sync.ledger.items import ITEM_KINDS
from app.sync.ledger.ledger import LastVerify, items_by_kind, last_verify, ledger_in_use, read_ledger
from app.sync.runs.lifecycle import ended_runs
from app.sync.runs.run import ENDS, RunStatus
from app.sync.runs.status import held_runs
from app.sync.runs.tables import WorkerRow
from app.sync.runs.workers import workers

_log = structlog.stdlib.get_logger(__name__)

_RECOUNT_AFTER = 60.0
"""Seconds after which the items of a changed ledger are counted again."""


class DatabaseMetrics(Collector):
    """Reads the metrics at every scrape.

    ``dead_after``: seconds without a heartbeat after which a worker is dead. ``turn``: a turn at the database.
    Without one, a scrape does not read the database. The database counts as down after an outage only. It counts as up
    after ``NoTurnError``, and after any other error, which is logged.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        find_concerns: FindConcerns,
        *,
        due_after: DueAfter,
        dead_after: float,
        turn: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._find_concerns = find_concerns
        self._due_after = due_after
        self._dead_after = dead_after
        self._turn = turn
        self._counted_ledger_id = 0
        """The ledger whose items were counted last."""
        self._counted_revision = -1
        """Its revision then."""
        self._counted_at = 0.0
        """The time of the count, in seconds since the epoch."""
        self._items: Mapping[str, int] = {}

    def collect(self) -> Iterator[Metric]:
        families: list[Metric] = []
        is_up = True
        try:
            families = list(self._read())
        except NoTurnError:
            pass
        except Exception as error:  # noqa: BLE001 - the process's own metrics must be reported in any case
            is_up = not is_outage(error)
            if is_up:
                _log.warning("database_metrics_failed", **log_fields(error))
        yield _gauge("usher_database_up", "Whether the database answered this scrape.", is_up)
        yield from families

    def _read(self) -> Iterator[Metric]:
        now = self._clock()
        with self._turn(), reading(self._engine) as connection:
            yield from _runs(connection, now)
            due = self._due_after(now)
            due_at = 0 if due is None else due.timestamp()
            yield _gauge("usher_next_run_timestamp_seconds", "When the next scheduled run is due; 0: never.", due_at)
            yield from self._ledger(connection, now)
            yield from _directory(connection, now)
            yield from _attention(self._find_concerns(connection, now), message_counts(connection))
            yield from self._workers(workers(connection), now)

    def _ledger(self, connection: Connection, now: datetime) -> Iterator[Metric]:
        ledger_id = ledger_in_use(connection)
        failing = [] if ledger_id is None else count_failures(connection, ledger_id)
        for name, parked, help_text in (
            ("usher_items_failing", False, "Items that the backend refused and that are retried, now."),
            ("usher_items_parked", True, "Items that are not retried until they change or an operator asks, now."),
        ):
            numbers = {row.kind: row.items for row in failing if row.parked == parked}
            yield _labelled(name, help_text, "kind", {kind: numbers.get(kind, 0) for kind in ITEM_KINDS})
        if ledger_id is None:
            return
        items = self._count_items(connection, ledger_id, now.timestamp())
        yield _labelled("usher_ledger_items", "Items of Usher in the backend.", "kind", items)
        yield from _last_verify(last_verify(connection, ledger_id))

    def _count_items(self, connection: Connection, ledger_id: int, moment: float) -> Mapping[str, int]:
        revision = read_ledger(connection, ledger_id).ledger_revision
        is_due = revision != self._counted_revision and moment - self._counted_at >= _RECOUNT_AFTER
        if is_due or ledger_id != self._counted_ledger_id:
            counts = items_by_kind(connection, ledger_id)
            self._items = {kind: counts.get(kind, 0) for kind in ITEM_KINDS}
            self._counted_ledger_id, self._counted_revision, self._counted_at = ledger_id, revision, moment
        return self._items

    def _workers(self, known: Sequence[WorkerRow], now: datetime) -> Iterator[Metric]:
        alive = [worker for worker in known if now.timestamp() - worker.seen_at / 1000 < self._dead_after]
        yield _gauge("usher_workers", "Workers with a recent heartbeat.", len(alive))
        yield _gauge(
            "usher_workers_leading",
            "Workers that hold the lock of synchronization: 1 during a run, and 0 or 1 between runs.",
            sum(worker.leads for worker in alive),
        )
        yield _gauge(
            "usher_worker_seen_timestamp_seconds",
            "The last heartbeat of a worker that was not stopped properly; 0: none is known.",
            max((worker.seen_at for worker in known), default=0) / 1000,
        )


_NUMBERS_OF_RUNS = "SELECT status, count(*) AS number, min(requested_at) AS first_at FROM run GROUP BY status"
_LAST_SUCCESS = "SELECT max(finished_at) FROM run WHERE status = 'done' AND NOT dry_run"
_LAST_RUN = (
    "SELECT counts, calls, COALESCE(resumed_at, started_at) AS began_at, finished_at AS ended_at FROM run"
    " WHERE finished_at IS NOT NULL AND NOT dry_run ORDER BY finished_at DESC LIMIT 1"
)


def _runs(connection: Connection, now: datetime) -> Iterator[Metric]:
    stored = {row.status: row for row in run(connection, _NUMBERS_OF_RUNS)}
    numbers = {status.value: stored[status].number if status in stored else 0 for status in RunStatus}
    yield _labelled("usher_runs", "Stored runs, by status.", "status", numbers)
    ended = CounterMetricFamily("usher_runs_ended", "Runs that ended, by final status.", labels=["status"])
    counted = ended_runs(connection)
    for status in sorted(ENDS):
        ended.add_metric([status.value], counted.get(status.value, 0))
    yield ended
    queued_at = stored[RunStatus.QUEUED].first_at if RunStatus.QUEUED in stored else None
    age = _age(queued_at, now) or 0
    yield _gauge("usher_queue_age_seconds", "Age of the oldest queued run; 0: none is queued.", age)
    ended_at = (run(connection, _LAST_SUCCESS).scalar() or 0) / 1000
    help_text = "When a run last ended with everything done; 0: never."
    yield _gauge("usher_last_success_timestamp_seconds", help_text, ended_at)
    held = sum(held.deletes for held in held_runs(connection, epoch_ms(now)))
    yield _gauge("usher_held_deletes", "Deletes that wait for approval.", held)
    if (last := run(connection, _LAST_RUN).first()) is not None:
        yield from _last_run(last)


def source_labels(names: Sequence[str]) -> list[str]:
    """The names of sources without their folders. A hash of the whole name distinguishes equal last parts."""
    last = [name.rstrip("/").rpartition("/")[2] or name for name in names]
    return [
        short if last.count(short) == 1 else f"{short}#{sha256(name.encode()).hexdigest()[:8]}"
        for short, name in zip(last, names, strict=True)
    ]


def _directory(connection: Connection, now: datetime) -> Iterator[Metric]:
    revision, created_at = latest_revision(connection)
    yield _gauge("usher_access_revision", "The current revision of the access model.", revision)
    age = _age(created_at, now)
    if age is not None:
        yield _gauge("usher_access_revision_age_seconds", "Seconds since the access model last changed.", age)
    sources = source_states(connection)
    labels = source_labels([source.name for source in sources])
    for name, help_text, value in _SOURCE_GAUGES:
        values = [value(source) for source in sources]
        yield _labelled(name, help_text, "source", dict(zip(labels, values, strict=True)))
    yield from _pushes(push_states(connection))
    waits = _age(pending_since(connection), now) or 0
    yield _gauge("usher_changes_waiting_seconds", "How long pushed changes have waited for a run; 0: none wait.", waits)
    age = _age(oldest_good_read(sources), now)
    if age is not None:
        yield _gauge("usher_directory_age_seconds", "Seconds since the directory was last read successfully.", age)


def _pushes(states: Mapping[str, PushState]) -> Iterator[Metric]:
    pushes = CounterMetricFamily("usher_directory_pushes", "Applied pushes to a source.", labels=["source"])
    pushed_at = GaugeMetricFamily(
        "usher_directory_push_timestamp_seconds", "The last push to a source.", labels=["source"]
    )
    for label, state in zip(source_labels(list(states)), states.values(), strict=True):
        pushes.add_metric([label], state.pushes)
        pushed_at.add_metric([label], (state.pushed_at or 0) / 1000)
    yield pushes
    yield pushed_at


def _last_run(last: Row[Any]) -> Iterator[Metric]:
    items = GaugeMetricFamily(
        "usher_last_run_items",
        "Items of the last run, each counted once: by its outcome, or as planned without one.",
        labels=["kind", "action", "outcome"],
    )
    for kind, actions in json.loads(last.counts).items():
        for action, outcomes in actions.items():
            settled = sum(count for outcome, count in outcomes.items() if outcome != "planned")
            for outcome, count in outcomes.items():
                # A run counts all its items as planned.
                items.add_metric([kind, action, outcome], max(0, count - settled) if outcome == "planned" else count)
    yield items
    yield _gauge("usher_last_run_calls", "Write calls that the last run has sent.", last.calls)
    seconds = (last.ended_at - last.began_at) / 1000 if last.began_at is not None else 0
    yield _gauge("usher_last_run_seconds", "Duration of the last run.", seconds)


def _last_verify(verify: LastVerify | None) -> Iterator[Metric]:
    at = 0 if verify is None else verify.at / 1000
    yield _gauge("usher_last_verify_timestamp_seconds", "When the backend was last verified; 0: never.", at)
    if verify is not None:
        help_text = "Items that the last verify found: seen, missing, changed, adopted, undeleted, and foreign."
        yield _labelled("usher_last_verify_items", help_text, "finding", verify.findings)


# Name, help text, and value of each source.
_SOURCE_GAUGES: tuple[tuple[str, str, Callable[[SourceState], float]], ...] = (
    ("usher_directory_records", "Records of a source in force.", lambda source: source.records),
    (
        "usher_directory_malformed_records",
        "Malformed records in a source's last read.",
        lambda source: source.malformed,
    ),
    (
        "usher_directory_dangling_records",
        "Records of a source that refer to a record that does not exist.",
        lambda source: source.dangling,
    ),
    (
        "usher_directory_read_timestamp_seconds",
        "When a source was last read successfully; 0: never.",
        lambda source: (source.last_good_at or 0) / 1000,
    ),
    (
        "usher_directory_source_up",
        "Whether the last read of a source was complete.",
        lambda source: float(source.last_verdict == Verdict.COMPLETE),
    ),
    ("usher_directory_read_seconds", "Duration of the last read of a source.", lambda source: source.last_read_seconds),
    (
        "usher_directory_full_read_timestamp_seconds",
        "When everything in a source was last read completely; 0: never.",
        lambda source: (source.last_full_at or 0) / 1000,
    ),
    (
        "usher_directory_source_tells_changes",
        "Whether a source supports reads of changes.",
        lambda source: float(source.reports_changes),
    ),
    (
        "usher_directory_source_refused",
        "Whether the last read of a source was refused because it would remove too much.",
        lambda source: float(source.refusal is not None),
    ),
    (
        "usher_directory_refused_timestamp_seconds",
        "When a read of a source, or the cursor for it, was last refused; 0: never.",
        lambda source: (source.last_refused_at or 0) / 1000,
    ),
)


def _attention(concerns: Sequence[Concern], messages: Mapping[str, int]) -> Iterator[Metric]:
    numbers = {cause.value: sum(concern.cause is cause for concern in concerns) for cause in Cause}
    yield _labelled("usher_attention", "Concerns that need attention, by cause.", "cause", numbers)
    yield _labelled("usher_notifications", "Messages about concerns, by state.", "state", messages)


def _age(at: int | None, now: datetime) -> float | None:
    """Seconds since a time in epoch milliseconds."""
    return None if at is None else max(0.0, now.timestamp() - at / 1000)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value)


def _labelled(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
