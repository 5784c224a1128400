"""The Prometheus metrics that processes count: requests, decisions, and calls to the backend.

Metrics that are read from the database are in ``app.monitoring.database_metrics``. A process that serves requests calls
``share_counters`` before it imports this module.
"""

import platform
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app import __version__
from app.access.decision.decide import Rule
from app.access.index.index import AccessIndex
from app.monitoring.tables import BUCKETS

_log = structlog.stdlib.get_logger(__name__)

# The service, which calls no backend, does not load the client.
if TYPE_CHECKING:
    from app.client.records import CallRecord

_SLOW_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds, for calls to the backend and for new revisions."""


class Metrics:
    """The counters of this process."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "usher_http_requests", "Requests answered.", ["method", "route", "code"], registry=registry
        )
        self.request_seconds = Histogram(
            "usher_http_request_seconds", "Seconds until the response.", ["route"], buckets=BUCKETS, registry=registry
        )
        self.decisions = Counter(
            "usher_decisions", "Permission requests by outcome: allowed, denied, error.", ["outcome"], registry=registry
        )
        self._decided = {outcome: self.decisions.labels(outcome) for outcome in ("allowed", "denied", "error")}
        self.denials = Counter(
            "usher_denials", "Denied permission requests, by the rule that denied them.", ["reason"], registry=registry
        )
        self._denied = {rule: self.denials.labels(rule.value) for rule in Rule if rule.denies}
        self.decision_call_seconds = Histogram(
            "usher_decision_call_seconds",
            "Seconds for one permission-provider call with all its requests.",
            buckets=BUCKETS,
            registry=registry,
        )
        self.index_delay_seconds = Histogram(
            "usher_index_delay_seconds",
            "Seconds from the creation of a revision until this node answers by it.",
            buckets=_SLOW_BUCKETS,
            registry=registry,
        )
        self.backend_calls = Counter(
            "usher_backend_calls",
            "Calls to the collaboration backend by operation and outcome.",
            ["operation", "outcome"],
            registry=registry,
        )
        self.backend_call_seconds = Histogram(
            "usher_backend_call_seconds",
            "Seconds for one call.",
            ["operation"],
            buckets=_SLOW_BUCKETS,
            registry=registry,
        )

    def counter_of(self, method: str, route: str) -> Callable[[float], None]:
        """A function that counts a successful request with the seconds that it took."""
        requests = self.requests.labels(method, route, "200")
        seconds_of_route = self.request_seconds.labels(route)

        def count(seconds: float) -> None:
            requests.inc()
            seconds_of_route.observe(seconds)

        return count

    def render(self, *collectors: Collector, shared: bool, accept: str = "") -> tuple[bytes, str]:
        """The body and content type for an ``Accept`` header. ``shared``: with the counters of all processes."""
        registry = CollectorRegistry()
        registry.register(_Build())
        registry.register(_SharedCounters() if shared else self._registry)
        for collector in collectors:
            registry.register(collector)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        """Counts one permission call. ``denied``: by rule; ``errors``: requests that could not be parsed."""
        for outcome, number in (("allowed", allowed), ("denied", sum(denied.values())), ("error", errors)):
            if number:
                self._decided[outcome].inc(number)
        for rule, number in denied.items():
            self._denied[rule].inc(number)
        self.decision_call_seconds.observe(seconds)

    def call_ended(self, record: "CallRecord") -> None:
        outcome = "done" if record.succeeded else "failed"
        self.backend_calls.labels(record.operation, outcome).inc()
        self.backend_call_seconds.labels(record.operation).observe(record.seconds)


class _Build(Collector):
    """The version of this process."""

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily(
            "usher_build", "The running version.", {"version": __version__, "python": platform.python_version()}
        )


class IndexMetrics(Collector):
    """The state of the node's index."""

    def __init__(self, index: AccessIndex) -> None:
        self._index = index

    def collect(self) -> Iterator[Metric]:
        state = self._index.state
        yield GaugeMetricFamily("usher_index_revision", "The revision of the index; 0: there is none.", state.revision)
        yield GaugeMetricFamily(
            "usher_index_used", "Whether permission calls are answered from the index.", int(state.is_used)
        )
        if state.staleness is not None:
            yield GaugeMetricFamily(
                "usher_index_staleness_seconds",
                "Seconds since the index had the database's current revision.",
                state.staleness,
            )


class _SharedCounters(Collector):
    """The counters of all processes that share them."""

    def __init__(self) -> None:
        self._files = MultiProcessCollector(CollectorRegistry())  # type: ignore[no-untyped-call] # it has no types

    def collect(self) -> Iterator[Metric]:
        try:
            yield from list(self._files.collect())  # type: ignore[no-untyped-call] # as above
        except (struct.error, ValueError, OSError) as error:
            # A process that died while it created its file must not hide all other metrics.
            _log.warning("counters_unreadable", problem=type(error).__name__)
