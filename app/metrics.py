"""How is Usher doing, in numbers for Prometheus?

What happens in the processes of this machine (requests, decisions, calls to the backend) is counted in files that they
share, when ``PROMETHEUS_MULTIPROC_DIR`` names a directory. What happened to runs is read from the database when someone
asks, so that every node of a deployment tells the same.

prometheus-client decides on import whether processes share their counters: import this module only after
``share_counters`` in a process that serves.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import Engine, text

from app.client.client import CallRecord
from app.database.engine import reading
from app.notify.concerns import Cause, Concern
from app.notify.watch import Look
from app.store.access_model import (
    SourceState,
    current_revision,
    oldest_good_read,
    revision_created_at,
    source_states,
)
from app.store.notifications import message_counts
from app.store.runs import RunStatus
from app.store.standing import held_runs

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The counters of this process; its instances share nothing unless ``PROMETHEUS_MULTIPROC_DIR`` is set."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "usher_http_requests", "Requests answered.", ["method", "route", "code"], registry=registry
        )
        self.request_seconds = Histogram(
            "usher_http_request_seconds", "Seconds until the answer.", ["route"], buckets=_FAST, registry=registry
        )
        self.decisions = Counter(
            "usher_decisions",
            "Permission questions by outcome: allowed, denied, error.",
            ["outcome"],
            registry=registry,
        )
        self._decided = {outcome: self.decisions.labels(outcome) for outcome in ("allowed", "denied", "error")}
        self.decision_call_seconds = Histogram(
            "usher_decision_call_seconds",
            "Seconds for one permission-provider call with all its questions.",
            buckets=_FAST,
            registry=registry,
        )
        self.backend_calls = Counter(
            "usher_backend_calls",
            "Calls to the collaboration backend by operation and outcome.",
            ["operation", "outcome"],
            registry=registry,
        )
        self.backend_call_seconds = Histogram(
            "usher_backend_call_seconds", "Seconds for one call.", ["operation"], buckets=_SLOW, registry=registry
        )

    def render(self, *collectors: Collector, shared: bool) -> tuple[bytes, str]:
        """All numbers in Prometheus' text form, and its content type; ``shared``: of all processes together."""
        registry = CollectorRegistry()
        for collector in collectors:
            registry.register(collector)
        counted = _shared_text() if shared else generate_latest(self._registry)
        return counted + generate_latest(registry), CONTENT_TYPE_LATEST

    def answered(self, decisions_allowed: int, decisions_denied: int, errors: int, seconds: float) -> None:
        """Counts a permission-provider call; the provider tells of each that was answered."""
        for outcome, number in (("allowed", decisions_allowed), ("denied", decisions_denied), ("error", errors)):
            if number:
                self._decided[outcome].inc(number)
        self.decision_call_seconds.observe(seconds)

    def call_ended(self, record: CallRecord) -> None:
        """Counts a call to the backend; the client tells of each."""
        outcome = "done" if record.succeeded else "failed"
        self.backend_calls.labels(record.operation, outcome).inc()
        self.backend_call_seconds.labels(record.operation).observe(record.seconds)


def _shared_text() -> bytes:
    """What all processes on this machine have counted."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # it has no types
    try:
        return generate_latest(registry)
    except (struct.error, ValueError, OSError) as error:
        # One process died while it made its file: that must not hide all other numbers.
        structlog.stdlib.get_logger(__name__).warning("counters_unreadable", problem=type(error).__name__)
        return b""


class RunNumbers(Collector):
    """What the database knows about runs and the access model, read at every scrape."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime], look: Look) -> None:
        self._engine = engine
        self._clock = clock
        self._look = look

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
        with reading(self._engine) as connection:
            runs = connection.execute(text("SELECT status, count(*) FROM run GROUP BY status")).all()
            success = connection.execute(
                text("SELECT max(finished_at) FROM run WHERE status = 'done' AND NOT dry_run")
            ).scalar()
            held = sum(run.deletes for run in held_runs(connection, round(self._clock().timestamp() * 1000)))
            last = connection.execute(
                text(
                    "SELECT counts, calls, started_at, finished_at FROM run"
                    " WHERE finished_at IS NOT NULL AND NOT dry_run ORDER BY finished_at DESC LIMIT 1"
                )
            ).first()
            revision, created_at = current_revision(connection), revision_created_at(connection)
            sources = source_states(connection)
            found = self._look(connection, self._clock())
            messages = message_counts(connection)
        yield from _run_families([(status, number) for status, number in runs], success, held)
        if last is not None:
            yield from _last_run_families(last.counts, last.calls, (last.started_at, last.finished_at))
        yield _gauge("usher_access_revision", "The access model's revision in force.", revision)
        if created_at is not None:
            age = max(0.0, self._clock().timestamp() - created_at / 1000)
            yield _gauge("usher_access_revision_age_seconds", "Seconds since the access model last changed.", age)
        yield from _source_families(sources)
        yield from _attention_families(found, messages)
        read_at = oldest_good_read(sources)
        if read_at is not None:
            age = max(0.0, self._clock().timestamp() - read_at / 1000)
            yield _gauge("usher_directory_age_seconds", "Seconds since the directory was last read well.", age)


def _run_families(runs: list[tuple[str, int]], success: int | None, held: int) -> Iterator[Metric]:
    numbers = dict(runs)
    by_status = GaugeMetricFamily("usher_runs", "Runs that are remembered, by status.", labels=["status"])
    for status in RunStatus:
        by_status.add_metric([status.value], numbers.get(status.value, 0))
    yield by_status
    yield _gauge(
        "usher_last_success_timestamp_seconds",
        "When a run last ended with everything done; 0: never.",
        (success or 0) / 1000,
    )
    yield _gauge("usher_held_deletes", "Deletes that wait for approval.", held)


def _last_run_families(counts: str, calls: int, times: tuple[int | None, int]) -> Iterator[Metric]:
    items = GaugeMetricFamily(
        "usher_last_run_items", "Items of the run that ended last.", labels=["kind", "action", "outcome"]
    )
    for kind, action, outcome, count in _counted(counts):
        items.add_metric([kind, action, outcome], count)
    yield items
    yield _gauge("usher_last_run_calls", "Write calls that the run that ended last has sent.", calls)
    began, ended = times
    seconds = (ended - began) / 1000 if began is not None else 0
    yield _gauge("usher_last_run_seconds", "How long the run that ended last took.", seconds)


def _source_families(sources: Sequence[SourceState]) -> Iterator[Metric]:
    records = GaugeMetricFamily("usher_directory_records", "Records of a source in force.", labels=["source"])
    good = GaugeMetricFamily(
        "usher_directory_read_timestamp_seconds", "When a source was last read well; 0: never.", labels=["source"]
    )
    well = GaugeMetricFamily(
        "usher_directory_source_up", "Whether the last read of a source was complete.", labels=["source"]
    )
    for source in sources:
        records.add_metric([source.name], source.records)
        good.add_metric([source.name], (source.last_good_at or 0) / 1000)
        well.add_metric([source.name], float(source.last_verdict == "complete"))
    yield from (records, good, well)


def _attention_families(found: Sequence[Concern], messages: Mapping[str, int]) -> Iterator[Metric]:
    needed = GaugeMetricFamily(
        "usher_attention",
        "How many matters need attention: deletes held, the last run failed, a run missed, a source not read well.",
        labels=["cause"],
    )
    for cause in Cause:
        needed.add_metric([cause.value], sum(concern.cause is cause for concern in found))
    yield needed
    told = GaugeMetricFamily(
        "usher_notifications", "Messages about such matters, by what became of them.", labels=["state"]
    )
    for state, number in messages.items():
        told.add_metric([state], number)
    yield told


def _counted(counts: str) -> Iterator[tuple[str, str, str, int]]:
    """The numbers in a run's counts: kind, action, outcome, items."""
    for kind, actions in json.loads(counts).items():
        for action, outcomes in actions.items():
            for outcome, count in outcomes.items():
                yield kind, action, outcome, count


def _gauge(name: str, help_text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, help_text)
    family.add_metric([], value)
    return family
