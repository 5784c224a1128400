"""Rate limiter: adapts the number of concurrent calls to the backend's responses.

All threads of a client share one limiter. A throttled call halves the limit and pauses all calls until the time that
the backend asks for. Each round of successful calls raises the limit slowly.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_INCREASE = 0.25
"""The increase of the limit after as many successful calls as it allows at once."""

_STOP_INTERVAL = 0.2
"""Seconds between checks of the stop event by a thread that waits for a slot."""


class Stopped(Exception):  # noqa: N818 - not an error: the caller requested it
    """The stop event was set while a call waited for a slot."""


class RateLimiter:
    """``limit`` is the maximum of concurrent calls. ``pause`` waits the given number of seconds, or less if
    ``stopped`` becomes true."""

    def __init__(
        self,
        limit: int,
        *,
        monotonic: Callable[[], float],
        pause: Callable[[float], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._limit = limit
        self._allowed = float(limit)
        self._in_flight = 0
        self._resume_at = float("-inf")
        self._reduced_at = float("-inf")
        self._monotonic = monotonic
        self._pause = pause
        self._stopped = stopped
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a slot and holds it. Yields the start time. Raises ``Stopped``."""
        self._acquire()
        try:
            yield self._monotonic()
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify()

    def succeeded(self) -> None:
        """Reports a call that was not throttled."""
        with self._changed:
            if self._allowed < self._limit:
                self._allowed = min(self._limit, self._allowed + _INCREASE / self._allowed)
                self._changed.notify()

    def throttled(self, started_at: float, wait: float) -> None:
        """Reports a throttled call that may be retried in ``wait`` seconds."""
        now = self._monotonic()
        with self._changed:
            self._resume_at = max(self._resume_at, now + wait)
            # Calls that ran concurrently are throttled together, which reduces the limit only once.
            if started_at >= self._reduced_at:
                self._allowed = max(1.0, self._allowed / 2)
                self._reduced_at = now

    def _acquire(self) -> None:
        waited_until = float("-inf")
        while True:
            if self._stopped():
                raise Stopped
            with self._changed:
                resume_at = self._resume_at
                remaining = resume_at - self._monotonic()
                # One wait is enough: the clock may be a microsecond short of the time that was waited for.
                if remaining <= 0 or resume_at <= waited_until:
                    if self._in_flight < int(self._allowed):
                        self._in_flight += 1
                        return
                    self._changed.wait(_STOP_INTERVAL)
                    continue
            self._pause(remaining)
            waited_until = resume_at
