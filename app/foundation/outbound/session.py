"""``requests`` sessions for outgoing calls. They ignore the environment, keep no cookies and check all certificates.

With ``BoundedAdapter``, they also limit the size and the time of responses.
"""

from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy
from io import BytesIO
from time import monotonic
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter

from app.foundation.outbound.route import Route


def bare_session() -> requests.Session:
    """A session that reads no proxies or passwords from the environment and keeps no cookies, because its peers may be
    unrelated."""
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


class VerifyingAdapter(HTTPAdapter):
    """Also checks the proxy's certificate for an http URL, which ``requests`` does not."""

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:  # noqa: ARG002 - the base class's
        super().cert_verify(conn, "https://", verify, cert)  # type: ignore[no-untyped-call,unused-ignore]


class UnusableResponseError(Exception):
    """A response that is too large, too slow, or a redirect. The message is a phrase that begins with "it" or "its"."""


_CHUNK = 64 * 1024


class BoundedAdapter(VerifyingAdapter):
    """Reads each response completely, within a size and a time. It rejects redirects.

    Raises ``UnusableResponseError``, and errors of ``requests``, its connection pool and sockets (``failure_of``).
    """

    def __init__(
        self, *, timeouts: tuple[float, float], max_bytes: int, deadline: Callable[[], float], pool_size: int = 1
    ) -> None:
        """``timeouts``: connect timeout and read timeout, in seconds. ``deadline``: returns, for each request, the
        monotonic time at which its response must be complete."""
        super().__init__(pool_connections=1, pool_maxsize=pool_size, max_retries=0)
        self._timeouts = timeouts
        self._max_bytes = max_bytes
        self._deadline = deadline

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        deadline = self._deadline()
        response = super().send(request, *args, **{**options, "stream": True, "timeout": self._timeouts})
        with response:
            content = read_bounded(response, self._max_bytes, deadline)
        if response.is_redirect:
            raise UnusableResponseError("it answers with a redirect, which is not followed")
        response.raw = BytesIO(content)
        return response


def read_bounded(response: requests.Response, max_bytes: int, deadline: float) -> bytes:
    """The decoded body of a streamed response. Raises ``UnusableResponseError`` if it is too large, or is not complete
    at the monotonic time ``deadline``, and the connection's errors."""
    body = bytearray()
    # read1 reads from the socket once, so that a slow sender cannot delay the check of the deadline.
    while chunk := response.raw.read1(_CHUNK, decode_content=True):
        body += chunk
        if len(body) > max_bytes:
            raise UnusableResponseError(f"its response is larger than {max_bytes} bytes")
        if monotonic() > deadline:
            raise UnusableResponseError("its responses took too long")
    return bytes(body)


def session_for(route: Route, *, pool_size: int = 1, adapter: BaseAdapter | None = None) -> requests.Session:
    """A session for calls over ``route`` that does not retry. ``adapter`` replaces the network."""
    session = bare_session()
    if isinstance(adapter, BoundedAdapter):
        # Compressed responses might exceed the size once they are unpacked.
        session.headers["Accept-Encoding"] = "identity"
    session.verify = route.ca_file or True
    proxy = route.proxy.get_secret_value()
    session.proxies = {"http": proxy, "https": proxy} if proxy else {}
    mounted = adapter or VerifyingAdapter(pool_connections=1, pool_maxsize=pool_size, max_retries=0)
    for scheme in ("http://", "https://"):
        session.mount(scheme, mounted)
    return session
