"""Finds misspelled names.

A misspelled field would be ignored: a grant with ``expires_at`` would never end. So a name that is *near* a known one
is an error: the same letters in another case or with other separators (``expires_at``, ``ExpiresAt``,
``"expiresAt "``), or with one letter inserted, missing or changed, or two swapped.
"""

import difflib
from collections.abc import Iterable

_MAX_LENGTH = 80
"""Longer names are not compared."""


def bare(name: str) -> str:
    """The name's letters and digits, in one case."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _is_near(one: str, other: str) -> bool:
    """Whether two bare names differ in one letter at most, or in two swapped neighbours."""
    if one == other:
        return True
    if abs(len(one) - len(other)) > 1:
        return False
    start = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if start is None:
        return True
    rest, other_rest = one[start:], other[start:]
    if len(rest) == len(other_rest):
        return rest[1:] == other_rest[1:] or (rest[1::-1] == other_rest[:2] and rest[2:] == other_rest[2:])
    longer, shorter = (rest, other_rest) if len(rest) > len(other_rest) else (other_rest, rest)
    return longer[1:] == shorter


def intended_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is near, preferably one with the same letters. None if there is none."""
    if len(name) > _MAX_LENGTH:
        return None
    plain = bare(name)
    near = [candidate for candidate in known if _is_near(plain, bare(candidate))]
    return min(near, key=lambda candidate: bare(candidate) != plain, default=None)


def resembling(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The most similar known name, for a hint. None if none is similar."""
    by_bare = {bare(candidate): candidate for candidate in known}
    matches = difflib.get_close_matches(bare(name[:_MAX_LENGTH]), by_bare, n=1, cutoff=cutoff)
    return by_bare[matches[0]] if matches else None
