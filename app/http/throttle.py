"""Rate limiter for failed authentication attempts.

It counts failures only, after the credentials were checked: valid credentials always pass. Behind a proxy all callers
may have one address, and no caller must be able to shut the others out.
"""

import ipaddress
import re
from collections.abc import Callable
from threading import Lock
from time import monotonic

from app.contract.errors import ResourceExhausted

FAILURES = 20
"""Wrong credentials that one address may show within `WINDOW_SECONDS`, to one process."""
WINDOW_SECONDS = 60
MOST_ADDRESSES = 10_000
"""How many addresses are remembered; they take some 3 MB."""


class TooManyRequests(ResourceExhausted):
    """A rate limit was hit; the answer says in ``Retry-After`` when to come back, in seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Windows:
    """Counts by key in windows of time, of which one begins with the first of its key; threads share it."""

    def __init__(self, now: Callable[[], float], *, seconds: float, most_keys: int) -> None:
        self._now = now
        self._seconds = seconds
        self._most_keys = most_keys
        self._counts: dict[str, tuple[float, int]] = {}
        """Key → when its window ends, and how many are in it; in the order in which the windows began."""
        self._lock = Lock()

    def one_more(self, key: str) -> tuple[int, float]:
        """How many there are in the window of this key now, and the seconds until it ends."""
        now = self._now()
        with self._lock:
            ends, count = self._counts.get(key, (0.0, 0))
            if ends <= now:
                self._counts.pop(key, None)
                ends, count = now + self._seconds, 0
                if len(self._counts) >= self._most_keys:
                    del self._counts[next(iter(self._counts))]
            self._counts[key] = (ends, count + 1)
        return count + 1, ends - now

    def count(self, key: str) -> int:
        """How many there are in the window of this key now."""
        ends, count = self._counts.get(key, (0.0, 0))
        return count if ends > self._now() else 0

    def __len__(self) -> int:
        return len(self._counts)


class FailedCredentials:
    """Counts failures by address; threads share it."""

    def __init__(
        self,
        now: Callable[[], float] = monotonic,
        *,
        failures: int = FAILURES,
        window: int = WINDOW_SECONDS,
        most_addresses: int = MOST_ADDRESSES,
    ) -> None:
        self._failures = failures
        self._windows = Windows(now, seconds=window, most_keys=most_addresses)

    def failed(self, address: str) -> int:
        """Counts one more. The seconds after which to come back when these were too many, else 0."""
        count, left = self._windows.one_more(network_of(address))
        return max(1, round(left)) if count > self._failures else 0

    def is_throttled(self, address: str) -> bool:
        """Whether the next failure of this address is one too many. Counts nothing."""
        return self._windows.count(network_of(address)) >= self._failures

    def turn_away(self, address: str) -> None:
        """Counts one more. Raises ``TooManyRequests`` when these were too many."""
        if seconds := self.failed(address):
            raise TooManyRequests("too many wrong credentials from this address", retry_after=seconds)

    def __len__(self) -> int:
        return len(self._windows)


_BRACKETED = re.compile(r"\[([^\]]*)\](?::[0-9]*)?")


def network_of(address: str) -> str:
    """What one peer is given: of IPv6, a whole /64. Some proxies tell the port, too, which every call changes."""
    bracketed = _BRACKETED.fullmatch(address)
    if bracketed:
        address = bracketed[1]
    elif address.count(":") == 1:
        address = address.partition(":")[0]
    if ":" not in address:
        return address
    try:
        ip = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ip.ipv4_mapped) if ip.ipv4_mapped else str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))
