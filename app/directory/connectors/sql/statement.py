"""A query as somebody wrote it: one statement that can stand in parentheses."""

import re
from functools import lru_cache

_QUOTED = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \$(\w*)\$.*?\$\1\$ | --[^\n]* | /\*.*?\*/""", re.DOTALL | re.VERBOSE
)
"""What is no syntax: texts, names in quotes, comments."""


@lru_cache(maxsize=256)
def tidy(text: str) -> str:
    """The query without the semicolon and the white space around it.

    Raises ``ValueError`` for what is not one statement: text after a semicolon, or a parenthesis that closes what the
    query did not open. A query is wrapped in parentheses, and nothing of it may stand outside them.
    """
    query = text.strip()
    while query.endswith(";"):
        query = query[:-1].rstrip()
    if not query:
        raise ValueError("is empty; write a SELECT")
    if "\0" in query:
        raise ValueError("contains a NUL character")
    bare = _QUOTED.sub(" ", query)
    if ";" in bare:
        raise ValueError("is more than one statement; a query is one SELECT")
    depth = 0
    for sign in re.findall(r"[()]", bare):
        depth += 1 if sign == "(" else -1
        if depth < 0:
            break
    if depth:
        raise ValueError("has a parenthesis too many or too few")
    return query


def wrapped(query: str) -> str:
    """The query as a table called ``q``, for a statement around it; SQLAlchemy's text, with every colon its own.

    The line break ends a comment that the query may end in.
    """
    return "(\n" + verbatim(query) + "\n) q"


def verbatim(query: str) -> str:
    """The query as SQLAlchemy's ``text`` takes it for itself: a colon in it begins no parameter."""
    return query.replace(":", "\\:")
