"""Tests of the size of the assets, of charts and of times."""

import gzip
import re
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files

import pytest

from app.service.console.charts import line_chart
from app.service.console.formatting import without_status
from app.service.console.rendering import make_environment

STATIC = files("app.service.console").joinpath("static")


def test_script_and_stylesheet_are_small() -> None:
    script, style = (STATIC.joinpath(name).read_bytes() for name in ("console.js", "console.css"))
    compressed = sum(len(gzip.compress(content, 9)) for content in (script, style))
    print(f"script and stylesheet, compressed: {compressed:,} bytes")
    assert compressed <= 12_000


def test_a_line_chart_is_scaled_to_its_maximum() -> None:
    drawn = line_chart([0, 5, 10], "from 0 to 10", denied=[0, 0, 5])
    assert '<path d="M0.0 55.0 L160.0 28.0 L320.0 1.0"/>' in drawn
    assert '<path class="bad" d="M0.0 55.0 L160.0 55.0 L320.0 28.0"/>' in drawn
    assert line_chart([3], "one") == ""
    assert 'class="bad"' not in line_chart([3, 4], "nobody was denied", denied=[0, 0])
    assert "NaN" not in line_chart([0, 0], "nothing")


def test_a_line_chart_has_gaps_without_values() -> None:
    drawn = line_chart([None, 8, 4, None, 8], "three")
    assert re.findall(r'<path d="([^"]*)"/>', drawn) == ["M80.0 1.0 L160.0 28.0", "M280.0 1.0 L320.0 1.0"]
    assert '<path class="ground" d="M80.0 1.0 L160.0 28.0 L160.0 56 L80.0 56 Z"/>' in drawn
    assert "<path" not in line_chart([None, None], "nothing was there")
    assert 'aria-label="nothing was there"' in line_chart([None, None], "nothing was there")


def test_a_time_of_another_year_has_its_year() -> None:
    page = make_environment({}).from_string("{{ at|when }} {{ at|when(now) }}")
    now = datetime(2026, 1, 3, tzinfo=UTC)
    for at, shown, ago in (
        (datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), "1 Jan 00:00:01", "2 d ago"),
        (datetime(2026, 1, 9, 23, 59, 1, tzinfo=UTC), "9 Jan 23:59:01", "in 7 d"),
        (datetime(2026, 1, 2, 0, 20, tzinfo=UTC), "2 Jan 00:20:00", "1 d ago"),
        (datetime(2026, 1, 2, 1, tzinfo=UTC), "2 Jan 01:00:00", "23 h ago"),
        (datetime(2026, 1, 2, 23, 0, 10, tzinfo=UTC), "2 Jan 23:00:10", "1 h ago"),
        (datetime(2026, 1, 2, 23, 59, 59, 800_000, tzinfo=UTC), "2 Jan 23:59:59", "now"),
        (datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC), "31 Dec 2025 23:59:59", "2 d ago"),
        (datetime(2025, 1, 3, tzinfo=UTC), "3 Jan 2025 00:00:00", "3 Jan 2025"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "31 Dec 2025 23:00:00", "2 d ago"),
    ):
        html = page.render(at=at, now=now)
        assert re.findall(r">([^<]+)</time>", html) == [shown, ago]
        assert f'title="{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"' in html
    assert re.findall(r">([^<]+)</time>", page.render(at=now, now=None)) == ["3 Jan 2026 00:00:00"] * 2


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("INVALID_ARGUMENT: name: too long", "name: too long"),
        ("INTERNAL: broken", "broken"),
        ("name: too long", "name: too long"),
        ("NOT_FOUND: ", "NOT_FOUND: "),
        ("A: b", "A: b"),
    ],
)
def test_messages_of_the_backend_are_shown_without_their_status(message: str, shown: str) -> None:
    assert without_status(message) == shown


def test_cells_have_the_name_of_their_column() -> None:
    page = make_environment({}).from_string(
        """{% from "macros.html" import num, table %}
        {% call table("Things", ("Thing", "Size & more", "Action"), num=("Size & more",), hidden=("Action",)) %}
        {% for name in ("<td>", "b") %}<tr class="x"><th scope="row">{{ name }}</th>{{ num(1) }}<td>{{ name }}</td></tr>
        {% endfor %}{% endcall %}"""
    )
    html = page.render()
    assert re.findall(r"<(?:th|td)\b[^>]*data-label[^>]*>", html) == [
        '<td data-label="Size &amp; more" class="num">',
        '<td data-label="Size &amp; more" class="num">',
    ]
    assert html.count("<td>&lt;td&gt;</td>") == 1
    assert '<th scope="col"><span class="hidden">Action</span></th>' in html
