"""Calls to the issuer: limited in size, time and number, without redirects.

An issuer, or a name server, may hang. So the calls of a sign-in run in a thread of their own, and its page waits for
them no longer than ``LONGEST``.
"""

from collections.abc import Callable
from io import BytesIO
from threading import BoundedSemaphore, Lock, Thread
from time import monotonic
from typing import Any, Generic, TypeVar

import requests
import structlog

from app.foundation.outbound.failure import FailureKind, call_failure, failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import VerifyingAdapter, session_for

MAX_ANSWER_BYTES = 1024 * 1024
"""Far above what an issuer has to say."""

LONGEST = 5.0
"""Seconds that all calls of one sign-in may take together."""

_TIMEOUTS = (2.0, 3.0)
"""Seconds to connect, and between two pieces of an answer."""
_QUEUE = 0.5
"""Seconds that a sign-in waits while others keep all threads busy."""
_CHUNK = 64 * 1024

Given = TypeVar("Given")


class IssuerError(Exception):
    """The issuer does not answer as it should; the text is for operators, without secrets."""


class IssuerAwayError(IssuerError):
    """It does not answer at all, not in time, or not as an issuer: something may be wrong for an instant."""


class IssuerBusyError(IssuerAwayError):
    """It was not asked, because too many sign-ins wait for it."""


class _BoundedAdapter(VerifyingAdapter):
    """The network, of which no answer is longer or slower than what is allowed."""

    def __init__(self, route: Route, ends: float) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self._route = route
        self._ends = ends

    def send(self, request: requests.PreparedRequest, *args: Any, **given: Any) -> requests.Response:
        if monotonic() > self._ends:
            raise IssuerAwayError("its answers took too long")
        url = request.url or ""
        try:
            answer = super().send(request, *args, **{**given, "stream": True, "timeout": _TIMEOUTS})
            with answer:
                content = self._read(answer)
        except IssuerError:
            raise
        except Exception as error:
            # The pool's own errors, of which some slip through the library on top of it.
            raise IssuerAwayError(failure_of(error, url, self._route).message) from error
        if answer.status_code == requests.codes.proxy_authentication_required and self._route.proxy_address:
            raise IssuerAwayError(call_failure(FailureKind.PROXY_CREDENTIALS, self._route.proxy_address).message)
        if answer.is_redirect:
            raise IssuerAwayError("it answers with a redirect, which is not followed")
        answer.raw = BytesIO(content)
        return answer

    def _read(self, answer: requests.Response) -> bytes:
        raw = bytearray()
        # One read of the socket at a time: a full chunk would let a slow sender stretch the time without end.
        while chunk := answer.raw.read1(_CHUNK):
            raw += chunk
            if len(raw) > MAX_ANSWER_BYTES:
                raise IssuerAwayError(f"its answer is larger than {MAX_ANSWER_BYTES} bytes")
            if monotonic() > self._ends:
                raise IssuerAwayError("its answers took too long")
        return bytes(raw)


def bounded_session(route: Route) -> requests.Session:
    """A session for the calls of one sign-in. Its calls raise ``IssuerError``."""
    session = session_for(route, adapter=_BoundedAdapter(route, monotonic() + LONGEST))
    session.headers["Accept-Encoding"] = "identity"
    return session


class Aside:
    """Runs the calls of sign-ins in threads of their own, at most ``at_once`` of them."""

    def __init__(self, at_once: int = 1) -> None:
        self._free = BoundedSemaphore(at_once)
        self._throttled = Lock()

    def do(self, work: Callable[[], Given], *, is_throttled: bool = False) -> Given:
        """Returns or raises what ``work`` does. Raises ``IssuerAwayError`` if that takes too long, and
        ``IssuerBusyError`` if all threads are busy. Throttled callers share one thread and never wait for it."""
        if is_throttled:
            if not self._throttled.acquire(blocking=False):
                raise IssuerBusyError("another throttled sign-in waits for the issuer")
            try:
                return self._do(work, patience=0)
            finally:
                self._throttled.release()
        return self._do(work, patience=_QUEUE)

    def _do(self, work: Callable[[], Given], *, patience: float) -> Given:
        if not self._free.acquire(timeout=patience):
            raise IssuerBusyError("too many sign-ins wait for the issuer")
        ended: list[Given] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                ended.append(work())
            except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
                failed.append(error)
            finally:
                self._free.release()

        thread = Thread(target=run, name="issuer", daemon=True)
        thread.start()
        thread.join(LONGEST)
        if failed:
            raise failed[0]
        if not ended:
            raise IssuerAwayError("its answers took too long")
        return ended[0]


FRESH = 600.0
"""Seconds after which it is asked again."""
KEPT = 3600.0
"""Seconds for which what it said counts while it cannot be asked."""
PAUSE = 10.0
"""Seconds for which an issuer that failed is not asked again."""

Said = TypeVar("Said")


class LastKnown(Generic[Said]):
    """One thing that an issuer says."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._said: Said | None = None
        self._said_at = self._failed_at = float("-inf")
        self._failure = ""

    @property
    def age(self) -> float:
        """Seconds since it was said."""
        return monotonic() - self._said_at

    def get(self, ask: Callable[[], Said], *, fresh: float = FRESH) -> Said:
        """It, at most ``fresh`` seconds old, or ``KEPT`` where the issuer is away. Raises what ``ask`` does, and
        ``IssuerError`` without asking where that has just failed."""
        said = self._said if self.age <= KEPT else None
        if said is not None and self.age <= fresh:
            return said
        if monotonic() - self._failed_at < PAUSE:
            if said is None:
                raise IssuerError(self._failure)
            return said
        try:
            found = ask()
        except IssuerError as error:
            if not isinstance(error, IssuerBusyError):
                self._failed_at, self._failure = monotonic(), str(error)
            if not isinstance(error, IssuerAwayError):
                # It answers, and differently: what it said before is worth nothing.
                self._said_at = float("-inf")
                raise
            if said is None:
                raise
            structlog.stdlib.get_logger(__name__).warning(
                "issuer_failed", problem=str(error), goes_by=f"its {self._what} of {self.age:.0f} s ago"
            )
            return said
        self._said, self._said_at = found, monotonic()
        return found
