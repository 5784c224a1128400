"""Makes untrusted text safe to print on a terminal or within a sentence."""

import unicodedata
from collections.abc import Sequence


def printable(text: str, *, limit: int | None = None) -> str:
    """The text on one line: control and formatting characters (also those that reverse the direction) become ``·``."""
    shown = "".join(_shown(character) for character in text)
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


def named(identifier: str, *, limit: int | None = None) -> str:
    """An id or a name within a sentence: as it is, or quoted and escaped where something in it could act."""
    short = identifier if limit is None or len(identifier) <= limit else f"{identifier[:limit]}…"
    return short if short.isprintable() else ascii(short)


def quoted(value: object, *, limit: int = 60) -> str:
    """Any value within a sentence: in quotes where it is text, escaped where something in it could act, and short."""
    if isinstance(value, str):
        value = value[: limit + 1]
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _shown(character: str) -> str:
    category = unicodedata.category(character)
    # Zl, Zp: Unicode's own ends of a line and of a paragraph.
    if character in "\n\r\t" or category in {"Zl", "Zp"}:
        return " "
    # Cc, Cf, Cs, Co, Cn: controls, directions, surrogates, private, unassigned; the joiner of emoji is harmless.
    return "·" if category.startswith("C") and character != "\u200d" else character


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one: ``1 item``, ``1,200 items``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def are(number: int) -> str:
    """The verb of so many."""
    return "is" if number == 1 else "are"


def enumerated(words: Sequence[str]) -> str:
    """Words as a list within a sentence: ``a, b, and c``."""
    if len(words) < 3:
        return " and ".join(words)
    return f"{', '.join(words[:-1])}, and {words[-1]}"
