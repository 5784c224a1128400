"""The leader: the one process of a server that sends the webhooks.

One of gunicorn's workers: whoever gets a lock that the operating system takes back when its process ends, however it
ends. The others wait for it.
"""

import atexit
import fcntl
import tempfile
from collections.abc import Callable
from threading import Event, Thread
from typing import IO

from app.backend.webhooks.delivery import DeliveryWorker, join, start_workers

_LOOK_S = 1.0


class Leader:
    """The lead among the processes of a server. To be made before they are forked, and taken in each of them."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is to live as long as the processes

    def lead(self, make: Callable[[], DeliveryWorker], threads: int) -> None:
        """Sends webhooks from this process as soon as no other one of the server does, until the process ends."""
        stop = Event()
        waiting = Thread(target=self._lead_once_mine, args=(make, threads, stop), name="webhooks", daemon=True)
        waiting.start()

        def end() -> None:
            stop.set()
            join([waiting])

        atexit.register(end)

    def _lead_once_mine(self, make: Callable[[], DeliveryWorker], threads: int, stop: Event) -> None:
        while not self._is_mine():
            if stop.wait(_LOOK_S):
                return
        workers = start_workers(make, threads, stop)
        stop.wait()
        join(workers)

    def _is_mine(self) -> bool:
        try:
            # This kind of lock belongs to the process, although all of them have the file open.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
