"""The schedule of tries: when is a delivery tried again, and when is it given up?"""

import random
from datetime import timedelta

DELAYS = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""From a failed attempt to the next: ten attempts, over a little more than three days."""

JITTER = 0.2
"""By how much of itself a delay is stretched at most, so that what failed together does not come back together."""

PATIENCE = timedelta(days=5)
"""After so long a delivery is given up even if fewer attempts were made, because others to the same target were before
it."""

DISABLED_AFTER = timedelta(days=2)
"""An endpoint to which nothing got through for less than that is not disabled when a message is given up."""

LONGEST_WISH = timedelta(days=1)
"""A receiver's ``Retry-After`` is heeded up to here."""

_LONGEST_PAUSE_S = 300


def next_attempt(attempts: int, now: int, first_failed_at: int, asked_s: float, entropy: random.Random) -> int | None:
    """When to try again after ``attempts`` failed ones, in epoch milliseconds; None: never.

    ``asked_s`` is what the receiver asked for, in seconds.
    """
    if attempts > len(DELAYS) or now - first_failed_at >= PATIENCE.total_seconds() * 1000:
        return None
    delay = DELAYS[attempts - 1].total_seconds() * (1 + JITTER * entropy.random())
    return now + int(max(delay, min(asked_s, LONGEST_WISH.total_seconds())) * 1000)


def fails_for_days(now: int, first_failed_at: int, delivered_at: int) -> bool:
    """Whether nothing got through since ``first_failed_at``, and that is long ago; all in epoch milliseconds."""
    return delivered_at < first_failed_at and now - first_failed_at >= DISABLED_AFTER.total_seconds() * 1000


def pause(failures: int) -> int:
    """How long a target is left alone after so many failed attempts in a row, in milliseconds: other deliveries to it
    would most likely fail as well, and hold up those to others.
    """
    return 1000 * int(min(2 ** min(failures - 1, 20), _LONGEST_PAUSE_S))
