"""Makes untrusted text safe to print, and turns counts, lists and values into text."""

import math
import unicodedata
from collections.abc import Sequence

_MAX_QUOTED = 60
_EXACT = 2**63
"""JSON readers may change larger integers."""


def printable(text: str, *, limit: int | None = None) -> str:
    """The text on one line: control and formatting characters, also those that reverse the direction, become ``·``."""
    line = "".join(_printable_character(character) for character in text)
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def named(identifier: str, *, limit: int | None = None) -> str:
    """An id or a name within a sentence: unchanged if it is printable, otherwise quoted and escaped."""
    short = identifier if limit is None or len(identifier) <= limit else f"{identifier[:limit]}…"
    return short if short.isprintable() else ascii(short)


def quoted(value: object) -> str:
    """Any value within a sentence: its ``repr``, escaped if it is not printable, and shortened."""
    if isinstance(value, str):
        value = value[: _MAX_QUOTED + 1]
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"


def _printable_character(character: str) -> str:
    category = unicodedata.category(character)
    # Zl, Zp: Unicode's line and paragraph separators.
    if character in "\n\r\t" or category in {"Zl", "Zp"}:
        return " "
    # Categories C*: controls, directions, surrogates, private, unassigned. The joiner of emoji is harmless.
    return "·" if category.startswith("C") and character != "\u200d" else character


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: ``1 item``, ``1,200 items``. ``plural``: that of an irregular noun."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def were(number: int) -> str:
    return "was" if number == 1 else "were"


def enumerated(words: Sequence[str]) -> str:
    """A list within a sentence: ``a, b, and c``."""
    if len(words) < 3:
        return " and ".join(words)
    return f"{', '.join(words[:-1])}, and {words[-1]}"


def value_text(value: object) -> str | None:
    """The value of a context field as text, for comparison. None if it is neither text nor a number in range.

    Whole numbers have no fraction (2 and 2.0 are ``2``, -0.0 is ``0``). Others have Python's shortest form (``1.5``,
    ``1e-07``, ``1e+300``). Booleans are not numbers.
    """
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value) if -_EXACT <= value <= _EXACT else None
    if type(value) is float and math.isfinite(value):
        return str(int(value)) if value.is_integer() and -_EXACT <= value <= _EXACT else repr(value)
    return None
