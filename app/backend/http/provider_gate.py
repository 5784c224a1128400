"""The gate to permission providers: one that does not answer must not hold up the others.

Whoever asks keeps a thread until the answer is there. At most half of a process's threads are busy with that, and few
of them for one API key; a provider that gave no sign of life is left alone for a moment. Who gets no turn gets no
answer, at once.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic as real_monotonic

PATIENCE = 0.5
"""Seconds that one may wait for other calls of the API key, and after which these count as slow: nobody waits then."""
REST = 3.0
"""Seconds that a provider is not asked after it gave no sign of life."""
_REMEMBERED = 10_000


class ProviderGate:
    """The calls to permission providers of one process that has ``threads`` threads. Safe to share between them."""

    def __init__(self, threads: int, monotonic: Callable[[], float] = real_monotonic) -> None:
        self.most = max(1, threads // 2)
        self.most_of_one = max(1, self.most // 2)
        self._monotonic = monotonic
        self._changed = Condition()
        self._inside = 0
        self._begun: dict[str, list[float]] = {}
        """When the calls under way began, the oldest first, by API key."""
        self._silent: OrderedDict[tuple[str, str], float] = OrderedDict()
        """When a provider gave no sign of life, by API key and URL."""

    @contextmanager
    def turn(self, api_key_id: str, url: str) -> Iterator[bool]:
        """Whether the provider may be asked within the block."""
        if not self._enter(api_key_id, url):
            yield False
            return
        try:
            yield True
        finally:
            self._leave(api_key_id)

    def note_silence(self, api_key_id: str, url: str) -> None:
        """The provider gave no sign of life."""
        with self._changed:
            self._silent[api_key_id, url] = self._monotonic()
            self._silent.move_to_end((api_key_id, url))
            while len(self._silent) > _REMEMBERED:
                self._silent.popitem(last=False)

    def _enter(self, api_key_id: str, url: str) -> bool:
        with self._changed:
            if self._inside >= self.most or self._rests(api_key_id, url):
                return False
            self._inside += 1
            came = self._monotonic()
            while len(begun := self._begun.get(api_key_id, [])) >= self.most_of_one:
                left = min(came, begun[0]) + PATIENCE - self._monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            else:
                if not self._rests(api_key_id, url):
                    self._begun.setdefault(api_key_id, []).append(self._monotonic())
                    return True
            self._inside -= 1
            return False

    def _leave(self, api_key_id: str) -> None:
        with self._changed:
            self._inside -= 1
            begun = self._begun[api_key_id]
            # Which of them it is makes no difference, as long as those that go on do not look older than they are.
            begun.pop(0)
            if not begun:
                del self._begun[api_key_id]
            self._changed.notify_all()

    def _rests(self, api_key_id: str, url: str) -> bool:
        since = self._silent.get((api_key_id, url))
        return since is not None and self._monotonic() - since < REST
