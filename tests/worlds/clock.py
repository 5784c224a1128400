"""Simulated time, which passes only when a test or a sleep advances it."""

from datetime import UTC, datetime, timedelta
from threading import Lock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
"""The initial time of tests."""


class SimulatedTime:
    """A clock (call it), a monotonic clock and a sleep that agree with each other.

    Concurrent sleeps overlap: two sleeps of ten seconds that begin together take ten seconds.
    """

    def __init__(self, now: datetime = NOON) -> None:
        self.now = self.began = now
        self.slept: list[float] = []
        """The durations of all sleeps, in seconds."""
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
        """Advances the clock without a sleep."""
        self.now += timedelta(**interval)

    def restart(self) -> None:
        """Resets the clock to its initial time."""
        self.now = self.began
        self.slept.clear()
