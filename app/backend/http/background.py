"""Runs work in a background thread, so that requests do not wait for it."""

from collections.abc import Callable
from threading import Lock, Thread

import structlog


class Background:
    """At most one thread at a time. It ends when there is no more work."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running = False
        self._pending = False

    def wake(self, work: Callable[[], None]) -> None:
        """Runs ``work`` soon, after the current run if there is one. Does not wait for it."""
        with self._lock:
            self._pending = True
            if self._running:
                return
            self._running = True
        # A daemon: another process continues work that is unfinished when this one ends.
        Thread(target=self._run, args=(work,), name="background", daemon=True).start()

    def _run(self, work: Callable[[], None]) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._running = False
                    return
                self._pending = False
            try:
                work()
            except Exception:  # noqa: BLE001 - an error must not end the thread while work is pending
                structlog.stdlib.get_logger(__name__).exception("background_work_failed")
