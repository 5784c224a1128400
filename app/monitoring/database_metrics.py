"""The metrics that the database knows, for Prometheus.

It is read when someone asks, so that every node of a deployment tells the same, whether or not a worker lives. What
would take long to count is counted again only when it can have changed, and once a minute at most.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine, text

from app.access.contents import SourceState, oldest_good_read, source_states
from app.access.pending import pending_since
from app.access.refresh.pushes import PushState, push_states
from app.access.revisions import current_revision, revision_created_at
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import reading
from app.foundation.database.statements import run
from app.monitoring.notify.concerns import Cause, Concern, DueAfter
from app.monitoring.notify.outbox import message_counts
from app.monitoring.notify.watch import Look
from app.sync.ledger.failures import count_failures
from app.sync.ledger.items import ITEM_KINDS
from app.sync.ledger.ledger import LastVerify, items_by_kind, last_verify, ledger_in_use, read_ledger
from app.sync.runs.lifecycle import ended_runs
from app.sync.runs.run import ENDS, RunStatus
from app.sync.runs.status import held_runs
from app.sync.runs.workers import WorkerState, workers

_COUNTED_AGAIN_AFTER = 60.0
"""Seconds between two counts of a ledger that changes."""


@dataclass(slots=True)
class _LedgerSize:
    """How many items a ledger held when they were last counted."""

    ledger_id: int = 0
    revision: int = -1
    counted_at: float = 0.0
    items: Mapping[str, int] = field(default_factory=dict)


class DatabaseNumbers(Collector):
    """What the database knows about runs, items, workers and the access model, read at every scrape.

    ``worker_after``: seconds without a sign of life after which a worker is dead.
    """

    WORKER_AFTER = 180.0
    """What holds where nobody asks whether workers live."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        look: Look,
        *,
        due_after: DueAfter = lambda _: None,
        worker_after: float = WORKER_AFTER,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._look = look
        self._due_after = due_after
        self._worker_after = worker_after
        self._size = _LedgerSize()

    def describe(self) -> list[Metric]:
        """Nothing: a registry would otherwise read the database on registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("usher_database_up", "Whether the database answered this scrape.")
        try:
            families = list(self._read())
        except Exception:  # noqa: BLE001 - a scrape must show the other numbers when the database is away
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield from families

    def _read(self) -> Iterator[Metric]:
        now = self._clock()
        with reading(self._engine) as connection:
            yield from self._of_runs(connection, now)
            yield from self._of_items(connection, now)
            yield from self._of_the_directory(connection, now)
            yield from _attention_families(self._look(connection, now), message_counts(connection))
            yield from self._of_workers(workers(connection), now)

    def _of_runs(self, connection: Connection, now: datetime) -> Iterator[Metric]:
        numbers: dict[str, int] = {}
        asked: int | None = None
        for status, number, first in run(
            connection, "SELECT status, count(*), min(requested_at) FROM run GROUP BY status"
        ):
            numbers[status] = number
            if status == RunStatus.QUEUED:
                asked = first
        yield _labelled(
            "usher_runs",
            "Runs that are remembered, by status.",
            "status",
            {status.value: numbers.get(status.value, 0) for status in RunStatus},
        )
        ended = CounterMetricFamily("usher_runs_ended", "Runs that came to an end, by how they did.", labels=["status"])
        counted = ended_runs(connection)
        for status in sorted(ENDS):
            ended.add_metric([status.value], counted.get(status.value, 0))
        yield ended
        waited = 0.0 if asked is None else max(0.0, now.timestamp() - asked / 1000)
        yield _gauge("usher_queue_age_seconds", "How long the oldest queued run has waited; 0: none waits.", waited)
        success = run(connection, "SELECT max(finished_at) FROM run WHERE status = 'done' AND NOT dry_run").scalar()
        yield _gauge(
            "usher_last_success_timestamp_seconds",
            "When a run last ended with everything done; 0: never.",
            (success or 0) / 1000,
        )
        held = sum(run.deletes for run in held_runs(connection, epoch_ms(now)))
        yield _gauge("usher_held_deletes", "Deletes that wait for approval.", held)
        last = connection.execute(
            text(
                "SELECT counts, calls, COALESCE(resumed_at, started_at) AS started_at, finished_at FROM run"
                " WHERE finished_at IS NOT NULL AND NOT dry_run ORDER BY finished_at DESC LIMIT 1"
            )
        ).first()
        if last is not None:
            yield from _last_run_families(last.counts, last.calls, (last.started_at, last.finished_at))
        due = self._due_after(now)
        yield _gauge(
            "usher_next_run_timestamp_seconds",
            "When the schedule wants the next run; 0: never.",
            0 if due is None else due.timestamp(),
        )

    def _of_items(self, connection: Connection, now: datetime) -> Iterator[Metric]:
        ledger_id = ledger_in_use(connection)
        failing = [] if ledger_id is None else count_failures(connection, ledger_id)
        for name, parked, help_text in (
            ("usher_items_failing", False, "Items that the backend refused and that are tried again, now."),
            ("usher_items_parked", True, "Items that were given up until they change or somebody says retry, now."),
        ):
            of_kind = {one.kind: one.items for one in failing if one.parked == parked}
            yield _labelled(name, help_text, "kind", {kind: of_kind.get(kind, 0) for kind in ITEM_KINDS})
        if ledger_id is None:
            return
        yield _labelled(
            "usher_ledger_items",
            "Items that the backend holds of ours.",
            "kind",
            self._ledger_size(connection, ledger_id, now),
        )
        yield from _verify_families(last_verify(connection, ledger_id))

    def _ledger_size(self, connection: Connection, ledger_id: int, now: datetime) -> Mapping[str, int]:
        revision, moment = read_ledger(connection, ledger_id).ledger_revision, now.timestamp()
        size = self._size
        is_same = size.ledger_id == ledger_id
        if not is_same or (revision != size.revision and moment - size.counted_at >= _COUNTED_AGAIN_AFTER):
            found = items_by_kind(connection, ledger_id)
            size = _LedgerSize(ledger_id, revision, moment, {kind: found.get(kind, 0) for kind in ITEM_KINDS})
            self._size = size
        return size.items

    def _of_the_directory(self, connection: Connection, now: datetime) -> Iterator[Metric]:
        yield _gauge("usher_access_revision", "The access model's revision in force.", current_revision(connection))
        created_at = revision_created_at(connection)
        if created_at is not None:
            age = max(0.0, now.timestamp() - created_at / 1000)
            yield _gauge("usher_access_revision_age_seconds", "Seconds since the access model last changed.", age)
        sources = source_states(connection)
        yield from _source_families(sources)
        yield from _push_families(push_states(connection))
        touched = pending_since(connection)
        waited = 0.0 if touched is None else max(0.0, now.timestamp() - touched / 1000)
        yield _gauge(
            "usher_changes_waiting_seconds", "How long what was pushed has waited for a run; 0: nothing waits.", waited
        )
        read_at = oldest_good_read(sources)
        if read_at is not None:
            age = max(0.0, now.timestamp() - read_at / 1000)
            yield _gauge("usher_directory_age_seconds", "Seconds since the directory was last read well.", age)

    def _of_workers(self, known: Sequence[WorkerState], now: datetime) -> Iterator[Metric]:
        alive = [one for one in known if now.timestamp() - one.seen_at / 1000 < self._worker_after]
        yield _gauge("usher_workers", "Workers that give signs of life.", len(alive))
        yield _gauge(
            "usher_workers_leading",
            "Workers that hold the right to synchronize: 1 during a run, and 0 or 1 between runs.",
            sum(one.leads for one in alive),
        )
        yield _gauge(
            "usher_worker_seen_timestamp_seconds",
            "When a worker that did not say goodbye last gave a sign of life; 0: none is known.",
            max((one.seen_at for one in known), default=0) / 1000,
        )


def _last_run_families(counts: str, calls: int, times: tuple[int | None, int]) -> Iterator[Metric]:
    items = GaugeMetricFamily(
        "usher_last_run_items",
        "Items of the run that ended last, each counted once: as planned where nothing became of it.",
        labels=["kind", "action", "outcome"],
    )
    for kind, action, outcome, count in _counted(counts):
        items.add_metric([kind, action, outcome], count)
    yield items
    yield _gauge("usher_last_run_calls", "Write calls that the run that ended last has sent.", calls)
    began, ended = times
    seconds = (ended - began) / 1000 if began is not None else 0
    yield _gauge("usher_last_run_seconds", "How long the run that ended last took.", seconds)


def _verify_families(found: LastVerify | None) -> Iterator[Metric]:
    yield _gauge(
        "usher_last_verify_timestamp_seconds",
        "When the backend was last read back; 0: never.",
        0 if found is None else found.at / 1000,
    )
    if found is not None:
        yield _labelled(
            "usher_last_verify_items",
            "What the last look at the backend found: items seen, missing, changed, adopted, undeleted, and foreign.",
            "finding",
            found.findings,
        )


def _source_families(sources: Sequence[SourceState]) -> Iterator[Metric]:
    labels = source_labels([source.name for source in sources])
    for name, help_text, value in _OF_SOURCE:
        values = [value(source) for source in sources]
        yield _labelled(name, help_text, "source", dict(zip(labels, values, strict=True)))


def _push_families(states: Mapping[str, PushState]) -> Iterator[Metric]:
    labels = source_labels(list(states))
    pushed = CounterMetricFamily("usher_directory_pushes", "Pushes to a source that were applied.", labels=["source"])
    at = GaugeMetricFamily(
        "usher_directory_push_timestamp_seconds", "When something was last pushed to a source.", labels=["source"]
    )
    for label, state in zip(labels, states.values(), strict=True):
        pushed.add_metric([label], state.pushes)
        at.add_metric([label], (state.pushed_at or 0) / 1000)
    yield pushed
    yield at


def source_labels(names: Sequence[str]) -> list[str]:
    """The sources' names without the folders in them: whoever reads metrics need not know where things lie."""
    last = [name.rstrip("/").rpartition("/")[2] or name for name in names]
    # Two of one name are told apart by what stays the same from one reading to the next.
    return [
        short if last.count(short) == 1 else f"{short}#{sha256(name.encode()).hexdigest()[:8]}"
        for short, name in zip(last, names, strict=True)
    ]


_OF_SOURCE: tuple[tuple[str, str, Callable[[SourceState], float]], ...] = (
    ("usher_directory_records", "Records of a source in force.", lambda one: one.records),
    (
        "usher_directory_malformed_records",
        "Records of a source's last read that could not be understood.",
        lambda one: one.malformed,
    ),
    (
        "usher_directory_dangling_records",
        "Records of a source that refer to something that is nowhere in the directory.",
        lambda one: one.dangling,
    ),
    (
        "usher_directory_read_timestamp_seconds",
        "When a source was last read well; 0: never.",
        lambda one: (one.last_good_at or 0) / 1000,
    ),
    (
        "usher_directory_source_up",
        "Whether the last read of a source was complete.",
        lambda one: float(one.last_verdict == "complete"),
    ),
    (
        "usher_directory_read_seconds",
        "How long the last read of a source took.",
        lambda one: one.last_read_seconds,
    ),
    (
        "usher_directory_full_read_timestamp_seconds",
        "When a source was last read completely as a whole; 0: never.",
        lambda one: (one.last_full_at or 0) / 1000,
    ),
    (
        "usher_directory_source_tells_changes",
        "Whether a source can be asked for what changed.",
        lambda one: float(one.tells_changes),
    ),
    (
        "usher_directory_source_refused",
        "Whether the last read of a source was refused because it would take away too much.",
        lambda one: float(bool(one.refused)),
    ),
    (
        "usher_directory_refused_timestamp_seconds",
        "When what a source gave, or the cursor it was asked with, was last refused; 0: never.",
        lambda one: (one.last_refused_at or 0) / 1000,
    ),
)


def _attention_families(found: Sequence[Concern], messages: Mapping[str, int]) -> Iterator[Metric]:
    yield _labelled(
        "usher_attention",
        "How many matters need attention, by their cause.",
        "cause",
        {cause.value: sum(concern.cause is cause for concern in found) for cause in Cause},
    )
    yield _labelled("usher_notifications", "Messages about such matters, by what became of them.", "state", messages)


def _counted(counts: str) -> Iterator[tuple[str, str, str, int]]:
    """The numbers in a run's counts: kind, action, outcome, items; each item once."""
    for kind, actions in json.loads(counts).items():
        for action, outcomes in actions.items():
            became = sum(count for outcome, count in outcomes.items() if outcome != "planned")
            for outcome, count in outcomes.items():
                # A run counts as planned all that was, whatever became of it.
                yield kind, action, outcome, max(0, count - became) if outcome == "planned" else count


def _gauge(name: str, help_text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, help_text)
    family.add_metric([], value)
    return family


def _labelled(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
