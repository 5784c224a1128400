"""The tries of a call: when there is another, after how long, and when it is given up.

The law is ``app/sync/apply/README.md``, "Tries of one call":

- no connection, or an unknown outcome: up to 5 repeats, with exponential backoff and jitter;
- throttled (429, 503, RESOURCE_EXHAUSTED): wait as long as the backend asks for, within reason, or back off when it
  does not say, and send less at a time, until the waiting adds up to ``max_waiting``;
- every other answer is an answer.

Operations that make something new on each call are repeated only where it is certain that nothing happened.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import structlog

from app.client.errors import ClientError, NotReached, OutcomeUnknown, RateLimited
from app.client.rate import RateLimiter, Stopped
from app.foundation.clock import Clock
from app.foundation.outbound.failure import CallFailure

ResultT = TypeVar("ResultT")

_EXPONENT_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Times are in seconds."""

    repeats: int = 5
    """After a failed connection or an unknown outcome."""
    first_backoff: float = 0.5
    backoff_cap: float = 30.0
    retry_after_cap: float = 120.0
    """However long the backend asks for, no single wait is longer."""
    max_waiting: float = 300.0
    """What all the waits for a throttling backend may add up to in one call."""

    def backoff(self, number: int, random_source: random.Random) -> float:
        """The wait before repeat ``number`` (from 0): doubled each time, between half of it and all of it."""
        full = min(self.backoff_cap, self.first_backoff * 2.0 ** min(number, _EXPONENT_MAX))
        return full * (0.5 + random_source.random() / 2)


class AttemptFailed(Exception):  # noqa: N818 - it never leaves this package
    """One try of a call ended without an answer to the call. ``reason`` is for people, ``failure`` what is known of an
    exchange that did not take place."""

    def __init__(self, reason: str, failure: CallFailure | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failure = failure


class Unreached(AttemptFailed):
    """There was no connection: nothing was sent. ``hopeless`` says that another try would end the same."""

    def __init__(self, reason: str, failure: CallFailure | None = None, *, hopeless: bool = False) -> None:
        super().__init__(reason, failure)
        self.hopeless = hopeless


class Unclear(AttemptFailed):
    """It was sent, and nothing tells what became of it."""


class Throttled(AttemptFailed):
    """It was turned away for now. ``retry_after`` is the backend's header as it came, ``wait`` what is made of it."""

    def __init__(self, reason: str, retry_after: str | None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.wait = 0.0


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """The wait that a ``Retry-After`` header asks for; None when it says nothing usable (absent, unreadable, in the
    past)."""
    if header is None:
        return None
    text = header.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - now).total_seconds()
    return seconds if seconds > 0 and not math.isnan(seconds) else None


@dataclass(slots=True)
class _CallCourse:
    """What has happened in one call so far."""

    operation: str
    tries: int = 0
    failures: int = 0
    """Tries without connection or with an unknown outcome."""
    unclear: bool = False
    throttles: int = 0
    waited: float = 0.0
    """Seconds spent on throttling."""

    def ending(self, last: AttemptFailed | None, *, stopped: bool = False) -> ClientError:
        """The error that sums up this course."""
        reason = last.reason if last is not None else "it was not sent"
        tried = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        why = f"{reason} (stopped after {tried})" if stopped else f"{reason} (after {tried})"
        error = self._error(last, why, stopped=stopped)
        error.failure = last.failure if last is not None else None
        return error

    def _error(self, last: AttemptFailed | None, why: str, *, stopped: bool) -> ClientError:
        if self.unclear:
            return OutcomeUnknown(self.operation, f"outcome unknown: {why}", tries=self.tries, stopped=stopped)
        if isinstance(last, Throttled):
            message = f"throttled: {why}, {self.waited:.0f} s of waiting"
            return RateLimited(self.operation, message, tries=self.tries, stopped=stopped)
        return NotReached(self.operation, f"not reached: {why}", tries=self.tries, stopped=stopped)


class Retrying:
    """Runs calls by the rules above. Safe to share between threads."""

    def __init__(
        self,
        policy: RetryPolicy,
        limiter: RateLimiter,
        *,
        clock: Clock,
        pause: Callable[[float], None],
        stopped: Callable[[], bool],
        may_send: Callable[[], bool],
        random_source: random.Random,
    ) -> None:
        """``may_send`` is asked right before every try, after all waiting."""
        self._policy = policy
        self._limiter = limiter
        self._clock = clock
        self._pause = pause
        self._stopped = stopped
        self._may_send = may_send
        self._random = random_source

    def run(self, operation: str, send: Callable[[], ResultT], *, repeatable: bool = True) -> ResultT:
        """What ``send`` returns in the end. ``send`` raises ``AttemptFailed`` for a try that may be repeated.

        Raises ``OutcomeUnknown``, ``RateLimited``, ``NotReached``, and whatever else ``send`` raises.
        """
        course = _CallCourse(operation)
        last: AttemptFailed | None = None
        while True:
            try:
                return self._try_once(course, send)
            except Stopped:
                raise course.ending(last, stopped=True) from last
            except AttemptFailed as failed:
                last = failed
                wait = self._wait_after(course, failed, repeatable=repeatable)
                if wait is None:
                    raise course.ending(failed) from failed
            log = structlog.stdlib.get_logger(__name__)
            log.warning(
                "call_repeated", operation=operation, reason=last.reason, tries=course.tries, wait=round(wait, 2)
            )
            if not isinstance(last, Throttled):
                # After throttling the limiter holds every call back, this one among them.
                self._pause(wait)

    def is_worth_waiting(self, throttled: Throttled) -> bool:
        """Whether the backend says when to come back, and that is soon."""
        asked = retry_after_seconds(throttled.retry_after, self._clock())
        return asked is not None and asked <= self._policy.retry_after_cap

    def _try_once(self, course: _CallCourse, send: Callable[[], ResultT]) -> ResultT:
        with self._limiter.slot() as began:
            if not self._may_send():
                raise Stopped
            course.tries += 1
            try:
                result = send()
            except Throttled as throttled:
                throttled.wait = self._throttle_wait(course, throttled)
                self._limiter.throttled(began, throttled.wait)
                raise
            except ClientError:
                # Refused, but not for being too fast.
                self._limiter.went_well()
                raise
            self._limiter.went_well()
            return result

    def _wait_after(self, course: _CallCourse, failed: AttemptFailed, *, repeatable: bool) -> float | None:
        """Seconds until the next try; None when there is none."""
        if isinstance(failed, Throttled):
            wait = failed.wait
            course.throttles += 1
            if course.waited + wait > self._policy.max_waiting:
                return None
            course.waited += wait
            return wait
        course.unclear |= isinstance(failed, Unclear)
        hopeless = isinstance(failed, Unreached) and failed.hopeless
        if hopeless or (isinstance(failed, Unclear) and not repeatable) or course.failures >= self._policy.repeats:
            return None
        course.failures += 1
        return self._policy.backoff(course.failures - 1, self._random)

    def _throttle_wait(self, course: _CallCourse, throttled: Throttled) -> float:
        asked = retry_after_seconds(throttled.retry_after, self._clock())
        if asked is None:
            return self._policy.backoff(course.throttles, self._random)
        return min(asked, self._policy.retry_after_cap)
