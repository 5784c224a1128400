"""The gate, which decides whether a run may send another call."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock

from app.foundation.processes import StopFlag

PATIENCE = 3
"""The number of unanswered calls in a row, after all of the client's retries, that ends the run."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends early."""

    message: str
    cancelled: bool = False
    """Cancelled, or else failed."""
    interrupted: bool = False
    """Ended by its environment: another run continues it."""


STOPPED = "stopped: the process was asked to end"
CANCELLED = Ending("cancelled on request", cancelled=True)
LOCK_LOST = "the lock was lost: another process may synchronize now"
BROKEN = Ending("the run failed")
"""Stops the other threads while an exception is propagated."""


def stopped(stop: Event, message: str = STOPPED) -> Ending:
    """The ending of a run after ``stop`` was set: cancelled by the operator, or interrupted with its process."""
    if isinstance(stop, StopFlag) and stop.cancels:
        return Ending("cancelled with Ctrl-C", cancelled=True)
    return Ending(message, cancelled=True, interrupted=True)


@dataclass(kw_only=True)
class Gate:
    """Thread-safe. The first reason to end wins."""

    held: Callable[[], bool]
    stop: Event
    why_lost: Callable[[], str] = lambda: LOCK_LOST
    is_cancelled: Callable[[], bool] = lambda: False
    ending: Ending | None = field(default=None, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _unanswered: int = field(default=0, init=False)

    def end(self, ending: Ending) -> None:
        """Closes the gate."""
        with self._lock:
            self.ending = self.ending or ending

    def is_open(self) -> bool:
        """Whether another call may be sent. Checked before every call."""
        if self.ending is None:
            if self.stop.is_set():
                self.end(stopped(self.stop))
            elif not self.held():
                self.end(Ending(self.why_lost(), interrupted=True))
            elif self.is_cancelled():
                self.end(CANCELLED)
        return self.ending is None

    def answered(self) -> None:
        """Records that the backend answered."""
        with self._lock:
            self._unanswered = 0

    def unanswered(self, reason: str) -> None:
        """Records a call without an answer."""
        with self._lock:
            self._unanswered += 1
            calls = self._unanswered
        if calls >= PATIENCE:
            self.end(Ending(f"the backend does not answer: {calls} calls in a row were given up; {reason}"))
