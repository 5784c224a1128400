"""The activity of processes, minute by minute: questions answered, how fast, and that they live.

A process counts in memory and adds its counts to its node's row of the minute several times in it, by one statement in
a thread of its own: no request ever waits for that. What could not be written is written the next time. Rows are kept
for ``KEPT``.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Lock
from typing import Literal

import structlog
from sqlalchemy import Connection, Engine, delete

from app import __version__
from app.access.decision.decide import Rule
from app.access.record_tables import core_table
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.errors import log_fields
from app.foundation.database.statements import run
from app.monitoring.tables import BUCKETS, NodeMinuteRow

Role = Literal["service", "worker"]

KEPT = timedelta(days=30)
"""For how long it is kept what a node did."""

LIVES_FOR = timedelta(seconds=60)
"""How old the last sign of life of a process that lives may be: two may be late or lost."""

EVERY = timedelta(seconds=20)
"""Interval of heartbeats. The last heartbeat of a minute is written when the minute is over."""

_MINUTE_MS = 60_000
_EVERY_MS = int(EVERY.total_seconds() * 1000)
_TABLE = core_table(NodeMinuteRow)
_CALLS = [f"calls_{number}" for number in range(len(BUCKETS) + 1)]
_COUNTS = ("allowed", "denied", "errors", *_CALLS)

_ADD = f"""
INSERT INTO node_minute (node, role, minute, seen_at, version, {", ".join(_COUNTS)})
VALUES (:node, :role, :minute, :seen_at, :version, {", ".join(f":{name}" for name in _COUNTS)})
ON CONFLICT (node, role, minute) DO UPDATE SET seen_at = excluded.seen_at, version = excluded.version,
{", ".join(f"{name} = node_minute.{name} + excluded.{name}" for name in _COUNTS)}
"""  # noqa: S608 - of constants

_STRETCHES = f"""
SELECT stretch, {", ".join(f"SUM({name}) AS {name}" for name in _COUNTS)} FROM (
  SELECT (minute - :shift) / :length AS stretch, {", ".join(_COUNTS)} FROM node_minute @by(ix_node_minute_minute)
  WHERE minute >= :since AND minute < :until AND role = 'service'
) minutes GROUP BY stretch
"""  # noqa: S608 - of constants

_FIRST = "SELECT MIN(minute) AS first FROM node_minute @by(ix_node_minute_minute) WHERE minute >= :since"

_NODES = """
SELECT node, role, MAX(version) AS version, MAX(seen_at) AS seen_at FROM node_minute @by(ix_node_minute_minute)
WHERE minute >= :since GROUP BY node, role ORDER BY node, role
"""


def node_name(port: int = 0) -> str:
    """By which this machine is known, with the port at which it listens."""
    return f"{socket.gethostname()}:{port}" if port else socket.gethostname()


class NodeActivity:
    """What one process has done since it last wrote. Safe to share between threads."""

    def __init__(self, *, node: str, role: Role, clock: Clock) -> None:
        self.node = node
        self.role = role
        self._clock = clock
        self._lock = Lock()
        self._counts = [0] * len(_COUNTS)

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        """Counts a permission call that was answered."""
        bucket = 3
        for bound in BUCKETS:
            if seconds <= bound:
                break
            bucket += 1
        with self._lock:
            counts = self._counts
            counts[0] += allowed
            counts[1] += sum(denied.values())
            counts[2] += errors
            counts[bucket] += 1

    def write(self, engine: Engine) -> bool:
        """Adds what was counted to the node's row of the minute in which it was; whether that went well."""
        with self._lock:
            taken, self._counts = self._counts, [0] * len(_COUNTS)
        now = self._clock()
        row = {
            "node": self.node,
            "role": self.role,
            # What was counted was so in the time since the last sign of life: half of that ago it had begun surely.
            "minute": (epoch_ms(now) - _EVERY_MS // 2) // _MINUTE_MS * _MINUTE_MS,
            "seen_at": epoch_ms(now),
            "version": __version__,
            **dict(zip(_COUNTS, taken, strict=True)),
        }
        try:
            with writing(engine) as connection:
                run(connection, _ADD, row)
        except Exception as error:  # noqa: BLE001 - log_fields tells all of it
            structlog.stdlib.get_logger(__name__).warning("activity_not_written", **log_fields(error))
            with self._lock:
                self._counts = [mine + more for mine, more in zip(self._counts, taken, strict=True)]
            return False
        return True

    def keep_writing(self, engine: Engine, stop: Event) -> None:
        """Writes at once, and then whenever a third of a minute is over, until ``stop`` is set."""
        while True:
            self.write(engine)
            left = _EVERY_MS - epoch_ms(self._clock()) % _EVERY_MS
            if stop.wait(left / 1000 + 0.5):
                return


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some minutes of all services together. ``begins``: epoch milliseconds."""

    begins: int
    minutes: int
    allowed: int = 0
    denied: int = 0
    errors: int = 0
    calls: Sequence[int] = ()

    @property
    def questions(self) -> float:
        """A minute."""
        return (self.allowed + self.denied + self.errors) / self.minutes

    @property
    def denied_questions(self) -> float:
        """Those of them that were denied, a minute."""
        return self.denied / self.minutes

    @property
    def p99(self) -> float | None:
        """The 99th percentile of the calls' duration in seconds, estimated from the buckets; None without calls."""
        rank = 0.99 * sum(self.calls)
        if not rank:
            return None
        below, before = 0.0, 0
        for bound, calls in zip((*BUCKETS, 2 * BUCKETS[-1]), self.calls, strict=True):
            if before + calls >= rank:
                return below + (bound - below) * (rank - before) / calls
            below, before = bound, before + calls
        return below


@dataclass(frozen=True, slots=True)
class NodeState:
    """The processes of a node in one role. ``seen_at``: epoch milliseconds."""

    node: str
    role: str
    version: str
    seen_at: int


def stretches(connection: Connection, *, since: int, now: int, most: int = 120) -> list[Stretch]:
    """What all services did since a moment, or since they are known, in ``most`` stretches at most and without gaps;
    the minute that is not over is left out. Moments are epoch milliseconds."""
    first = run(connection, _FIRST, {"since": since}).scalar()
    end = now // _MINUTE_MS
    if first is None or first // _MINUTE_MS >= end:
        return []
    minutes = max(1, -(-(end - first // _MINUTE_MS) // most))
    length = minutes * _MINUTE_MS
    # Whole stretches, counted back from the last minute that is over.
    shift = end * _MINUTE_MS % length
    rows = run(connection, _STRETCHES, {"since": first, "until": end * _MINUTE_MS, "length": length, "shift": shift})
    found = {int(row.stretch): row for row in rows}
    return [
        Stretch(number * length + shift, minutes)
        if (row := found.get(number)) is None
        else Stretch(
            number * length + shift,
            minutes,
            int(row.allowed),
            int(row.denied),
            int(row.errors),
            [int(getattr(row, name)) for name in _CALLS],
        )
        for number in range((first - shift) // length, (end * _MINUTE_MS - shift) // length)
    ]


def nodes(connection: Connection, *, now: int) -> list[NodeState]:
    """Nodes with a recent heartbeat."""
    alive = now - int(LIVES_FOR.total_seconds() * 1000)
    rows = run(connection, _NODES, {"since": alive - 2 * _MINUTE_MS})
    return [NodeState(**row._asdict()) for row in rows if row.seen_at >= alive]


def worker_is_running(connection: Connection, now: datetime) -> bool:
    """Whether a worker has given a sign of life lately."""
    return any(node.role == "worker" for node in nodes(connection, now=epoch_ms(now)))


def forget_activity(connection: Connection, now: int) -> int:
    """Deletes what is older than it is kept; how many rows."""
    before = now - int(KEPT.total_seconds() * 1000)
    return connection.execute(delete(_TABLE).where(_TABLE.c.minute < before)).rowcount
