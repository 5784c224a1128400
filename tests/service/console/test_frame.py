"""The frame: what it weighs, what it draws, and that another blueprint's pages may stand in it."""

import gzip
import re
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

from app.service.console.console import Link, Look
from app.service.console.frame.charts import Bar, bars, curve
from app.service.console.frame.rendering import make_environment

STATIC = files("app.service.console.frame").joinpath("static")


def test_script_and_stylesheet_are_small() -> None:
    script, style = (STATIC.joinpath(name).read_bytes() for name in ("console.js", "console.css"))
    assert len(script.splitlines()) <= 200
    assert len(gzip.compress(script)) + len(gzip.compress(style)) <= 15 * 1024


def test_others_pages_stand_in_the_frame(tmp_path: Path) -> None:
    (tmp_path / "own.html").write_text('{% extends "frame.html" %}{% block content %}<h1>{{ says }}</h1>{% endblock %}')
    names = {"asset": str, "page": lambda name: f"/other/{name}", "home": "/other/", "brand_name": ""}
    page = make_environment(tmp_path, names).get_template("own.html")
    html = page.render(
        says="<Its own>",
        look=Look(),
        operator=SimpleNamespace(name="Mira", role="viewer"),
        token="t",
        here="/other/own",
        menu=(("Things", (Link("own", "Own", "/other/own", "o", 3, "warn", "held"),)),),
        current="own",
        search=SimpleNamespace(href="/other/search", says="Search things", text='"'),
    )
    assert "<h1>&lt;Its own&gt;</h1>" in html
    assert 'href="/other/own" aria-current="page" data-key="o"' in html
    assert 'value="&#34;" placeholder="Search things"' in html
    assert "/console" not in html


def test_a_curve_is_as_high_as_its_highest_value() -> None:
    drawn = curve([0, 5, 10], "from 0 to 10", denied=[0, 0, 5])
    assert '<path d="M0.0 55.0 L160.0 28.0 L320.0 1.0"/>' in drawn
    assert '<path class="bad" d="M0.0 55.0 L160.0 55.0 L320.0 28.0"/>' in drawn
    assert curve([3], "one") == ""
    assert 'class="bad"' not in curve([3, 4], "nobody was denied", denied=[0, 0])
    assert "NaN" not in curve([0, 0], "nothing")


def test_the_last_bar_stands_at_the_right() -> None:
    for many in (1, 48, 96):
        drawn = bars([Bar(size, "good", f"run {size}") for size in range(many)], "runs")
        *_, (left, width) = re.findall(r'x="([0-9.]+)" y="[-0-9.]+" width="([0-9.]+)"', drawn)
        assert 318 < float(left) + float(width) <= 320
    assert bars([], "no runs") == ""


def test_where_there_is_no_value_a_curve_has_a_gap() -> None:
    drawn = curve([None, 8, 4, None, 8], "three")
    assert re.findall(r'<path d="([^"]*)"/>', drawn) == ["M80.0 1.0 L160.0 28.0", "M280.0 1.0 L320.0 1.0"]
    assert '<path class="ground" d="M80.0 1.0 L160.0 28.0 L160.0 56 L80.0 56 Z"/>' in drawn
    assert "<path" not in curve([None, None], "nothing was there")
    assert 'aria-label="nothing was there"' in curve([None, None], "nothing was there")


def test_a_time_of_another_year_says_so(tmp_path: Path) -> None:
    (tmp_path / "own.html").write_text("{{ at|when }} {{ at|when(now) }}")
    page = make_environment(tmp_path, {}).get_template("own.html")
    now = datetime(2026, 1, 3, tzinfo=UTC)
    for at, shown, ago in (
        (datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), "1 Jan 00:00:01", "1 d ago"),
        (datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC), "31 Dec 2025 23:59:59", "2 d ago"),
        (datetime(2025, 1, 3, tzinfo=UTC), "3 Jan 2025 00:00:00", "3 Jan 2025"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "31 Dec 2025 23:00:00", "2 d ago"),
    ):
        html = page.render(at=at, now=now)
        assert re.findall(r">([^<]+)</time>", html) == [shown, ago]
        assert f'title="{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"' in html
    assert re.findall(r">([^<]+)</time>", page.render(at=now, now=None)) == ["3 Jan 2026 00:00:00"] * 2
