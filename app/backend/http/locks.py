"""Locks by name, so that one thread at a time works on one thing within a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from zlib import crc32

_STRIPES = 64


class StripedLocks:
    """Locks for what is named, and one for all that is heavy, so that memory is needed once and not by every thread."""

    def __init__(self) -> None:
        self._stripes = tuple(Lock() for _ in range(_STRIPES))
        self._heavy = Lock()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Waits until no other thread works on what has this name. Must not be entered twice."""
        with self._stripes[crc32(name.encode()) % _STRIPES]:
            yield

    @contextmanager
    def heavy(self, needed: bool) -> Iterator[None]:
        """Waits, if need be, until no other thread does what is heavy."""
        if not needed:
            yield
            return
        with self._heavy:
            yield
