"""Elects the one process of a server that sends webhooks.

The leader holds a file lock. The operating system releases it when the process ends, then another one takes over.
"""

import atexit
import fcntl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import IO

from app.backend.webhooks.delivery import DeliveryWorker, join, run_workers

_POLL_S = 1.0


class Leader:
    """The election among the processes of a server. Create it before the fork."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the processes run

    def lead(self, make: Callable[[], DeliveryWorker], threads: int) -> None:
        """Starts a thread that sends webhooks while this process is the leader, until the process ends."""
        stop = Event()
        thread = Thread(target=self._run, args=(make, threads, stop), name="webhooks", daemon=True)
        thread.start()
        # The last one registered is called first.
        atexit.register(join, thread)
        atexit.register(stop.set)

    def _run(self, make: Callable[[], DeliveryWorker], threads: int, stop: Event) -> None:
        while not self._acquire():
            if stop.wait(_POLL_S):
                return
        run_workers(make, threads, stop)

    def _acquire(self) -> bool:
        with suppress(OSError):
            # A lock of this kind belongs to one process, although all of them share the open file.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False
