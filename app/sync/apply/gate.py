"""The gate through which every call of a run goes, and why it closed."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock

from app.foundation.processes import StopFlag

PATIENCE = 3
"""After so many calls in a row whose outcome stayed unknown, through all of the client's own repeats, the run ends."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends before its plan does."""

    cancelled: bool
    """Someone wanted it to; otherwise it failed."""
    message: str
    interrupted: bool = False
    """It had nothing to do with the run: another try goes on from there."""


STOPPED = "stopped: the process was asked to end"
CANCELLED = Ending(cancelled=True, message="cancelled on request")
LOCK_LOST = "the lock was lost: another process may synchronize now"
BROKEN = Ending(cancelled=False, message="the run failed")
"""Keeps other threads from sending on while what went wrong is on its way to whoever can say it."""


def stopped(stop: Event, message: str = STOPPED) -> Ending:
    """The ending of a run after ``stop`` was set: cancelled by the operator, or interrupted with its process."""
    if isinstance(stop, StopFlag) and stop.cancels:
        return Ending(cancelled=True, message="cancelled with Ctrl-C")
    return Ending(cancelled=True, message=message, interrupted=True)


class Gate:
    """Whether another call may be sent. Safe to share between threads; the first reason to end stands."""

    def __init__(
        self,
        *,
        held: Callable[[], bool],
        stop: Event,
        why_lost: Callable[[], str] = lambda: LOCK_LOST,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._held = held
        self._why_lost = why_lost
        self._is_cancelled = is_cancelled
        self._stop = stop
        self._lock = Lock()
        self._ending: Ending | None = None
        self._unanswered = 0

    @property
    def ending(self) -> Ending | None:
        return self._ending

    def end(self, ending: Ending) -> None:
        """No call is sent from now on."""
        with self._lock:
            self._ending = self._ending or ending

    def is_open(self) -> bool:
        """Asked before every call."""
        if self._ending is None:
            if self._stop.is_set():
                self.end(stopped(self._stop))
            elif not self._held():
                self.end(Ending(cancelled=False, message=self._why_lost(), interrupted=True))
            elif self._is_cancelled():
                self.end(CANCELLED)
        return self._ending is None

    def answered(self) -> None:
        """The backend is there."""
        self._unanswered = 0

    def unanswered(self, reason: str) -> None:
        """A call was given up without an answer."""
        with self._lock:
            self._unanswered += 1
            over = self._unanswered >= PATIENCE
        if over:
            message = f"the backend does not answer: {self._unanswered} calls in a row were given up; {reason}"
            self.end(Ending(cancelled=False, message=message))
