"""The current time, and conversions of times to epoch milliseconds and to text.

Conversions to milliseconds and to text round down, so that a stored time is never in the future.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""Returns the current time, in UTC."""
Sleep = Callable[[float], None]
"""Waits the given number of seconds."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc_now() -> datetime:
    """The current time of this machine."""
    return datetime.now(UTC)


def epoch_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down: the form in which times are stored and sent."""
    since = moment - EPOCH
    # A third of the time of a division by a timedelta. Permission calls convert every grant.
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def from_epoch_ms(milliseconds: int) -> datetime:
    """The inverse of ``epoch_ms``. Raises ``OverflowError`` beyond the year 9999."""
    return EPOCH + timedelta(milliseconds=1) * milliseconds


def utc_text(moment: datetime) -> str:
    """``2026-11-20T12:00:00.000Z``: UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
