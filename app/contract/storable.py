"""Checks that a request can be stored: valid text, limited nesting.

It checks all fields, because models check only declared fields, and unknown fields are stored as well.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from app.contract import limits
from app.contract.errors import InvalidArgument
from app.contract.validation import field_path


class _Node(NamedTuple):
    """A container within a request body, and the way to it."""

    value: dict[object, object] | list[object]
    step: int | str
    parent: "_Node | None"


def refuse_unstorable(data: dict[object, object]) -> None:
    """Refuses NUL, lone surrogates and endless nesting anywhere in ``data``, unknown fields included.

    Level by level and without recursion, so that no depth of nesting can exhaust the stack.
    """
    if _is_surely_storable(data):
        return
    level = [_Node(data, "data", None)]
    for _ in range(limits.NESTING):
        below: list[_Node] = []
        for node in level:
            for step, value in _entries(node):
                if isinstance(value, str):
                    if not is_storable(value):
                        problem = "must not contain NUL" if "\0" in value else "must be valid Unicode text"
                        raise InvalidArgument(f"{_trail(node, step)}: {problem}")
                elif isinstance(value, dict | list):
                    below.append(_Node(value, step, node))
        if not below:
            return
        level = below
    raise InvalidArgument(f"data: must not be nested deeper than {limits.NESTING} levels")


def _is_surely_storable(data: dict[object, object]) -> bool:
    """The quick way for the usual case; False sends the caller the slow way, which finds the place if there is one.

    The encoder refuses lone surrogates and writes NUL as an escape, many times faster than a loop could look.
    """
    try:
        if b"\\u0000" in orjson.dumps(data):
            return False
    except orjson.JSONEncodeError:
        return False
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


def _entries(node: _Node) -> Iterator[tuple[int | str, object]]:
    if isinstance(node.value, list):
        yield from enumerate(node.value)
        return
    for key, value in node.value.items():
        if not isinstance(key, str) or not is_storable(key):
            raise InvalidArgument(f"{_trail(node)}: has a key that is not valid text")
        yield key, value


def is_storable(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _trail(node: _Node, *last: int | str) -> str:
    steps = list(last)
    while node.parent is not None:
        steps.insert(0, node.step)
        node = node.parent
    return field_path("data", steps)
