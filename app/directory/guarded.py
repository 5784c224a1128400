"""The guard of a source, which keeps it from holding up, or bringing down, whoever reads it.

A source may hang: a file on a network drive that is gone, a server that accepts and says nothing. It is therefore read
in a thread of its own, and may keep its reader waiting for so many seconds in all. Seconds in which it waits for its
reader do not count. A source that never ends may be faster than its reader for ever, so the whole read may take ten
times as long and no longer. Then it is given up as failed. Nobody can end a thread that hangs, so a source whose
abandoned read still hangs is failed at once the next time: there is never more than one such thread per source.

Several sources are read side by side (``SideBySide``): each hands over a few steps at a time and waits until they are
taken, so that memory stays flat, and one that hangs keeps nobody from taking what the others give.

Who waits can be told to stop: the read then ends at once, with ``ReadingStoppedError``, and is no read at all. A
process that is to end would otherwise have to wait for its slowest source, or call it failed.

The same goes for a source that raises although it must not: its read is failed, and the others go on.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import structlog

from app.directory.policy import Policy
from app.directory.source import EVERYTHING, End, Found, Gone, Malformed, Reading, ReadRequest, Remark, Source, Verdict


class ReadingStoppedError(Exception):
    """The process was asked to end while a source was read."""


Step = Found | Gone | Malformed | Remark | End

_WHOLE_READ = 10
"""How many times its timeout a read may take as a whole, in which it may wait for its reader."""

_STOP_LOOK = 0.25
"""Seconds of a wait after which the stop event is looked at."""

_PUT_LOOK = 0.5
"""Seconds after which a thread whose steps nobody takes looks whether it was given up."""

_STEPS_AT_A_TIME = 64
"""Steps that are handed over together; few, because a single record may be as long as its line was."""


class GuardedSource:
    """Another source, read in a thread. It may keep its reader waiting for ``timeout`` seconds in all (0: without end),
    and the read as a whole may take ten times as long.

    Once ``stop`` is set, ``read`` raises ``ReadingStoppedError``.
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
        self.source = source
        self.timeout = timeout
        self.stop = stop or threading.Event()
        self.policy = policy or Policy()
        self.monotonic = monotonic
        self._abandoned: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self.source.name

    def abandon(self, thread: threading.Thread) -> None:
        """Leaves a thread alone that may hang; until it has ended there is no other."""
        self._abandoned = thread

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        arrived = threading.Event()
        running = self.begin(request, arrived)
        try:
            while not running.has_ended:
                arrived.clear()
                some = running.take()
                if some is None:
                    arrived.wait(_STOP_LOOK)
                else:
                    yield from some
        finally:
            running.close()

    def begin(self, request: ReadRequest, arrived: threading.Event) -> "RunningRead":
        """Begins to read; ``arrived`` is set whenever there is something to take."""
        if self._abandoned is not None:
            # One that does not hang sees within this time that nobody wants to know.
            self._abandoned.join(_PUT_LOOK * 2)
        hangs = self._abandoned is not None and self._abandoned.is_alive()
        if not hangs:
            self._abandoned = None
        return RunningRead(self, request, arrived, hangs=hangs)


class RunningRead:
    """One read of a guarded source, which goes on by itself; ``close`` it at the end."""

    def __init__(
        self, guarded: GuardedSource, request: ReadRequest, arrived: threading.Event, *, hangs: bool = False
    ) -> None:
        self.has_ended = False
        """Whether its ``End`` was taken."""
        self._guarded = guarded
        self._took = 0.0
        """Seconds that the source took for what was taken so far."""
        self._since = guarded.monotonic()
        self._began = self._since
        self._given_up = threading.Event()
        self._steps: queue.Queue[tuple[float, list[Step]]] = queue.Queue(maxsize=1)
        self._thread: threading.Thread | None = None
        if not hangs:
            # A daemon: a process does not wait for a source that hangs when it ends.
            self._thread = threading.Thread(
                target=_hand_over,
                args=(guarded.source, request, self._put),
                name=f"source {guarded.name}",
                daemon=True,
            )
        self._arrived = arrived
        if self._thread is None:
            arrived.set()
        else:
            self._thread.start()

    def take(self) -> list[Step] | None:
        """What the source has to give now, its ``End`` last of all; None while it gives nothing. Raises
        ``ReadingStoppedError``."""
        if self._guarded.stop.is_set():
            raise ReadingStoppedError("stopped while the directory was read: the process was asked to end")
        if self._thread is None:
            return self._ended("an earlier read that was given up still hangs")
        timeout = self._guarded.timeout
        try:
            moment, some = self._steps.get_nowait()
        except queue.Empty:
            if timeout and self._took + self._guarded.monotonic() - self._since >= timeout:
                return self._ended(f"kept its reader waiting for {timeout:g} s; the read is given up")
            return None
        # What was ready before it could be taken has cost its reader nothing.
        self._took += max(0.0, moment - self._since)
        self._since = self._guarded.monotonic()
        self.has_ended = type(some[-1]) is End
        if timeout and self._took >= timeout and not self.has_ended:
            return self._ended(f"kept its reader waiting for {timeout:g} s; the read is given up")
        whole = timeout * _WHOLE_READ
        if timeout and self._since - self._began >= whole and not self.has_ended:
            return self._ended(f"has not come to its end within {whole:g} s; the read is given up")
        return some

    def close(self) -> None:
        """Ends the read; one that hangs is left alone."""
        self._given_up.set()
        if not self.has_ended and self._thread is not None:
            self._guarded.abandon(self._thread)

    def _ended(self, reason: str) -> list[Step]:
        self.close()
        self.has_ended = True
        return [End(Verdict.FAILED, reason)]

    def _put(self, some: list[Step]) -> bool:
        """Whether somebody still wants to know."""
        moment = self._guarded.monotonic()
        while not self._given_up.is_set():
            try:
                self._steps.put((moment, some), timeout=_PUT_LOOK)
            except queue.Full:
                continue
            self._arrived.set()
            return True
        return False


class SideBySide:
    """Reads of several sources that go on at the same time; use it in a ``with`` statement.

    Of each source the steps come in its order; which source's come next is nobody's choice.
    """

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._running: dict[int, RunningRead] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self._running.values():
            running.close()

    def begin(self, number: int, source: Source, request: ReadRequest = EVERYTHING) -> None:
        """Begins to read a source, under a number of the caller's; again, once its last read has ended."""
        guarded = source if isinstance(source, GuardedSource) else GuardedSource(source, timeout=0)
        self._running[number] = guarded.begin(request, self._arrived)

    def steps(self) -> Iterator[tuple[int, list[Step]]]:
        """What the sources give, by their numbers, until all have ended. Raises ``ReadingStoppedError``."""
        while self._running:
            self._arrived.clear()
            nothing = True
            for number, running in list(self._running.items()):
                some = running.take()
                if some is None:
                    continue
                nothing = False
                if running.has_ended:
                    running.close()
                    del self._running[number]
                yield number, some
            if nothing:
                self._arrived.wait(_STOP_LOOK)


def _hand_over(source: Source, request: ReadRequest, put: Callable[[list[Step]], bool]) -> None:
    """Reads the source to its first ``End``; there is one in any case."""
    some: list[Step] = []
    try:
        for step in source.read(request):
            some.append(step)
            last = type(step) is End
            if last or len(some) >= _STEPS_AT_A_TIME:
                if not put(some) or last:
                    return
                some = []
        some.append(End(Verdict.FAILED, "the source ended without a verdict"))
    except Exception as error:
        log = structlog.stdlib.get_logger(__name__)
        log.exception("source_broke", source=source.name)
        some.append(End(Verdict.FAILED, f"an error of the program, {type(error).__name__}; the log has the details"))
    put(some)
