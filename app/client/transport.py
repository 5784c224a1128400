"""How does one HTTP exchange with the backend take place, and what can be told when it does not?

A `Transport` sends one request and reads one bounded response; it never follows a redirect, never reads proxies or
passwords from the environment, and never tries again. Errors of the HTTP library become one of two things here:
nothing was sent (`Unreached`), or nobody knows (`Unclear`).
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.exceptions import HTTPError as PoolError
from urllib3.exceptions import LocationValueError, NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as PoolTimeout

from app.client.retry import Unclear, Unreached

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Far above any page of results; what comes after it is not read."""

CONNECT_TIMEOUT = 10.0
"""Seconds. A host that is there accepts within a few."""

_CHUNK = 64 * 1024

_UNUSABLE = "the backend's address cannot be used"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as it came, of any status. `headers` are looked up by lower-case names."""

    http_code: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """A pooled session for one backend. Safe to share between threads.

    `timeout` is for one exchange, in seconds; `pool_size` connections are kept alive. `adapter` replaces the network
    (see `wsgi`).
    """

    def __init__(
        self,
        *,
        timeout: float,
        pool_size: int,
        monotonic: Callable[[], float],
        adapter: BaseAdapter | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._timeouts = (min(timeout, CONNECT_TIMEOUT), timeout)
        self._timeout = timeout
        self._monotonic = monotonic
        self._max_bytes = max_bytes
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        mounted = adapter or HTTPAdapter(pool_connections=1, pool_maxsize=pool_size, max_retries=0)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, mounted)

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """One exchange. Raises `Unreached` or `Unclear`."""
        began = self._monotonic()
        try:
            request = requests.Request("POST", url, headers=dict(headers), data=body).prepare()
        except (requests.RequestException, UnicodeError) as error:
            raise Unreached(_UNUSABLE, hopeless=True) from error
        try:
            response = self._session.send(
                request, stream=True, timeout=self._timeouts, allow_redirects=False, verify=True, proxies={}
            )
        except (requests.RequestException, PoolError) as error:
            # A few of the pool's own errors slip through the library on top of it.
            raise _translated(error, url) from error
        with response:
            content = self._read(response, deadline=began + self._timeout + self._timeouts[0])
        return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, content)

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


def _translated(error: requests.RequestException | PoolError, url: str) -> Unreached | Unclear:
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return Unreached("the backend's TLS certificate cannot be trusted", hopeless=True)
    if isinstance(error, requests.exceptions.InvalidURL | LocationValueError):
        return Unreached(_UNUSABLE, hopeless=True)
    if isinstance(error, requests.ConnectTimeout):
        return Unreached("no connection within the time allowed")
    if any(isinstance(cause, NewConnectionError) for cause in causes):
        # Name resolution failures are of this kind too.
        at = urlsplit(url)
        return Unreached(f"no connection to the backend at {at.scheme}://{at.netloc.rpartition('@')[2]}")
    if isinstance(error, requests.Timeout):
        return Unclear("no answer within the time allowed")
    if any(isinstance(cause, ProtocolError) for cause in causes):
        return Unclear("the connection was lost before an answer came")
    return Unclear(f"the exchange failed ({type(error).__name__})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it wraps; the libraries put causes into arguments and `reason` rather than
    `__cause__`."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
