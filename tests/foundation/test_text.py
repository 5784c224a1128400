"""Untrusted text on a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.foundation.text import named, printable, quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Elif Yılmaz", "Elif Yılmaz"),
        ("日本 🙂 👩\u200d🔬", "日本 🙂 👩\u200d🔬"),
        ("\x1b[31mred", "·[31mred"),
        ("a\nb\tc\rd", "a b c d"),
        ("a\u2028b\u2029c", "a b c"),
        ("evil\u202etxt", "evil·txt"),
        ("\x00\x7f\x9b", "···"),
        ("\ud800", "·"),
    ],
)
def test_printable_keeps_letters_and_drops_controls(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_printable_cuts_at_the_limit() -> None:
    assert printable("abcdef", limit=4) == "abc…"
    assert printable("abcd", limit=4) == "abcd"


@given(st.text())
def test_printable_is_one_line_that_any_terminal_can_encode(text: str) -> None:
    displayed = printable(text)
    assert len((displayed + "x").splitlines()) == 1
    assert displayed.encode("utf-8").decode("utf-8") == displayed


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [
        ("ada", "ada"),
        ("Elif Yılmaz", "Elif Yılmaz"),
        ("a\x1b[31m", r"'a\x1b[31m'"),
        ("\ud800", r"'\ud800'"),
        ("x" * 81, "x" * 80 + "…"),
    ],
)
def test_named_escapes_unprintable_names(identifier: str, shown: str) -> None:
    assert named(identifier, limit=80) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("ada", "'ada'"),
        ("Elif Yılmaz", "'Elif Yılmaz'"),
        ("a\nb\u202e", r"'a\nb\u202e'"),
        (["a\n"], r"['a\n']"),
        (True, "True"),
        ("x" * 1_000_000, "'" + "x" * 59 + "…"),
    ],
)
def test_quoted_values_are_short_and_printable(value: object, shown: str) -> None:
    assert quoted(value) == shown
