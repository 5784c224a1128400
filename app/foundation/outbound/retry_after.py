"""The header ``Retry-After``."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """The seconds of a ``Retry-After`` header: a number, or the time until a date. None if it is absent, invalid or
    not in the future."""
    text = (header or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return seconds if seconds > 0 else None
