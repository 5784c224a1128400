"""Requests to an API: authenticated, bounded in size and time, and repeated if the server asks to wait."""

import json
from collections.abc import Callable, Mapping
from time import monotonic, sleep
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import orjson
import requests
from requests.utils import parse_header_links

from app.directory.connector import LoginRefusedError, ReadError
from app.directory.connectors.http.auth import READ_ERRORS, AccessTokens, authenticate, call_error
from app.directory.connectors.http.settings import HttpSettings
from app.foundation.clock import Clock, utc_now
from app.foundation.outbound.failure import FailureKind, call_failure, refused_by_proxy, requires_tls
from app.foundation.outbound.http_dates import retry_after_seconds
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import BoundedAdapter, session_for
from app.foundation.outbound.urls import address_of
from app.foundation.text import printable

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""The maximum size of a response, such as a page, or a group with all of its members."""

MAX_TRIES = 5
"""The tries of a request that the server refuses for the moment."""

MAX_WAIT = 60.0
"""Seconds to wait between two tries, whatever the server asks for."""

_WAITING = frozenset({429, 500, 502, 503, 504})
"""Statuses with which a server refuses a request for the moment."""

_QUOTA = (b'"quotaExceeded"', b'"rateLimitExceeded"', b'"userRateLimitExceeded"')
"""Reasons with which Google answers 403 instead of 429."""

_ADVICE = {403: "grant the client the right to read it", 404: "check base_url and the path"}


class RefusedError(ReadError):
    """The server answered with an error status. ``is_temporary``: for the moment, and still after several tries."""

    def __init__(self, message: str, status: int, *, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.is_temporary = is_temporary


class JsonResponse(NamedTuple):
    body: object
    content: bytes
    url: str
    next_link: str
    """The link ``next`` of the header ``Link``. Empty if there is none."""


class HttpClient:
    """GET requests to one origin. Threads may share it. ``wait``: waits for seconds between two tries."""

    def __init__(
        self, settings: HttpSettings, *, clock: Clock = utc_now, wait: Callable[[float], None] = sleep
    ) -> None:
        self._base = settings.base_url
        self._clock = clock
        self._wait = wait
        self._route = Route(settings.ca_file, settings.proxy)
        self._session = self._new_session(settings, settings.max_in_flight)
        self._token_session = self._new_session(settings, 1)
        self._session.headers["Accept"] = "application/json, application/scim+json"
        authenticate(self._session, settings.auth, settings.preset_in_force(), self._token_session, self._route)

    def _new_session(self, settings: HttpSettings, pool_size: int) -> requests.Session:
        adapter = BoundedAdapter(
            timeouts=(settings.connect_timeout, settings.answer_timeout),
            max_bytes=MAX_RESPONSE_BYTES,
            deadline=lambda: monotonic() + settings.connect_timeout + settings.answer_timeout,
            pool_size=pool_size,
        )
        return session_for(self._route, adapter=adapter)

    def close(self) -> None:
        self._session.close()
        self._token_session.close()

    def url_of(self, path: str) -> str:
        """The URL of a path below ``base_url``."""
        return f"{self._base}/{path}"

    def followed(self, link: str, url: str) -> str:
        """The URL of a link in the response of ``url``. Raises ``ReadError`` if it is of another origin."""
        try:
            target = urljoin(url, link)
            parts = urlsplit(target)
            is_same = _origin(target) == _origin(self._base) and parts.username is None
        except ValueError:
            is_same = False
        if not is_same:
            raise ReadError(
                f"a link to the next page leads away from {address_of(self._base)}, and is not followed; let base_url"
                " begin with the address that the server uses in its links"
            )
        return target

    def get(self, url: str, parameters: Mapping[str, str] | None = None) -> JsonResponse:
        """The JSON at a URL. Raises ``ReadError``; ``RefusedError`` for an error status."""
        response = self._send(url, parameters)
        tokens = self._session.auth
        if response.status_code == requests.codes.unauthorized and isinstance(tokens, AccessTokens):
            tokens.forget(response.request)
            response = self._send(url, parameters)
        for attempt in range(1, MAX_TRIES):
            if not _must_wait(response):
                break
            self._wait(self._pause(response, attempt))
            response = self._send(url, parameters)
        path = printable(urlsplit(url).path, limit=200)
        self._check_status(response, path)
        return JsonResponse(_json(response, path), response.content, url, _next_link(response))

    def _send(self, url: str, parameters: Mapping[str, str] | None) -> requests.Response:
        try:
            return self._session.get(url, params=parameters or None, allow_redirects=False)
        except READ_ERRORS as error:
            raise call_error(error, url, self._route, "base_url") from None

    def _check_status(self, response: requests.Response, path: str) -> None:
        status = response.status_code
        if status == requests.codes.ok:
            return
        if status == requests.codes.unauthorized:
            raise LoginRefusedError(f"{path}: the server refuses the credentials in auth (401)")
        if refused := refused_by_proxy(status, self._route):
            raise ReadError(refused.message)
        if requires_tls(status, response.content):
            failure = call_failure(FailureKind.TLS_REQUIRED, address_of(self._base))
            raise ReadError(f"{failure.message}: {failure.advice(address='base_url', section='the source')}")
        if _must_wait(response):
            message = f"{path}: the server answers with {status}, {MAX_TRIES} times"
            raise RefusedError(message, status, is_temporary=True)
        advice = f"; {_ADVICE[status]}" if status in _ADVICE else ""
        raise RefusedError(f"{path}: the server answers with {status}{advice}", status)

    def _pause(self, response: requests.Response, attempt: int) -> float:
        """The seconds to wait before the next try: as the server asks, up to ``MAX_WAIT``, or 1, 2, 4 and 8."""
        now = self._clock()
        seconds = retry_after_seconds(response.headers.get("Retry-After"), now)
        reset = response.headers.get("X-Rate-Limit-Reset", "")
        if seconds is None and reset.isascii() and reset.isdigit():
            seconds = float(reset[:12]) - now.timestamp()
        return min(max(2.0 ** (attempt - 1) if seconds is None else seconds, 0.5), MAX_WAIT)


def _must_wait(response: requests.Response) -> bool:
    is_quota = response.status_code == requests.codes.forbidden and any(reason in response.content for reason in _QUOTA)
    return is_quota or response.status_code in _WAITING


def _json(response: requests.Response, path: str) -> object:
    """The JSON of a response. Raises ``ReadError``."""
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError:
        pass
    try:
        # Half a surrogate pair makes only its object malformed.
        return json.loads(response.content)
    except RecursionError:
        reason = "nested too deep"
    except ValueError:
        reason = printable(response.headers.get("Content-Type", "without a media type"), limit=80)
    raise ReadError(f"{path}: the response is not JSON ({reason}); check that base_url is the address of the API")


def _next_link(response: requests.Response) -> str:
    """The link to the next page. A link may have several relations, in upper or lower case (RFC 8288)."""
    for link in parse_header_links(response.headers.get("Link", "")):
        relations = " ".join(value for name, value in link.items() if name.lower() == "rel")
        if "next" in relations.lower().split():
            return link["url"]
    return ""


def _origin(url: str) -> tuple[str, str]:
    return urlsplit(url).scheme, address_of(url)
