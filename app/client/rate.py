"""The rate limiter: how many calls may be in flight, given how the backend copes.

One limiter is shared by all threads of a client. A throttled call halves the number of calls side by side and holds
everybody back until the backend wants to hear from us again; calls that go well raise the number slowly, by one per
several rounds.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_INCREASE = 0.25
"""By how much the limit grows while as many calls succeed as it allows side by side."""

_LOOK_AGAIN = 0.2
"""Seconds after which a thread that waits for a slot looks whether it should stop."""


class Stopped(Exception):  # noqa: N818 - no error: the caller asked for it
    """The stop event was set while a call waited for its turn."""


class RateLimiter:
    """``most``: calls side by side when all goes well. ``pause`` waits so many seconds, or less when ``stopped`` comes
    true."""

    def __init__(
        self,
        most: int,
        *,
        monotonic: Callable[[], float],
        pause: Callable[[float], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._most = most
        self._allowed = float(most)
        self._in_flight = 0
        self._resume_at = float("-inf")
        self._reduced_at = float("-inf")
        self._monotonic = monotonic
        self._pause = pause
        self._stopped = stopped
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a turn and holds it; gives the moment at which it began. Raises ``Stopped``."""
        self._acquire()
        try:
            yield self._monotonic()
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify()

    def went_well(self) -> None:
        """A call was answered without complaint about its rate."""
        with self._changed:
            if self._allowed < self._most:
                self._allowed = min(self._most, self._allowed + _INCREASE / self._allowed)
                self._changed.notify()

    def throttled(self, began: float, wait: float) -> None:
        """A call that began at ``began`` was told to come back in ``wait`` seconds."""
        now = self._monotonic()
        with self._changed:
            self._resume_at = max(self._resume_at, now + wait)
            # Calls that were under way together all hear the same complaint: it counts once.
            if began >= self._reduced_at:
                self._allowed = max(1.0, self._allowed / 2)
                self._reduced_at = now

    def _acquire(self) -> None:
        waited_until = float("-inf")
        while True:
            if self._stopped():
                raise Stopped
            with self._changed:
                resume_at = self._resume_at
                held_back = resume_at - self._monotonic()
                # Having slept for it once is enough, whatever the clock says: the two need not agree to the
                # microsecond.
                if held_back <= 0 or resume_at <= waited_until:
                    if self._in_flight < int(self._allowed):
                        self._in_flight += 1
                        return
                    self._changed.wait(_LOOK_AGAIN)
                    continue
            self._pause(held_back)
            waited_until = resume_at
