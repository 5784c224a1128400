"""Work of a process that no request waits for."""

from collections.abc import Callable
from threading import Lock, Thread

import structlog

Work = Callable[[], None]


class Background:
    """One thread at most, which lives as long as there is something to do."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = False
        self._asked = False

    def wake(self, work: Work) -> None:
        """Lets ``work`` run soon, after what is running now. Does not wait for it."""
        with self._lock:
            self._asked = True
            if self._running:
                return
            self._running = True
        # A daemon: what it leaves undone when the process ends is taken up by another.
        Thread(target=self._run, args=(work,), name="background", daemon=True).start()

    def _run(self, work: Work) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._running = False
                    return
                self._asked = False
            try:
                work()
            except Exception:  # noqa: BLE001 - whatever it is, the next request for work must find the thread alive
                structlog.stdlib.get_logger(__name__).exception("background_work_failed")
