"""Turns of a process's workers, by API key and not by receiver.

However many receivers of one API key do not answer, they keep at most half of the workers; of what is due, API keys
that had no turn for longest go first, and those that failed last after those that did not.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """An API key for which something is due. ``failed``: nothing of it but where sending has failed last."""

    api_key_id: str
    failed: bool
    since: int


class Turns:
    """The turns of one process with so many workers. Safe to share between them."""

    def __init__(self, workers: int = 1) -> None:
        self.looking = Lock()
        """Held by the one worker that looks for what is due: the others wait for it, which costs nothing."""
        self.over = Event()
        """Set when a turn ends."""
        self.most_of_one = max(1, workers // 2)
        self._lock = Lock()
        self._busy: Counter[str] = Counter()
        self._served: OrderedDict[str, int] = OrderedDict()
        """Who had a turn, the latest last, by its number."""
        self._number = 0

    def choose(self, waiting: Sequence[Waiting]) -> list[str]:
        """Those of the API keys that may have a turn now, the next one first."""
        with self._lock:
            free = [one for one in waiting if self._busy[one.api_key_id] < self.most_of_one]
            free.sort(key=lambda one: (one.failed, self._served.get(one.api_key_id, 0), one.since))
            return [one.api_key_id for one in free]

    @contextmanager
    def of(self, api_key_id: str) -> Iterator[None]:
        """A turn of this API key, until the block ends."""
        try:
            yield
        finally:
            with self._lock:
                self._busy[api_key_id] -= 1
                if not self._busy[api_key_id]:
                    del self._busy[api_key_id]
            self.over.set()

    def begin(self, api_key_id: str) -> None:
        """A turn of this API key begins; it goes on in ``of``."""
        with self._lock:
            self._busy[api_key_id] += 1
            self._number += 1
            self._served[api_key_id] = self._number
            self._served.move_to_end(api_key_id)
            while len(self._served) > _REMEMBERED:
                self._served.popitem(last=False)
