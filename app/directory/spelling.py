"""Misspelt names, and the known ones that were meant.

A field that decides about access is as good as missing under another name: a grant with ``expires_at`` never ends, a
document with ``accesstype: restricted`` is open. So a name that is *near* a known one is not taken for anything else:
the same letters in another case or with other separators (``expires_at``, ``ExpiresAt``, ``"expiresAt "``), or with one
letter inserted, missing, changed, or two swapped.
"""

import difflib
from collections.abc import Iterable

_LONGEST = 80
"""Characters of a name beyond which nobody looks for what it resembles."""


def bare(name: str) -> str:
    """The name's letters and digits, in one case."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def is_near(one: str, other: str) -> bool:
    """Whether two bare names differ by one letter at most: inserted, missing or changed, or two neighbours swapped."""
    if one == other:
        return True
    if abs(len(one) - len(other)) > 1:
        return False
    start = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if start is None:
        return True
    rest, of_other = one[start:], other[start:]
    if len(rest) == len(of_other):
        return rest[1:] == of_other[1:] or (rest[1::-1] == of_other[:2] and rest[2:] == of_other[2:])
    longer, shorter = (rest, of_other) if len(rest) > len(of_other) else (of_other, rest)
    return longer[1:] == shorter


def meant(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one is near, if any; the one with the same letters first."""
    if len(name) > _LONGEST:
        return None
    plain = bare(name)
    near = [one for one in known if is_near(plain, bare(one))]
    return min(near, key=lambda one: bare(one) != plain, default=None)


def resembling(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that looks most like this one, for a hint; None when none does."""
    by_bare = {bare(one): one for one in known}
    found = difflib.get_close_matches(bare(name[:_LONGEST]), by_bare, n=1, cutoff=cutoff)
    return by_bare[found[0]] if found else None
