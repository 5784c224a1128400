"""The guard of a source, which keeps it from holding up, or bringing down, whoever reads it.

A source may hang: a file on a network drive that is gone, a server that accepts and says nothing. It is therefore read
in a thread of its own, and whoever reads it waits for it for so many seconds, all in all; then the read is given up as
failed. Nobody can end a thread that hangs, so a source whose abandoned read still hangs is failed at once the next
time: there is never more than one such thread per source.

Who waits can be told to stop: the read then ends at once, with ``ReadingStoppedError``, and is no read at all. A
process that is to end would otherwise have to wait for its slowest source, or call it failed.

The same goes for a source that raises although it must not: its read is failed, and the others go on.
"""

import queue
import threading
import time
from collections.abc import Callable

import structlog

from app.directory.source import EVERYTHING, End, Found, Gone, Malformed, Reading, ReadRequest, Remark, Source, Verdict


class ReadingStoppedError(Exception):
    """The process was asked to end while a source was read."""


Step = Found | Gone | Malformed | Remark | End

_STOP_LOOK = 0.25
"""Seconds of a wait after which the stop event is looked at."""

_PUT_LOOK = 0.5
"""Seconds after which a thread whose steps nobody takes looks whether it was given up."""

_STEPS_AT_A_TIME = 64
"""Steps that are handed over together; few, because a single record may be as long as its line was."""


class GuardedSource:
    """Another source, read in a thread, and for ``timeout`` seconds of waiting at most (0: without end).

    Once ``stop`` is set, ``read`` raises ``ReadingStoppedError``.
    """

    def __init__(
        self,
        source: Source,
        *,
        timeout: float,
        stop: threading.Event | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._timeout = timeout
        self._stop = stop or threading.Event()
        self._monotonic = monotonic
        self._abandoned: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self._source.name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        if self._abandoned is not None:
            # One that does not hang sees within this time that nobody wants to know.
            self._abandoned.join(_PUT_LOOK * 2)
        if self._abandoned is not None and self._abandoned.is_alive():
            yield End(Verdict.FAILED, "an earlier read that was given up still hangs")
            return
        self._abandoned = None
        steps: queue.Queue[list[Step]] = queue.Queue(maxsize=1)
        given_up = threading.Event()
        # A daemon: a process does not wait for a source that hangs when it ends.
        thread = threading.Thread(
            target=_hand_over, args=(self._source, request, steps, given_up), name=f"source {self.name}", daemon=True
        )
        thread.start()
        waited, ended = 0.0, False
        try:
            while True:
                began = self._monotonic()
                some = self._next(steps, self._timeout - waited if self._timeout else None)
                if some is None:
                    yield End(Verdict.FAILED, f"kept its reader waiting for {self._timeout:g} s; the read is given up")
                    return
                waited += self._monotonic() - began
                yield from some
                if type(some[-1]) is End:
                    ended = True
                    return
        finally:
            given_up.set()
            if not ended:
                self._abandoned = thread

    def _next(self, steps: "queue.Queue[list[Step]]", patience: float | None) -> list[Step] | None:
        """What the thread has to give within ``patience`` seconds; None when it gives nothing."""
        began = self._monotonic()
        while not self._stop.is_set():
            left = _STOP_LOOK if patience is None else patience - (self._monotonic() - began)
            try:
                return steps.get(timeout=max(min(left, _STOP_LOOK), 0.001))
            except queue.Empty:
                if patience is not None and left <= _STOP_LOOK:
                    return None
        raise ReadingStoppedError("stopped while the directory was read: the process was asked to end")


def _hand_over(
    source: Source, request: ReadRequest, steps: "queue.Queue[list[Step]]", given_up: threading.Event
) -> None:
    """Reads the source to its first ``End``; there is one in any case."""
    some: list[Step] = []
    try:
        for step in source.read(request):
            some.append(step)
            last = type(step) is End
            if last or len(some) >= _STEPS_AT_A_TIME:
                if not _put(steps, some, given_up) or last:
                    return
                some = []
        some.append(End(Verdict.FAILED, "the source ended without a verdict"))
    except Exception as error:
        log = structlog.stdlib.get_logger(__name__)
        log.exception("source_broke", source=source.name)
        some.append(End(Verdict.FAILED, f"an error of the program, {type(error).__name__}; the log has the details"))
    _put(steps, some, given_up)


def _put(steps: "queue.Queue[list[Step]]", some: list[Step], given_up: threading.Event) -> bool:
    """Whether somebody still wants to know."""
    while not given_up.is_set():
        try:
            steps.put(some, timeout=_PUT_LOOK)
        except queue.Full:
            continue
        return True
    return False
