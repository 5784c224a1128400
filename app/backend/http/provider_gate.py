"""Limits concurrent calls to permission providers, so that a slow provider does not block the other requests.

A call occupies a thread until the response arrives. At most half of a process's threads make such calls, and at most
half of those for one API key. After a provider did not respond, it is not called for a moment. A request over the limit
is not sent, at once or after a short wait. The caller then denies access.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic as real_monotonic

MAX_WAIT = 0.5
"""Seconds that a request may wait for other calls of its API key. If these take longer already, it does not wait."""
COOLDOWN = 3.0
"""Seconds without calls after a provider did not respond."""
_MAX_REMEMBERED = 10_000


class ProviderGate:
    """The calls to permission providers of a process with ``threads`` threads. Thread-safe."""

    def __init__(self, threads: int, monotonic: Callable[[], float] = real_monotonic) -> None:
        self._limit = max(1, threads // 2)
        self._limit_of_key = max(1, self._limit // 2)
        self._monotonic = monotonic
        self._changed = Condition()
        self._inside = 0
        """The current calls, and the requests that wait for one."""
        self._begun: dict[str, list[float]] = {}
        """Start times of the current calls by API key, the oldest first."""
        self._unresponsive: OrderedDict[tuple[str, str], float] = OrderedDict()
        """The last time a provider did not respond, by API key and URL."""

    @contextmanager
    def turn(self, api_key_id: str, url: str) -> Iterator[bool]:
        """Yields whether the provider may be called within the block."""
        if not self._enter(api_key_id, url):
            yield False
            return
        try:
            yield True
        finally:
            self._leave(api_key_id)

    def note_no_response(self, api_key_id: str, url: str) -> None:
        """Stops calls to the provider for ``COOLDOWN`` seconds, because it did not respond."""
        with self._changed:
            self._unresponsive[api_key_id, url] = self._monotonic()
            self._unresponsive.move_to_end((api_key_id, url))
            while len(self._unresponsive) > _MAX_REMEMBERED:
                self._unresponsive.popitem(last=False)

    def _enter(self, api_key_id: str, url: str) -> bool:
        with self._changed:
            if self._inside >= self._limit or self._cools_down(api_key_id, url):
                return False
            self._inside += 1
            arrived = self._monotonic()
            while len(begun := self._begun.get(api_key_id, [])) >= self._limit_of_key:
                remaining = min(arrived, begun[0]) + MAX_WAIT - self._monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            else:
                if not self._cools_down(api_key_id, url):
                    self._begun.setdefault(api_key_id, []).append(self._monotonic())
                    return True
            self._inside -= 1
            return False

    def _leave(self, api_key_id: str) -> None:
        with self._changed:
            self._inside -= 1
            begun = self._begun[api_key_id]
            # Removes the oldest start, whichever call ended: the others must not look older than they are.
            begun.pop(0)
            if not begun:
                del self._begun[api_key_id]
            self._changed.notify_all()

    def _cools_down(self, api_key_id: str, url: str) -> bool:
        since = self._unresponsive.get((api_key_id, url))
        return since is not None and self._monotonic() - since < COOLDOWN
