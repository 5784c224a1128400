"""Retries of a call, and the rate limiter that all calls of a client share.

The rules: ``app/sync/apply/README.md``, "Tries of one call".
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import structlog

from app.client.errors import ClientError, NotReached, OutcomeUnknown, RateLimited
from app.foundation.clock import Clock
from app.foundation.outbound.failure import CallFailure
from app.foundation.outbound.http_dates import retry_after_seconds

_log = structlog.stdlib.get_logger(__name__)

ResultT = TypeVar("ResultT")

_EXPONENT_MAX = 16

_INCREASE = 0.25
"""The increase of the limit after as many successful calls as it allows at once."""

_STOP_INTERVAL = 0.2
"""Seconds between checks of the stop event by a thread that waits for a slot."""


class Stopped(Exception):  # noqa: N818 - not an error: the caller requested it
    """The stop event was set while a call waited for a slot."""


@dataclass
class RateLimiter:
    """Limits the concurrent calls of a client. A throttled call halves the limit and pauses all calls; successful calls
    raise it slowly."""

    limit: int
    """The maximum."""
    monotonic: Callable[[], float]
    pause: Callable[[float], None]
    """Waits the given number of seconds, or less if ``stopped`` becomes true."""
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        self._allowed = float(self.limit)
        self._in_flight = 0
        self._resume_at = float("-inf")
        self._reduced_at = float("-inf")
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[float]:
        """Waits for a slot and holds it. Yields the start time. Raises ``Stopped``."""
        self._acquire()
        try:
            yield self.monotonic()
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify()

    def succeeded(self) -> None:
        """Reports a call that was not throttled."""
        with self._changed:
            if self._allowed < self.limit:
                self._allowed = min(self.limit, self._allowed + _INCREASE / self._allowed)
                self._changed.notify()

    def throttled(self, started_at: float, wait: float) -> None:
        """Reports a throttled call that may be retried in ``wait`` seconds."""
        now = self.monotonic()
        with self._changed:
            self._resume_at = max(self._resume_at, now + wait)
            # Calls that ran concurrently are throttled together, which reduces the limit only once.
            if started_at >= self._reduced_at:
                self._allowed = max(1.0, self._allowed / 2)
                self._reduced_at = now

    def _acquire(self) -> None:
        waited_until = float("-inf")
        while True:
            if self.stopped():
                raise Stopped
            with self._changed:
                resume_at = self._resume_at
                remaining = resume_at - self.monotonic()
                # One wait is enough: the clock may be a microsecond short of the time that was waited for.
                if remaining <= 0 or resume_at <= waited_until:
                    if self._in_flight < int(self._allowed):
                        self._in_flight += 1
                        return
                    self._changed.wait(_STOP_INTERVAL)
                    continue
            self.pause(remaining)
            waited_until = resume_at


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Times are in seconds."""

    repeats: int = 5
    """Retries after a failed connection or an unknown outcome."""
    first_backoff: float = 0.5
    backoff_cap: float = 30.0
    retry_after_cap: float = 120.0
    """The longest single wait, even if the backend asks for more."""
    max_waiting: float = 300.0
    """The longest total wait for a throttling backend in one call."""

    def backoff(self, number: int, random_source: random.Random) -> float:
        """The wait before retry ``number`` (from 0): doubled each time, with jitter down to half of it."""
        full = min(self.backoff_cap, self.first_backoff * 2.0 ** min(number, _EXPONENT_MAX))
        return full * (0.5 + random_source.random() / 2)


class AttemptFailed(Exception):  # noqa: N818 - it never leaves this package
    """One try ended without an answer. ``failure`` is set if there was no response."""

    def __init__(self, reason: str, failure: CallFailure | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failure = failure


class Unreached(AttemptFailed):
    """There was no connection, so nothing was sent."""


class Unclear(AttemptFailed):
    """The request was sent, and its outcome is unknown."""


class Throttled(AttemptFailed):
    """The backend asked to retry later. ``retry_after`` is its header, ``wait`` the seconds derived from it."""

    def __init__(self, reason: str, retry_after: str | None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.wait = 0.0


@dataclass(slots=True)
class CallState:
    """The tries of one call so far."""

    operation: str
    tries: int = 0
    failures: int = 0
    """Tries without connection or with an unknown outcome."""
    unclear: bool = False
    """Whether a try had an unknown outcome."""
    throttles: int = 0
    waited: float = 0.0
    """Seconds spent on throttling."""

    def final_error(self, last: AttemptFailed | None, *, stopped: bool = False) -> ClientError:
        """The error of the whole call."""
        reason = last.reason if last is not None else "it was not sent"
        tried = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        why = f"{reason} ({'stopped ' if stopped else ''}after {tried})"
        error: ClientError
        if self.unclear:
            error = OutcomeUnknown(self.operation, f"outcome unknown: {why}", stopped=stopped)
        elif isinstance(last, Throttled):
            message = f"throttled: {why}, {self.waited:.0f} s of waiting"
            error = RateLimited(self.operation, message, stopped=stopped)
        else:
            error = NotReached(self.operation, f"not reached: {why}", stopped=stopped)
        error.failure = last.failure if last is not None else None
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """Applies the rules. Threads may share it."""

    policy: RetryPolicy
    limiter: RateLimiter
    clock: Clock
    pause: Callable[[float], None]
    random: random.Random
    may_send: Callable[[], bool] = lambda: True
    """Called immediately before every try, after all waits."""

    def run(self, state: CallState, send: Callable[[], ResultT], *, repeatable: bool) -> ResultT:
        """The result of ``send``, which raises ``AttemptFailed`` for a try that may be retried. Updates ``state``.

        Raises ``OutcomeUnknown``, ``RateLimited``, ``NotReached``, and all other errors of ``send``.
        """
        last: AttemptFailed | None = None
        while True:
            try:
                return self._try_once(state, send)
            except Stopped:
                raise state.final_error(last, stopped=True) from last
            except AttemptFailed as failed:
                last = failed
                wait = self._wait_after(state, failed, repeatable=repeatable)
                if wait is None:
                    raise state.final_error(failed) from failed
            _log.warning(
                "call_repeated", operation=state.operation, reason=last.reason, tries=state.tries, wait=round(wait, 2)
            )
            if not isinstance(last, Throttled):
                # After throttling, the limiter pauses all calls, including this one.
                self.pause(wait)

    def is_worth_waiting(self, throttled: Throttled) -> bool:
        """Whether the backend asks to retry soon."""
        requested = retry_after_seconds(throttled.retry_after, self.clock())
        return requested is not None and requested <= self.policy.retry_after_cap

    def _try_once(self, state: CallState, send: Callable[[], ResultT]) -> ResultT:
        with self.limiter.slot() as started_at:
            if not self.may_send():
                raise Stopped
            state.tries += 1
            try:
                result = send()
            except Throttled as throttled:
                throttled.wait = self._throttle_wait(state, throttled)
                self.limiter.throttled(started_at, throttled.wait)
                raise
            except ClientError:
                # Refused, but not throttled.
                self.limiter.succeeded()
                raise
            self.limiter.succeeded()
            return result

    def _wait_after(self, state: CallState, failed: AttemptFailed, *, repeatable: bool) -> float | None:
        """Seconds until the next try. None if there is none."""
        if isinstance(failed, Throttled):
            state.throttles += 1
            if state.waited + failed.wait > self.policy.max_waiting:
                return None
            state.waited += failed.wait
            return failed.wait
        is_unclear = isinstance(failed, Unclear)
        state.unclear |= is_unclear
        is_lasting = failed.failure is not None and failed.failure.is_lasting
        if is_lasting or (is_unclear and not repeatable) or state.failures >= self.policy.repeats:
            return None
        state.failures += 1
        return self.policy.backoff(state.failures - 1, self.random)

    def _throttle_wait(self, state: CallState, throttled: Throttled) -> float:
        requested = retry_after_seconds(throttled.retry_after, self.clock())
        if requested is None:
            return self.policy.backoff(state.throttles, self.random)
        return min(requested, self.policy.retry_after_cap)
