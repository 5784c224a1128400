"""Runs work in one background thread. Requests start it and do not wait."""

from collections.abc import Callable
from threading import Lock, Thread

import structlog


class Background:
    """Runs ``work`` in at most one thread at a time. The thread ends when there is no more work."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = Lock()
        self._running = False
        self._pending = False

    def wake(self) -> None:
        """Runs the work, after the current run if there is one. Does not wait for it."""
        with self._lock:
            self._pending = True
            if self._running:
                return
            self._running = True
        try:
            # A daemon: another process continues work that is unfinished when this one ends.
            Thread(target=self._run, name="background", daemon=True).start()
        except BaseException:
            # The system may be out of threads. The next call tries again.
            with self._lock:
                self._running = False
            raise

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._running = False
                    return
                self._pending = False
            try:
                self._work()
            except Exception:  # noqa: BLE001 - an error must not end the thread while work is pending
                structlog.stdlib.get_logger(__name__).exception("background_work_failed")
