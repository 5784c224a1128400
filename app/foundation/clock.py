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
FIRST_MS = 10**11
"""In March 1973. A caller's smaller number is a year, or seconds."""


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


def parse_time(value: object) -> datetime:
    """The moment of an ISO 8601 text with a zone, or of epoch milliseconds from ``FIRST_MS``.

    Raises ``ValueError`` with advice.
    """
    try:
        moment = _moment(value)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise ValueError(_TIME_ADVICE)
    if moment.year > _LAST_YEAR:
        raise ValueError(f"must be before the end of the year {_LAST_YEAR}")
    return moment


def _moment(value: object) -> datetime | None:
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        moment = datetime.fromisoformat(value)
        return None if moment.tzinfo is None else moment.astimezone(UTC)
    if isinstance(value, str) or type(value) is int:
        milliseconds = int(value)
        return from_epoch_ms(milliseconds) if milliseconds >= FIRST_MS else None
    return None


_TIME_ADVICE = "write a time with a zone, such as 2026-11-20T12:00:00Z, or epoch milliseconds"
_LAST_YEAR = 9998
"""A decision may add a lifetime to the moment, which must not exceed the year 9999."""


def utc_text(moment: datetime, *, timespec: str = "milliseconds") -> str:
    """``2026-11-20T12:00:00.000Z``: UTC with milliseconds, or another precision of ``isoformat``."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
