"""Calls to the issuer, limited in size, time and number.

The issuer, or a name server, may hang. So each sign-in's calls run in a separate thread. The page waits 0.5 s for a
free thread, then at most ``CALLS_TIMEOUT``.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import BoundedSemaphore, Lock, Thread
from time import monotonic
from typing import Any, TypeVar

import requests

from app.foundation.outbound.failure import failure_of, refused_by_proxy
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import BoundedAdapter, UnusableResponseError, session_for

MAX_RESPONSE_BYTES = 1024 * 1024

CALLS_TIMEOUT = 5.0
"""Seconds for all calls of one sign-in together."""

_TIMEOUTS = (2.0, 3.0)
"""The connect timeout and the read timeout, in seconds."""
_THREAD_TIMEOUT = 0.5
"""Seconds that a sign-in waits for a free thread."""

T = TypeVar("T")


class IssuerError(Exception):
    """The issuer's answer is not valid. The text is for operators and contains no secret."""


class IssuerAwayError(IssuerError):
    """The issuer did not answer in time, or not as an issuer. The cause may be temporary."""


class IssuerBusyError(IssuerAwayError):
    """The issuer was not called, because too many sign-ins wait for it."""


class _IssuerAdapter(BoundedAdapter):
    """Limits the size of responses and the total time of all calls. Raises ``IssuerError``."""

    def __init__(self, route: Route, deadline: float) -> None:
        super().__init__(timeouts=_TIMEOUTS, max_bytes=MAX_RESPONSE_BYTES, deadline=lambda: deadline)
        self._route = route
        self._last = deadline

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        if monotonic() > self._last:
            raise IssuerAwayError("its responses took too long")
        try:
            response = super().send(request, *args, **options)
        except UnusableResponseError as error:
            raise IssuerAwayError(str(error)) from error
        except Exception as error:
            # Includes errors of the connection pool that requests does not translate.
            raise IssuerAwayError(failure_of(error, request.url or "", self._route).message) from error
        if refused := refused_by_proxy(response.status_code, self._route):
            raise IssuerAwayError(refused.message)
        return response


def bounded_session(route: Route) -> requests.Session:
    """A session for the calls of one sign-in. Its calls raise ``IssuerError``."""
    return session_for(route, adapter=_IssuerAdapter(route, monotonic() + CALLS_TIMEOUT))


class CallThreads:
    """Runs the calls of sign-ins in threads, at most ``max_threads`` at a time."""

    def __init__(self, max_threads: int = 1) -> None:
        self._free = BoundedSemaphore(max_threads)
        self._throttled = Lock()

    def run(self, work: Callable[[], T], *, is_throttled: bool = False) -> T:
        """Returns or raises what ``work`` does. Raises ``IssuerAwayError`` after the timeout, and ``IssuerBusyError``
        if all threads are busy. Throttled callers share one thread and do not wait for it."""
        if not is_throttled:
            return self._run(work, timeout=_THREAD_TIMEOUT)
        if not self._throttled.acquire(blocking=False):
            raise IssuerBusyError("another throttled sign-in waits for the issuer")
        try:
            return self._run(work, timeout=0)
        finally:
            self._throttled.release()

    def _run(self, work: Callable[[], T], *, timeout: float) -> T:
        if not self._free.acquire(timeout=timeout):
            raise IssuerBusyError("too many sign-ins wait for the issuer")
        result: Future[T] = Future()

        def work_in_thread() -> None:
            try:
                result.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised in the waiting thread
                result.set_exception(error)
            finally:
                self._free.release()

        thread = Thread(target=work_in_thread, name="issuer", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system has no thread left. Without this, each such sign-in would occupy its place for ever.
            self._free.release()
            raise IssuerBusyError("no thread can be started for the call") from error
        thread.join(CALLS_TIMEOUT)
        if not result.done():
            raise IssuerAwayError("its responses took too long")
        return result.result()
