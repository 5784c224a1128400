"""Rate limiter for failed authentication attempts.

It counts failures only, after the credentials were checked: valid credentials are never throttled. All callers may
share the address of a proxy, and no caller must be able to lock out the others.
"""

import ipaddress
import re
from collections.abc import Callable
from threading import Lock
from time import monotonic

from app.contract.errors import ResourceExhausted

FAILURES = 20
"""Failed attempts that one process allows per address in ``WINDOW_SECONDS``."""
WINDOW_SECONDS = 60
"""The length of a window, which begins with the first failure of an address."""
MAX_ADDRESSES = 10_000
"""Addresses in memory, about 3 MB. The oldest are evicted."""


class TooManyRequests(ResourceExhausted):
    """A rate limit was exceeded. ``retry_after`` is sent as ``Retry-After``, in seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WindowCounter:
    """Counts events by key, in a time window that begins with the key's first event. Threads may share it."""

    def __init__(self, now: Callable[[], float], *, seconds: float, max_keys: int) -> None:
        self._now = now
        self._seconds = seconds
        self._max_keys = max_keys
        self._counts: dict[str, tuple[float, int]] = {}
        """Key → end of its window and events in it, ordered by the beginning of the windows."""
        self._lock = Lock()

    def increment(self, key: str) -> tuple[int, float]:
        """Counts an event. Returns the events in the key's window, and the seconds until it ends."""
        now = self._now()
        with self._lock:
            ends, count = self._counts.get(key, (0.0, 0))
            if ends <= now:
                self._counts.pop(key, None)
                ends, count = now + self._seconds, 0
                if len(self._counts) >= self._max_keys:
                    del self._counts[next(iter(self._counts))]
            self._counts[key] = (ends, count + 1)
        return count + 1, ends - now

    def count(self, key: str) -> int:
        """The events in the key's window."""
        ends, count = self._counts.get(key, (0.0, 0))
        return count if ends > self._now() else 0


class FailedCredentials:
    """Counts failed attempts by address. Threads may share it."""

    def __init__(
        self,
        now: Callable[[], float] = monotonic,
        *,
        failures: int = FAILURES,
        window: int = WINDOW_SECONDS,
        max_addresses: int = MAX_ADDRESSES,
    ) -> None:
        self._failures = failures
        self._counter = WindowCounter(now, seconds=window, max_keys=max_addresses)

    def record(self, address: str) -> int:
        """Counts a failure. Returns the seconds to wait if there were too many, else 0."""
        count, left = self._counter.increment(network_of(address))
        return max(1, round(left)) if count > self._failures else 0

    def is_throttled(self, address: str) -> bool:
        """Whether the next failure of this address is throttled. Counts nothing."""
        return self._counter.count(network_of(address)) >= self._failures

    def record_or_raise(self, address: str) -> None:
        """Counts a failure. Raises ``TooManyRequests`` if there were too many."""
        if seconds := self.record(address):
            raise TooManyRequests("too many wrong credentials from this address", retry_after=seconds)


_BRACKETED = re.compile(r"\[([^\]]*)\](?::[0-9]*)?")


def network_of(address: str) -> str:
    """The address without the port that some proxies append. One peer controls a /64 network of IPv6 addresses, so this
    returns the network."""
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
