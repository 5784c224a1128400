"""The activity of nodes per minute: permission requests, their latency, and heartbeats.

Each process counts in memory. A thread adds the counts to the node's row of the current minute, so that no request
waits for the database. Counts that could not be written are added the next time.
"""

import socket
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Event, Lock
from typing import Literal

import structlog
from sqlalchemy import Connection, Engine, delete

from app import __version__
from app.access.decision.decide import Rule
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.errors import log_fields
from app.foundation.database.statements import run
from app.monitoring.tables import BUCKETS, NodeMinuteRow

_log = structlog.stdlib.get_logger(__name__)

ProcessRole = Literal["service", "worker"]

RETENTION = timedelta(days=30)
"""Age at which rows are deleted."""

ALIVE_FOR = timedelta(seconds=60)
"""A node is alive for this long after a heartbeat: two heartbeats may be late or lost."""

HEARTBEAT = timedelta(seconds=20)
"""Interval of heartbeats. The last heartbeat of a minute is written when the minute is over."""

_MINUTE_MS = 60_000
_HEARTBEAT_MS = int(HEARTBEAT.total_seconds() * 1000)
_TABLE = NodeMinuteRow.__table__
_CALLS = [f"calls_{number}" for number in range(len(BUCKETS) + 1)]
"""The columns of the latency buckets."""
_COUNTS = ("allowed", "denied", "errors", *_CALLS)

_ADD = f"""
INSERT INTO node_minute (node, role, minute, seen_at, version, {", ".join(_COUNTS)})
VALUES (:node, :role, :minute, :seen_at, :version, {", ".join(f":{name}" for name in _COUNTS)})
ON CONFLICT (node, role, minute) DO UPDATE SET seen_at = excluded.seen_at, version = excluded.version,
{", ".join(f"{name} = node_minute.{name} + excluded.{name}" for name in _COUNTS)}
"""  # noqa: S608 - of constants

_INTERVALS = f"""
SELECT number, {", ".join(f"SUM({name}) AS {name}" for name in _COUNTS)} FROM (
  SELECT (minute - :shift) / :length AS number, {", ".join(_COUNTS)} FROM node_minute @by(ix_node_minute_minute)
  WHERE minute >= :since AND minute < :until AND role = 'service'
) minutes GROUP BY number
"""  # noqa: S608 - of constants

_FIRST = "SELECT MIN(minute) AS first FROM node_minute @by(ix_node_minute_minute) WHERE minute >= :since"

_NODES = """
SELECT node, role, MAX(version) AS version, MAX(seen_at) AS seen_at FROM node_minute @by(ix_node_minute_minute)
WHERE minute >= :since GROUP BY node, role ORDER BY node, role
"""


def node_name(port: int = 0) -> str:
    """The name of this node: the host, and the port at which it listens."""
    return f"{socket.gethostname()}:{port}" if port else socket.gethostname()


class NodeActivity:
    """Counts what this process does until the next write. Safe to share between threads."""

    def __init__(self, *, node: str, role: ProcessRole, clock: Clock) -> None:
        self.node = node
        self.role = role
        self._clock = clock
        self._lock = Lock()
        self._counts = dict.fromkeys(_COUNTS, 0)

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        """Counts one permission call. ``denied``: by rule; ``errors``: requests that could not be parsed."""
        bucket = _CALLS[bisect_left(BUCKETS, seconds)]
        with self._lock:
            counts = self._counts
            counts["allowed"] += allowed
            counts["denied"] += sum(denied.values())
            counts["errors"] += errors
            counts[bucket] += 1

    def write(self, engine: Engine) -> bool:
        """Adds the counts to the node's row of the minute. Returns whether that succeeded."""
        with self._lock:
            counts, self._counts = self._counts, dict.fromkeys(_COUNTS, 0)
        now = self._clock()
        row = {
            "node": self.node,
            "role": self.role,
            # The counts are from the time since the last heartbeat. Its middle decides the minute.
            "minute": (epoch_ms(now) - _HEARTBEAT_MS // 2) // _MINUTE_MS * _MINUTE_MS,
            "seen_at": epoch_ms(now),
            "version": __version__,
            **counts,
        }
        try:
            with writing(engine) as connection:
                run(connection, _ADD, row)
        except Exception as error:  # noqa: BLE001 - it is logged
            _log.warning("activity_not_written", **log_fields(error))
            with self._lock:
                self._counts = {name: count + counts[name] for name, count in self._counts.items()}
            return False
        return True

    def keep_writing(self, engine: Engine, stop: Event) -> None:
        """Writes now, and then at every heartbeat until ``stop`` is set."""
        while True:
            self.write(engine)
            remaining = _HEARTBEAT_MS - epoch_ms(self._clock()) % _HEARTBEAT_MS
            if stop.wait(remaining / 1000 + 0.5):
                return


@dataclass(frozen=True, slots=True)
class Interval:
    """The sum over all services in some consecutive minutes."""

    begins_at: int
    """Epoch milliseconds."""
    minutes: int
    allowed: int = 0
    denied: int = 0
    errors: int = 0
    calls: Sequence[int] = ()
    """The number of calls in each latency bucket."""

    @property
    def requests_per_minute(self) -> float:
        return (self.allowed + self.denied + self.errors) / self.minutes

    @property
    def denied_per_minute(self) -> float:
        return self.denied / self.minutes

    @property
    def p99(self) -> float | None:
        """The 99th percentile of the latency in seconds, estimated from the buckets. None without calls."""
        rank = 0.99 * sum(self.calls)
        if not rank:
            return None
        lower, seen = 0.0, 0
        for upper, calls in zip((*BUCKETS, 2 * BUCKETS[-1]), self.calls, strict=True):
            if seen + calls >= rank:
                return lower + (upper - lower) * (rank - seen) / calls
            lower, seen = upper, seen + calls
        return lower


@dataclass(frozen=True, slots=True)
class NodeState:
    """The processes of a node in one role."""

    node: str
    role: ProcessRole
    version: str
    seen_at: int
    """The last heartbeat, in epoch milliseconds."""


def activity_since(connection: Connection, *, since: int, now: int, limit: int = 120) -> list[Interval]:
    """The activity of all services in at most ``limit`` intervals of the same length, without gaps. They begin at
    ``since``, or at the first row after it, and end with the last full minute. Times are epoch milliseconds."""
    first = run(connection, _FIRST, {"since": since}).scalar()
    end = now // _MINUTE_MS
    if first is None or first // _MINUTE_MS >= end:
        return []
    minutes = max(1, -(-(end - first // _MINUTE_MS) // limit))
    length = minutes * _MINUTE_MS
    # Intervals are counted back from the last full minute, so that all of them are full.
    shift = end * _MINUTE_MS % length
    rows = run(connection, _INTERVALS, {"since": first, "until": end * _MINUTE_MS, "length": length, "shift": shift})
    row_of = {int(row.number): row for row in rows}
    intervals = []
    for number in range((first - shift) // length, (end * _MINUTE_MS - shift) // length):
        interval, row = Interval(number * length + shift, minutes), row_of.get(number)
        if row is not None:
            calls = [int(getattr(row, name)) for name in _CALLS]
            interval = replace(
                interval, allowed=int(row.allowed), denied=int(row.denied), errors=int(row.errors), calls=calls
            )
        intervals.append(interval)
    return intervals


def nodes(connection: Connection, *, now: int) -> list[NodeState]:
    """Nodes with a recent heartbeat."""
    alive = now - int(ALIVE_FOR.total_seconds() * 1000)
    rows = run(connection, _NODES, {"since": alive - 2 * _MINUTE_MS})
    return [NodeState(**row._asdict()) for row in rows if row.seen_at >= alive]


def worker_is_running(connection: Connection, now: datetime) -> bool:
    """Whether a worker has a recent heartbeat."""
    return any(node.role == "worker" for node in nodes(connection, now=epoch_ms(now)))


def delete_old_activity(connection: Connection, now: int) -> int:
    """Deletes rows older than ``RETENTION``. Returns their number."""
    before = now - int(RETENTION.total_seconds() * 1000)
    return connection.execute(delete(_TABLE).where(_TABLE.c.minute < before)).rowcount
