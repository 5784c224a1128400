"""How is text from elsewhere put on a terminal without letting it act there?"""

import unicodedata


def printable(text: str, *, limit: int | None = None) -> str:
    """The text on one line: control and formatting characters (also those that reverse the direction) become ``·``."""
    shown = "".join(_shown(character) for character in text)
    return shown if limit is None or len(shown) <= limit else shown[: limit - 1] + "…"


def _shown(character: str) -> str:
    category = unicodedata.category(character)
    # Zl, Zp: Unicode's own ends of a line and of a paragraph.
    if character in "\n\r\t" or category in {"Zl", "Zp"}:
        return " "
    # Cc, Cf, Cs, Co, Cn: controls, directions, surrogates, private, unassigned; the joiner of emoji is harmless.
    return "·" if category.startswith("C") and character != "\u200d" else character
