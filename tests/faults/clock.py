"""Time that passes only when someone waits for it."""

from datetime import UTC, datetime, timedelta
from threading import Lock

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


class SimulatedTime:
    """A clock, a monotonic clock and a sleep that agree with each other. Those who sleep side by side do so at the
    same time: two waits of ten seconds that begin together take ten seconds."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._lock = Lock()

    def restart(self) -> None:
        """Back to the beginning."""
        self._seconds = 0.0

    def clock(self) -> datetime:
        return START + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        wakes_at = self._seconds + max(0.0, seconds)
        with self._lock:
            self._seconds = max(self._seconds, wakes_at)

    def go_on(self, **interval: float) -> None:
        """Time passes with nobody waiting."""
        self.sleep(timedelta(**interval).total_seconds())
