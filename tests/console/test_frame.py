"""The frame: what it weighs, what it draws, and that another blueprint's pages may stand in it."""

import gzip
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

from app.console.console import Link, Look
from app.console.frame.charts import curve
from app.console.frame.rendering import make_environment

STATIC = files("app.console.frame").joinpath("static")


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
        principal=SimpleNamespace(name="Mira", role="viewer"),
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
