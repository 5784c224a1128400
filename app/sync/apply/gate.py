"""The gate, which decides whether a run may send another call."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock

from app.foundation.processes import StopFlag

PATIENCE = 3
"""The number of unanswered calls in a row, after all of the client's retries, that ends the run."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends early."""

    cancelled: bool
    """Cancelled, or else failed."""
    message: str
    interrupted: bool = False
    """Ended by its environment: another run continues it."""


STOPPED = "stopped: the process was asked to end"
CANCELLED = Ending(cancelled=True, message="cancelled on request")
LOCK_LOST = "the lock was lost: another process may synchronize now"
BROKEN = Ending(cancelled=False, message="the run failed")
"""Stops the other threads while an exception is propagated."""


def stopped(stop: Event, message: str = STOPPED) -> Ending:
    """The ending of a run after ``stop`` was set: cancelled by the operator, or interrupted with its process."""
    if isinstance(stop, StopFlag) and stop.cancels:
        return Ending(cancelled=True, message="cancelled with Ctrl-C")
    return Ending(cancelled=True, message=message, interrupted=True)


class Gate:
    """Thread-safe. The first reason to end wins."""

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
        """Closes the gate."""
        with self._lock:
            self._ending = self._ending or ending

    def is_open(self) -> bool:
        """Whether another call may be sent. Checked before every call."""
        if self._ending is None:
            if self._stop.is_set():
                self.end(stopped(self._stop))
            elif not self._held():
                self.end(Ending(cancelled=False, message=self._why_lost(), interrupted=True))
            elif self._is_cancelled():
                self.end(CANCELLED)
        return self._ending is None

    def answered(self) -> None:
        """Records that the backend answered."""
        self._unanswered = 0

    def unanswered(self, reason: str) -> None:
        """Records a call without an answer."""
        with self._lock:
            self._unanswered += 1
            over = self._unanswered >= PATIENCE
        if over:
            message = f"the backend does not answer: {self._unanswered} calls in a row were given up; {reason}"
            self.end(Ending(cancelled=False, message=message))
