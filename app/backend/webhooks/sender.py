"""Sends one request to a receiver and returns the outcome."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import requests
from urllib3.exceptions import HTTPError

from app.backend.security.outgoing import open_session, time_limit

_HEADERS = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "usher-webhooks/1",
    # If the receiver closed a kept connection, the sender could not know whether the message arrived.
    "Connection": "close",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request. ``problem`` is empty after a success, and never contains a secret."""

    problem: str = ""
    status_code: int | None = None
    retry_after: str | None = None
    """The header ``Retry-After`` of a 429 or 503."""


Send = Callable[[str, Mapping[str, str], bytes], Outcome]
"""Posts a body with headers to a URL."""


def open_sender(*, allow_private: bool, timeout: float) -> Send:
    """A sender for one thread. ``timeout`` limits the whole request, in seconds."""
    session = open_session(allow_private=allow_private)

    def send(url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        return _send(session, url, {**_HEADERS, **headers}, body, timeout)

    return send


def _send(session: requests.Session, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Outcome:
    with time_limit(timeout) as watch:
        try:
            # stream=True, because only the status and the headers are read.
            with session.post(
                url, data=body, headers=headers, timeout=timeout, allow_redirects=False, stream=True
            ) as response:
                # Headers that were cut off look like complete ones.
                return Outcome("no answer in time") if watch.was_cut else _outcome(response)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            is_late = watch.was_cut or isinstance(error, requests.Timeout)
            return Outcome("no answer in time" if is_late else f"no answer: {type(error).__name__}")


def _outcome(response: requests.Response) -> Outcome:
    code = response.status_code
    if 200 <= code < 300:
        return Outcome(status_code=code)
    return Outcome(f"HTTP {code}", code, response.headers.get("Retry-After") if code in {429, 503} else None)
