"""Checks that a request can be stored: valid text, limited nesting.

Undeclared fields are stored as well, so it checks all fields. The models check only declared ones.
"""

from typing import Any

import orjson

from app.contract import limits
from app.contract.errors import InvalidArgument
from app.contract.validation import field_path


def refuse_unstorable(data: dict[object, object]) -> None:
    """Raises ``InvalidArgument`` for NUL, a lone surrogate or too many levels of nesting anywhere in ``data``."""
    if not (_has_storable_text(data) and _is_shallow(data)):
        _check(data, ())


def is_storable(text: str) -> bool:
    """Whether the text contains neither NUL nor lone surrogates."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_storable_text(data: object) -> bool:
    """A fast check. False means that ``_check`` decides.

    orjson refuses lone surrogates and writes NUL as an escape, many times faster than a loop in Python.
    """
    try:
        return b"\\u0000" not in orjson.dumps(data)
    except orjson.JSONEncodeError:
        return False


def _is_shallow(data: dict[object, object]) -> bool:
    level: list[Any] = [data]
    for _ in range(limits.NESTING):
        level = [
            value
            for container in level
            for value in (container.values() if type(container) is dict else container)
            if type(value) is dict or type(value) is list
        ]
        if not level:
            return True
    return False


def _check(value: object, path: tuple[int | str, ...]) -> None:
    """Raises ``InvalidArgument`` with the path of the problem. The limit of nesting also bounds the recursion."""
    if isinstance(value, str) and not is_storable(value):
        problem = "must not contain NUL" if "\0" in value else "must be valid Unicode text"
        raise InvalidArgument(f"{field_path('data', path)}: {problem}")
    if isinstance(value, dict | list) and len(path) == limits.NESTING:
        raise InvalidArgument(f"data: must not be nested deeper than {limits.NESTING} levels")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or not is_storable(key):
                raise InvalidArgument(f"{field_path('data', path)}: has a key that is not valid text")
            _check(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _check(inner, (*path, number))
