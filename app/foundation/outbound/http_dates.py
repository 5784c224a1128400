"""Dates in headers of HTTP, and ``Retry-After``."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def http_date(header: str) -> datetime | None:
    """The moment of a date in a header. None if it is absent or invalid."""
    try:
        moment = parsedate_to_datetime(header)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """The seconds of a ``Retry-After`` header: a number, or the time until a date. None if it is absent, invalid or
    not in the future."""
    text = (header or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        moment = http_date(text)
        seconds = 0.0 if moment is None else moment.timestamp() - now.timestamp()
    return seconds if seconds > 0 else None
