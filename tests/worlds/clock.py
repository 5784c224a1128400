"""Time that passes only when someone waits for it, or says so."""

from datetime import UTC, datetime, timedelta
from threading import Lock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
"""When the worlds of tests begin."""


class SimulatedTime:
    """A clock (call it), a monotonic clock and a sleep that agree with each other.

    Those who sleep side by side do so at the same time: two waits of ten seconds that begin together take ten seconds.
    """

    def __init__(self, now: datetime = NOON) -> None:
        self.now = self.began = now
        self.slept: list[float] = []
        """Every wait, in seconds."""
        self._lock = Lock()

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return (self.now - self.began).total_seconds()

    def sleep(self, seconds: float) -> None:
        wakes_at = self.now + timedelta(seconds=max(0.0, seconds))
        with self._lock:
            self.slept.append(seconds)
            self.now = max(self.now, wakes_at)

    def move_on(self, **interval: float) -> None:
        """Time passes with nobody waiting."""
        self.now += timedelta(**interval)

    def restart(self) -> None:
        """Back to the beginning."""
        self.now = self.began
        self.slept.clear()
