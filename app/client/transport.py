"""One HTTP exchange with the backend, and what can be told when it does not take place.

A ``Transport`` sends one request along the configured route and reads one bounded response; it never follows a
redirect, never reads proxies or passwords from the environment, and never tries again. Errors of the HTTP library
become one of two things here: nothing was sent (``Unreached``), or nobody knows (``Unclear``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import requests
from requests.adapters import BaseAdapter
from urllib3.exceptions import HTTPError as PoolError
from urllib3.exceptions import TimeoutError as PoolTimeout

from app.client.retry import Unclear, Unreached
from app.foundation.outbound.failure import (
    CallFailure,
    FailureKind,
    advice,
    failure_of,
    only_tls,
    refused_by_proxy,
    says_only_tls,
)
from app.foundation.outbound.probe import examined_failure
from app.foundation.outbound.route import Route, address_of
from app.foundation.outbound.session import VerifyingAdapter, session_for

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Far above any page of results; what comes after it is not read."""

CONNECT_TIMEOUT = 10.0
"""Seconds. A host that is there accepts within a few."""

_CHUNK = 64 * 1024

_PROXY_AUTHENTICATION_REQUIRED = 407


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response as it came, of any status. ``headers`` are looked up by lower-case names."""

    http_code: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """A pooled session for one backend. Safe to share between threads.

    ``timeout`` is for one exchange, in seconds; ``pool_size`` connections are kept alive. ``adapter`` replaces the
    network (see ``wsgi``).
    """

    def __init__(
        self,
        *,
        timeout: float,
        pool_size: int,
        monotonic: Callable[[], float],
        route: Route | None = None,
        adapter: BaseAdapter | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._timeouts = (min(timeout, CONNECT_TIMEOUT), timeout)
        self._timeout = timeout
        self._monotonic = monotonic
        self._max_bytes = max_bytes
        self._route = route or Route()
        self._session = session_for(self._route, pool_size=pool_size, adapter=adapter)
        self._is_known = not isinstance(self._session.get_adapter("https://"), VerifyingAdapter)

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> RawResponse:
        """One exchange. Raises ``Unreached`` or ``Unclear``."""
        began = self._monotonic()
        try:
            request = requests.Request("POST", url, headers=dict(headers), data=body).prepare()
            response = self._session.send(request, stream=True, timeout=self._timeouts, allow_redirects=False)
        except (requests.RequestException, PoolError, OSError, UnicodeError) as error:
            # A few of the pool's own errors slip through the library on top of it.
            self._raise_failure(error, url)
        with response:
            content = self._read(response, deadline=began + self._timeout + self._timeouts[0])
        if self._route.proxy_address and response.status_code == _PROXY_AUTHENTICATION_REQUIRED:
            raise _attempt_failed(refused_by_proxy(self._route.proxy_address))
        if not self._is_known and says_only_tls(response.status_code, content):
            raise _attempt_failed(only_tls(address_of(url)))
        self._is_known = True
        return RawResponse(
            response.status_code, {name.lower(): value for name, value in response.headers.items()}, content
        )

    def _raise_failure(self, error: Exception, url: str) -> NoReturn:
        if isinstance(error, UnicodeError):
            raise _attempt_failed(CallFailure(FailureKind.ADDRESS, "the address cannot be used")) from error
        # What has answered once speaks what is spoken to it: a lost connection is nothing but that.
        look = failure_of if self._is_known else examined_failure
        self._is_known = True
        raise _attempt_failed(look(error, url, self._route)) from error

    def close(self) -> None:
        """Closes the pooled connections."""
        self._session.close()

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            for piece in _pieces(response):
                size += len(piece)
                if size > self._max_bytes:
                    raise Unclear(f"the answer is larger than {self._max_bytes} bytes")
                if self._monotonic() > deadline:
                    raise Unclear("the answer took too long to arrive")
                pieces.append(piece)
        except PoolTimeout as error:
            raise Unclear("the answer stopped half way") from error
        except (PoolError, OSError) as error:
            raise Unclear("the connection was lost in the middle of the answer") from error
        return b"".join(pieces)


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """The decoded body, bit by bit: what a small compressed piece unfolds to is bounded as well."""
    while piece := response.raw.read(_CHUNK, decode_content=True):
        yield piece


def _attempt_failed(failure: CallFailure) -> Unreached | Unclear:
    if failure.may_have_been_sent:
        return Unclear(failure.says, failure)
    if not failure.is_lasting:
        return Unreached(failure.says, failure)
    what_to_do = advice(failure, address="backend.base_url", section="backend")
    return Unreached(f"{failure.says}: {what_to_do}", failure, hopeless=True)
