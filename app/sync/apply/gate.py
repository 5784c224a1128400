"""The gate, which decides whether a run may send another call."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock

from app.foundation.processes import StopFlag

MAX_UNANSWERED = 3
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
    """Closes when the run must end. Thread-safe: the first reason wins."""

    holds_lock: Callable[[], bool]
    """Whether this process still holds the lock."""
    stop: Event
    """Set when the process is asked to end."""
    why_lost: Callable[[], str] = lambda: LOCK_LOST
    """Why it lost the lock."""
    is_cancelled: Callable[[], bool] = lambda: False
    """Whether an operator cancelled the run."""
    ending: Ending | None = field(default=None, init=False)
    """Why the gate is closed. None: it is open."""
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
            elif not self.holds_lock():
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
        if calls >= MAX_UNANSWERED:
            self.end(Ending(f"the backend does not answer: {calls} calls in a row were given up; {reason}"))
