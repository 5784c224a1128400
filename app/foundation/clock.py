"""The clock, and moments as epoch milliseconds and as text.

Moments are always rounded down, so that a stored moment is never in the future, and both forms have the same
millisecond.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""The current time, in UTC."""
Sleep = Callable[[float], None]
"""Waits so many seconds."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def utc_now() -> datetime:
    """The time, by the machine's clock."""
    return datetime.now(UTC)


def epoch_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down: the form in which times are stored and sent."""
    since = moment - EPOCH
    # A third of the time that dividing by a timedelta takes; every grant of a permission call comes by here.
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def from_epoch_ms(milliseconds: int) -> datetime:
    """The moment, in UTC, so many milliseconds after the epoch. Raises ``OverflowError`` beyond the year 9999."""
    return EPOCH + _MILLISECOND * milliseconds


def utc_text(moment: datetime) -> str:
    """``2026-11-20T12:00:00.000Z``: UTC with milliseconds, if the contract has no other form."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
