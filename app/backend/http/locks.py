"""Locks between the threads of one process."""

from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from zlib import crc32

_STRIPES = 64


class StripedLocks:
    """Locks by name, and one lock for work that needs much memory."""

    def __init__(self) -> None:
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._heavy = Lock()

    def of(self, name: str) -> AbstractContextManager[object]:
        """The lock of this name. Not reentrant."""
        return self._stripes[crc32(name.encode()) % _STRIPES]

    def heavy(self, *, needed: bool) -> AbstractContextManager[object]:
        """The lock of memory-intensive work, if ``needed``."""
        return self._heavy if needed else nullcontext()
