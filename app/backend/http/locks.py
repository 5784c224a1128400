"""Locks between the threads of one process."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from zlib import crc32

_STRIPES = 64


class StripedLocks:
    """Locks by name, and one lock for work that needs much memory."""

    def __init__(self) -> None:
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._heavy = Lock()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Waits for the lock of this name. Not reentrant."""
        with self._stripes[crc32(name.encode()) % _STRIPES]:
            yield

    @contextmanager
    def heavy(self, needed: bool) -> Iterator[None]:
        """Waits for the lock of memory-intensive work, if ``needed``."""
        with self._heavy if needed else nullcontext():
            yield
