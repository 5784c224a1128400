"""The retry policy of webhook deliveries. Times are epoch milliseconds."""

import random
from datetime import timedelta

DELAYS = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    *(timedelta(hours=hours) for hours in (2, 5, 10, 14, 20, 24)),
)
"""From each failed attempt to the next: ten attempts in a little more than three days."""

JITTER = 0.2
"""The maximum random extension of a delay, as a fraction of it."""

MAX_AGE = timedelta(days=5)
"""After this time a delivery is given up, even if it had fewer attempts because of others to the same target."""

MIN_FAILING = timedelta(days=2)
"""An endpoint without a success for a shorter time is not disabled."""

MAX_RETRY_AFTER = timedelta(days=1)
"""The longest respected ``Retry-After``."""

_MAX_BACKOFF_S = 300


def next_attempt_at(
    attempts: int, now: int, first_failed_at: int, retry_after_s: float, entropy: random.Random
) -> int | None:
    """The time of the next attempt after ``attempts`` failed ones. None to give up."""
    if attempts > len(DELAYS) or now - first_failed_at >= MAX_AGE.total_seconds() * 1000:
        return None
    delay = DELAYS[attempts - 1].total_seconds() * (1 + JITTER * entropy.random())
    return now + int(max(delay, min(retry_after_s, MAX_RETRY_AFTER.total_seconds())) * 1000)


def is_failing(now: int, first_failed_at: int, delivered_at: int) -> bool:
    """Whether a target had no success since ``first_failed_at``, and that is long ago."""
    return delivered_at < first_failed_at and now - first_failed_at >= MIN_FAILING.total_seconds() * 1000


def backoff_ms(failures: int) -> int:
    """The pause of a target after so many failures in a row, in ms: other deliveries would probably fail too."""
    return 1000 * int(min(2 ** min(failures - 1, 20), _MAX_BACKOFF_S))
