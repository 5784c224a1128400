"""Reads sources in threads: in parallel, with timeouts, and without their exceptions.

A source may hang, for example on a network drive or a server that does not respond. So each source is read in a thread
of its own, and its reader waits for ``timeout`` seconds in total, without the time in which the source waits for its
reader. The whole read may take ten times as long. Beyond these limits the read has failed. A thread that hangs cannot
be ended, so the next read of the source fails at once while it still hangs.

An exception of a source makes its read failed, too. If the process is to stop, a read raises ``ReadingStoppedError``.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import structlog

from app.directory.source import EVERYTHING, End, Reading, ReadRequest, Source, Step, Verdict
from app.directory.source_settings import GuardSettings

log = structlog.stdlib.get_logger(__name__)

_TOTAL_FACTOR = 10
"""Maximum duration of a read, in timeouts."""

_STOP_INTERVAL = 0.25
"""Seconds between checks of the stop event."""

_CLOSED_INTERVAL = 0.5
"""Seconds between checks of a thread whether its read was closed."""

_BATCH = 64
"""Steps that a thread hands over together. Few, because a record can be long."""


class ReadingStoppedError(Exception):
    """The process is to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a source is read."""

    guard: GuardSettings | None = None
    """How much a read may remove. None: as for all sources."""
    poll: float = 0
    """Seconds between incremental reads. 0: none."""
    full_every: float = 24 * 3600
    """Seconds after which a full read is required. 0: each read is a full one."""
    only_pushed: bool = False
    """Whether the source contains pushes only, so that there is nothing to read."""
    digest: str = ""
    """A hash of the settings on which its records depend. It invalidates cursors."""


class BoundedSource:
    """A source with a guard.

    ``timeout``: seconds for which its reader waits in total. 0: no limit. Once ``stop`` is set, ``read`` raises
    ``ReadingStoppedError``.
    """

    def __init__(
        self,
        source: Source,
        *,
        timeout: float,
        stop: threading.Event | None = None,
        policy: Policy | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = source.name
        self.source = source
        self.timeout = timeout
        self.stop = stop or threading.Event()
        self.policy = policy or Policy()
        self.monotonic = monotonic
        self.abandoned: threading.Thread | None = None
        """The thread of a read that was closed before its end."""

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        with ParallelReads() as reads:
            reads.begin(0, self, request)
            for _, steps in reads.steps():
                yield from steps

    def begin(self, request: ReadRequest, available: threading.Event) -> "RunningRead":
        """Begins a read. ``available`` is set when steps are available."""
        if self.abandoned is not None:
            # A thread that does not hang ends within this time.
            self.abandoned.join(_CLOSED_INTERVAL * 2)
            if not self.abandoned.is_alive():
                self.abandoned = None
        return RunningRead(self, request, available)


class RunningRead:
    """A read of a bounded source in its thread. The caller must ``close`` it."""

    def __init__(self, bounded: BoundedSource, request: ReadRequest, available: threading.Event) -> None:
        self.has_ended = False
        """Whether ``take`` has returned the ``End``."""
        self._bounded = bounded
        self._waited = 0.0
        """Seconds for which the reader has waited."""
        self._began = self._last_taken = bounded.monotonic()
        self._closed = threading.Event()
        self._steps: queue.Queue[tuple[float, list[Step]]] = queue.Queue(maxsize=1)
        self._available = available
        self._thread: threading.Thread | None = None
        if bounded.abandoned is not None:
            available.set()
            return
        # A daemon, so that a source that hangs does not keep the process from ending.
        self._thread = threading.Thread(
            target=_produce, args=(bounded.source, request, self._put), name=f"source {bounded.name}", daemon=True
        )
        self._thread.start()

    def take(self) -> list[Step] | None:
        """The available steps. None if there are none. Raises ``ReadingStoppedError``."""
        if self._bounded.stop.is_set():
            raise ReadingStoppedError("stopped while the directory was read: the process was asked to end")
        if self._thread is None:
            return self._failed("an earlier read that was given up still hangs")
        timeout, now = self._bounded.timeout, self._bounded.monotonic()
        timed_out = f"kept its reader waiting for {timeout:g} s; the read is given up"
        try:
            produced, steps = self._steps.get_nowait()
        except queue.Empty:
            return self._failed(timed_out) if timeout and self._waited + now - self._last_taken >= timeout else None
        # The reader did not wait for steps that were produced before it took the last ones.
        self._waited += max(0.0, produced - self._last_taken)
        self._last_taken = self._bounded.monotonic()
        self.has_ended = type(steps[-1]) is End
        if timeout and not self.has_ended:
            if self._waited >= timeout:
                return self._failed(timed_out)
            if self._last_taken - self._began >= timeout * _TOTAL_FACTOR:
                return self._failed(f"did not end within {timeout * _TOTAL_FACTOR:g} s; the read is given up")
        return steps

    def close(self) -> None:
        """Ends the read, and abandons its thread if it has not ended."""
        self._closed.set()
        if not self.has_ended and self._thread is not None:
            self._bounded.abandoned = self._thread

    def _failed(self, reason: str) -> list[Step]:
        self.close()
        self.has_ended = True
        return [End(Verdict.FAILED, reason)]

    def _put(self, steps: list[Step]) -> bool:
        """Hands steps over to the reader. Returns False if the read was closed."""
        produced = self._bounded.monotonic()
        while not self._closed.is_set():
            try:
                self._steps.put((produced, steps), timeout=_CLOSED_INTERVAL)
            except queue.Full:
                continue
            self._available.set()
            return True
        return False


class ParallelReads:
    """Parallel reads of several sources, as a context manager. The order of steps is kept within each source only."""

    def __init__(self) -> None:
        self._available = threading.Event()
        self._reads: dict[int, RunningRead] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for read in self._reads.values():
            read.close()

    def begin(self, number: int, source: Source, request: ReadRequest = EVERYTHING) -> None:
        """Begins a read under a number of the caller's. A source whose read has ended may be read again."""
        bounded = source if isinstance(source, BoundedSource) else BoundedSource(source, timeout=0)
        self._reads[number] = bounded.begin(request, self._available)

    def steps(self) -> Iterator[tuple[int, list[Step]]]:
        """The steps of all reads, with their numbers, until all have ended. Raises ``ReadingStoppedError``."""
        while self._reads:
            self._available.clear()
            is_idle = True
            for number, read in list(self._reads.items()):
                steps = read.take()
                if steps is None:
                    continue
                is_idle = False
                if read.has_ended:
                    read.close()
                    del self._reads[number]
                yield number, steps
            if is_idle:
                self._available.wait(_STOP_INTERVAL)


def _produce(source: Source, request: ReadRequest, put: Callable[[list[Step]], bool]) -> None:
    """Reads the source to its first ``End``, and adds one if it has none."""
    steps: list[Step] = []
    try:
        for step in source.read(request):
            steps.append(step)
            is_end = type(step) is End
            if is_end or len(steps) >= _BATCH:
                if not put(steps) or is_end:
                    return
                steps = []
        steps.append(End(Verdict.FAILED, "the source ended without a verdict"))
    except BaseException as error:
        log.exception("source_broke", source=source.name)
        steps.append(End(Verdict.FAILED, f"an error of the program, {type(error).__name__}; the log has the details"))
    put(steps)
