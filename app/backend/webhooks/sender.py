"""One call to a receiver, and what comes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

import requests
from urllib3.exceptions import HTTPError

from app.backend.security.outgoing import open_session, time_limit

_ALWAYS = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "usher-webhooks/1",
    # A connection that was kept may be ended by the other side at any time: nobody could tell whether the message
    # arrived.
    "Connection": "close",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. ``problem`` is empty when the receiver took the message, and never holds a secret."""

    problem: str = ""
    status_code: int | None = None
    asked_s: float = 0.0
    """How many seconds the receiver asked us to wait."""
    duration_ms: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether the receiver wants nothing more, ever."""
        return self.status_code == 410


Send = Callable[[str, Mapping[str, str], bytes], Outcome]
"""Posts a body, with headers, to a URL."""


def open_sender(*, allow_private: bool, timeout: float) -> Send:
    """A sender for one thread. ``timeout`` (seconds) is for a call as a whole."""
    session = open_session(allow_private=allow_private)

    def send(url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        started = monotonic()
        outcome = _send(session, url, {**_ALWAYS, **headers}, body, timeout)
        return Outcome(
            outcome.problem, outcome.status_code, outcome.asked_s, duration_ms=int((monotonic() - started) * 1000)
        )

    return send


def _send(session: requests.Session, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Outcome:
    with time_limit(timeout) as watch:
        try:
            # What the answer says besides its status is not read.
            with session.post(
                url, data=body, headers=headers, timeout=timeout, allow_redirects=False, stream=True
            ) as response:
                # A head that was cut off reads like a short one.
                return Outcome("no answer in time") if watch.was_cut else _judged(response)
        except requests.Timeout:
            return Outcome("no answer in time")
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            return Outcome("no answer in time" if watch.was_cut else f"no answer: {type(error).__name__}")


def _judged(response: requests.Response) -> Outcome:
    code = response.status_code
    if 200 <= code < 300:
        return Outcome(status_code=code)
    wish = response.headers.get("Retry-After", "")
    asked = float(wish[:9]) if code in {429, 503} and wish.isascii() and wish.isdigit() else 0.0
    return Outcome(f"HTTP {code}", code, asked)
