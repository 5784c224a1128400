"""Times as milliseconds and as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.foundation.clock import EPOCH, epoch_ms, from_epoch_ms, parse_time, utc_text

LATEST = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        (EPOCH, 0),
        (EPOCH + timedelta(seconds=1), 1000),
        (EPOCH + timedelta(microseconds=999), 0),
        (EPOCH + timedelta(microseconds=1999), 1),
        (EPOCH - timedelta(microseconds=1), -1),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (LATEST, 253_402_300_799_999),
    ],
)
def test_milliseconds_are_rounded_down(moment: datetime, ms: int) -> None:
    assert epoch_ms(moment) == ms


@given(st.datetimes(timezones=st.just(UTC)))
def test_milliseconds_round_trip(moment: datetime) -> None:
    back = from_epoch_ms(epoch_ms(moment))

    assert timedelta(0) <= moment - back < timedelta(milliseconds=1)
    assert epoch_ms(back) == epoch_ms(moment)
    assert utc_text(back) == utc_text(moment)


def test_text_is_in_utc_with_milliseconds() -> None:
    moment = datetime(2026, 11, 20, 13, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))

    assert utc_text(moment) == "2026-11-20T12:00:00.999Z"


def test_times_beyond_the_calendar_are_refused() -> None:
    with pytest.raises(OverflowError):
        from_epoch_ms(epoch_ms(LATEST) + 1)


@pytest.mark.parametrize("value", [1763640000000, "1763640000000", "2025-11-20T12:00:00Z", "2025-11-20T13:00:00+01:00"])
def test_times_of_callers(value: object) -> None:
    assert parse_time(value) == datetime(2025, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "noon",
        "2025-11-20",
        "2025-11-20T12:00:00",
        "0001-01-01T00:00:00+05:00",
        "9998-12-31T23:00:00-05:00",
        "9" * 30,
        "2027",
        2027,
        1795168800,
        -1,
        1.0,
        True,
        None,
        [],
    ],
)
def test_unusable_times_of_callers(value: object) -> None:
    with pytest.raises(ValueError, match=r"write a time with a zone|before the end of the year"):
        parse_time(value)
