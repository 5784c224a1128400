"""An upper bound for the size of an expression's result, computed from its values before it is evaluated.

The library has no limit: two chained ``replace`` make gigabytes of a thousand letters, which users can often write. The
bound may be too high, but never too low.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from app.directory.mapping.expression_tree import (
    LOOP,
    Node,
    children,
    inner,
    loop_parts,
    operands,
    path_of,
    text_constant,
)

MAX_RESULT = 1_000_000
"""The maximum of characters, and of list elements, of any part of an expression."""

_MAX_ITERATIONS = 10_000
"""The library's limit for all loops of an expression together."""

_NUMBER = 24
"""Characters of a number, a time, true or false."""

_FORMATTED = 1_100
"""The maximum of characters that a directive of ``format`` adds to its argument."""


class TooLargeError(Exception):
    """A part of an expression could exceed ``MAX_RESULT``."""


class Size(NamedTuple):
    """The maximum size of a value."""

    text: int
    """Characters of the text, or of the longest element of a list."""
    total: int
    """Characters of all elements, plus one for each. Within a loop, the average."""
    elements: int = 1
    """Elements of a list; otherwise 1."""
    is_list: bool = False

    @property
    def largest(self) -> int:
        """Characters of the whole value, also within a loop."""
        return (self.text + 1) * self.elements if self.is_list else self.text


_SMALL = Size(_NUMBER, _NUMBER)
_NOTHING = Size(0, 0, 0, is_list=True)

Sizes = Mapping[str, "Mapping[str, object] | Size"]
"""Variable → its value, or the size of a loop variable."""

SizeOf = Callable[[Sizes], Size]
"""The size of a result. Raises ``TooLargeError``."""


def size_bound(tree: Node) -> SizeOf | None:
    """The size of the result of an expression; None if it cannot exceed that of its values."""
    return _size(tree) if _grows(tree) else None


def _grows(node: Node) -> bool:
    name, arguments = operands(node)
    return (
        (name != "" and name in _GROWING)
        or inner(node, LOOP) is not None
        or any(map(_grows, (*arguments, *children(node))))
    )


def size_of(value: object) -> Size:
    """The exact size of a plain value."""
    if isinstance(value, str):
        return Size(len(value), len(value))
    if isinstance(value, list):
        sizes = [size_of(one).largest for one in value]
        return Size(max(sizes, default=0), sum(sizes) + len(sizes), len(sizes), is_list=True)
    if isinstance(value, dict):
        total = sum(len(name) + size_of(one).largest + 1 for name, one in value.items())
        return Size(total, total, max(1, len(value)), is_list=True)
    return _SMALL


def _size(node: Node) -> SizeOf:
    path = path_of(node)
    if path is not None:
        return partial(_attribute, *path)
    text = text_constant(node)
    if text is not None:
        constant = size_of(text)
        return lambda _: constant
    loop = inner(node, LOOP)
    if loop is not None:
        return _loop(loop)
    function, arguments = operands(node)
    nodes = arguments if function else children(node)
    if not nodes:
        return lambda _: _SMALL
    parts, constants = [_size(one) for one in nodes], [text_constant(one) for one in nodes]
    grows = function in _GROWING
    combine = _GROWING[function] if grows else _OTHERS.get(function, _other)

    def size(values: Sizes) -> Size:
        found = combine([part(values) for part in parts], constants)
        return _checked(found) if grows else found

    return size


def _checked(size: Size) -> Size:
    if size.total > MAX_RESULT or size.elements > MAX_RESULT:
        raise TooLargeError
    return size


def _attribute(variable: str, names: Sequence[str], values: Sizes) -> Size:
    value: object = values.get(variable)
    if isinstance(value, Size):
        # A part of a list element is at most as large as the element.
        return value._replace(elements=max(1, value.largest), is_list=True) if names else value
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return size_of(dict(value) if isinstance(value, Mapping) else value)


def _loop(loop: Node) -> SizeOf:
    """``map``, ``filter``, ``exists`` and others: each step adds to the accumulator."""
    variables, accumulator, parts = loop_parts(loop)
    range_, start, condition, step, result = map(_size, parts)

    def size(values: Sizes) -> Size:
        over, before = range_(values), start(values)
        count = min(over.elements, _MAX_ITERATIONS)
        element = Size(over.text, over.total // max(1, over.elements) + 1)
        inside = {**values, **dict.fromkeys(variables, element), accumulator: _NOTHING}
        condition(inside)
        added = step(inside)
        accumulated = Size(
            max(before.text, added.text),
            before.total + count * added.total,
            before.elements + count * added.elements,
            added.is_list,
        )
        return _checked(result({**values, accumulator: accumulated}))

    return size


# Functions: from the sizes of the arguments, and their text if they are constants.

_Combine = Callable[[Sequence[Size], Sequence[str | None]], Size]


def _collected(sizes: Sequence[Size], _: Sequence[str | None]) -> Size:
    """A list or a map in the expression."""
    total = sum(size.total for size in sizes) + len(sizes)
    return Size(max(size.largest for size in sizes), total, len(sizes), is_list=True)


def _added(sizes: Sequence[Size], _: Sequence[str | None]) -> Size:
    left, right = sizes
    if left.is_list or right.is_list:
        text = max(left.text, right.text)
        return Size(text, left.total + right.total, left.elements + right.elements, is_list=True)
    return Size(left.text + right.text, left.total + right.total)


def _replaced(sizes: Sequence[Size], constants: Sequence[str | None]) -> Size:
    text, new, old_length = sizes[0], sizes[2], max(1, len(constants[1] or ""))
    return Size(
        text.text + (text.text // old_length + 1) * new.text, text.total + (text.total // old_length + 1) * new.text
    )


def _split(sizes: Sequence[Size], constants: Sequence[str | None]) -> Size:
    text, separator_length = sizes[0], max(1, len(constants[1] or ""))
    total = text.total + text.total // separator_length + 1
    return Size(text.text, total, text.text // separator_length + 1, is_list=True)


def _joined(sizes: Sequence[Size], _: Sequence[str | None]) -> Size:
    texts = sizes[0]
    separator = sizes[1].text if len(sizes) > 1 else 0
    return Size(texts.largest + texts.elements * separator, texts.total + texts.elements * separator)


def _formatted(sizes: Sequence[Size], _: Sequence[str | None]) -> Size:
    text, arguments = sizes
    more = 2 * arguments.largest + _FORMATTED * arguments.elements
    return Size(text.text + more, text.total + more)


def _quoted(sizes: Sequence[Size], _: Sequence[str | None]) -> Size:
    return Size(6 * sizes[-1].text + 2, 6 * sizes[-1].total + 2)


def _small(_: Sequence[Size], __: Sequence[str | None]) -> Size:
    return _SMALL


def _chosen(sizes: Sequence[Size], _: Sequence[str | None]) -> Size:
    one, other = sizes[1:]
    elements, is_list = max(one.elements, other.elements), one.is_list or other.is_list
    return Size(max(one.text, other.text), max(one.total, other.total), elements, is_list)


def _other(sizes: Sequence[Size], _: Sequence[str | None]) -> Size:
    # The upper case of a letter can have three letters, for example of a ligature.
    return Size(
        3 * sum(size.text for size in sizes) + _NUMBER,
        3 * sum(size.total for size in sizes) + _NUMBER,
        max(size.elements for size in sizes),
        any(size.is_list for size in sizes),
    )


_GROWING: Mapping[str, _Combine] = {
    "": _collected,
    "_+_": _added,
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "format": _formatted,
    "strings.quote": _quoted,
}
"""Functions whose result can be larger than their arguments. A list or a map has no function."""

_OTHERS: Mapping[str, _Combine] = {
    "_?_:_": _chosen,
    **dict.fromkeys(("_&&_", "_||_", "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in"), _small),
    **dict.fromkeys(("size", "startsWith", "endsWith", "contains", "matches", "indexOf", "lastIndexOf"), _small),
    "@not_strictly_false": _small,
}
