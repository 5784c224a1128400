"""Fair scheduling of a process's workers among API keys.

An API key uses at most half of the workers, however many of its receivers do not respond. API keys without recent
failures go first. Among them the least recently served goes first.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from threading import Event, Lock
from typing import NamedTuple

_MAX_SERVED = 10_000


class DueKey(NamedTuple):
    """An API key with due deliveries."""

    api_key_id: str
    failed: bool
    """Whether the last attempt failed in all of its due queues."""
    since: int
    """The time from which the first of them may be sent, in epoch milliseconds."""


class Scheduler:
    """The scheduler of one process with so many workers. Thread-safe."""

    def __init__(self, workers: int = 1) -> None:
        self.polling = Lock()
        """Held by the one worker that polls the database. The others wait for it."""
        self.slot_freed = Event()
        """Set when a worker ends a slot."""
        self._max_slots = max(1, workers // 2)
        self._lock = Lock()
        self._slots: Counter[str] = Counter()
        self._served: OrderedDict[str, int] = OrderedDict()
        """The number of the last slot by API key, in order."""
        self._count = 0

    def choose(self, due: Sequence[DueKey]) -> list[str]:
        """The API keys that may have another worker, in order of priority."""
        with self._lock:
            free = [key for key in due if self._slots[key.api_key_id] < self._max_slots]
            free.sort(key=lambda key: (key.failed, self._served.get(key.api_key_id, 0), key.since))
            return [key.api_key_id for key in free]

    def begin(self, api_key_id: str) -> None:
        """Begins a slot: a worker serves this API key until ``end``."""
        with self._lock:
            self._slots[api_key_id] += 1
            self._count += 1
            self._served[api_key_id] = self._count
            self._served.move_to_end(api_key_id)
            if len(self._served) > _MAX_SERVED:
                self._served.popitem(last=False)

    def end(self, api_key_id: str) -> None:
        with self._lock:
            self._slots[api_key_id] -= 1
            if not self._slots[api_key_id]:
                del self._slots[api_key_id]
        self.slot_freed.set()
