"""Ids: their maximum size, and the texts that databases can store."""

MAX_ID_BYTES = 512
"""The maximum size of an id in UTF-8. Five of them must fit into an index entry of PostgreSQL (2,704 bytes)."""


def may_be_stored(*texts: str) -> bool:
    """Whether databases can store the texts: they contain neither NUL nor lone surrogates."""
    return not any("\0" in text or not (text.isascii() or _is_unicode(text)) for text in texts)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
