"""Dates in headers of HTTP, and ``Retry-After``."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.foundation.outbound.http_dates import retry_after_seconds

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        (" 1.5 ", 1.5),
        ("Fri, 20 Nov 2026 12:01:00 GMT", 60),
        ("Fri, 20 Nov 2026 12:01:00 -0000", 60),
        ("Fri, 20 Nov 2026 11:59:00 GMT", None),
        ("0", None),
        ("-3", None),
        ("9" * 400, math.inf),
        ("nan", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_seconds_of_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, NOW) == seconds


@settings(deadline=None)
@given(st.text(max_size=30) | st.from_regex(r"[-+]?[0-9]{1,400}(\.[0-9]{1,5})?(e[0-9]{1,4})?", fullmatch=True))
def test_any_text_is_positive_or_nothing(header: str) -> None:
    seconds = retry_after_seconds(header, NOW)
    assert seconds is None or seconds > 0
