"""An upper bound for the size of an expression's result, computed from its values before it is evaluated.

The library has no limit: two chained ``replace`` make gigabytes of a thousand letters, which users can often write. The
bound may be too high, but never too low.

A loop is bounded by its step for an empty element, once per element, and for one element that has the size of all
together. That requires superadditive rules in ``_result``: they add, multiply, and divide by constants, but do not
round or take a maximum.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from app.directory.mapping.expression_tree import (
    LOOP,
    Node,
    constant_length,
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

_FORMATTED = 1_200
"""The maximum of characters that a directive of ``format`` adds to its argument."""


class TooLargeError(Exception):
    """A part of an expression could exceed ``MAX_RESULT``."""


class Size(NamedTuple):
    """The maximum size of a value."""

    total: float
    """Characters, plus one for each element of a list or map, at any depth."""
    elements: float = 0
    """Elements of a list or map."""


_SMALL = Size(24)
"""A number, a time, true or false."""

Sizes = Mapping[str, "Mapping[str, object] | Size"]
"""Variable → its value, or the size of a loop variable."""

SizeOf = Callable[[Sizes], Size]
"""The size of a result. Raises ``TooLargeError``."""

_GROWING = frozenset({"_+_", "replace", "split", "join", "format", "strings.quote"})
"""Functions whose result can be larger than their arguments."""

_WITH_SMALL_RESULT = (
    *("_&&_", "_||_", "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "@not_strictly_false"),
    *("size", "startsWith", "endsWith", "contains", "matches", "indexOf", "lastIndexOf"),
)


def size_bound(tree: Node) -> SizeOf | None:
    """The size of the result of an expression. None if it cannot exceed that of its values."""
    return _size(tree) if _grows(tree) else None


def size_of(value: object) -> Size:
    """The exact size of a plain value."""
    if isinstance(value, str):
        return Size(len(value))
    if isinstance(value, Mapping | list):
        inner_values = [*value, *value.values()] if isinstance(value, Mapping) else value
        return Size(
            sum(size_of(inner_value).total for inner_value in inner_values) + len(inner_values), len(inner_values)
        )
    return _SMALL


def _grows(node: Node) -> bool:
    function, arguments = operands(node)
    return function in _GROWING or inner(node, LOOP) is not None or any(map(_grows, arguments))


def _size(node: Node) -> SizeOf:
    path, text, loop = path_of(node), text_constant(node), inner(node, LOOP)
    if path is not None:
        return partial(_attribute, *path)
    if loop is not None:
        return _loop(loop)
    function, arguments = operands(node)
    if text is not None or not arguments:
        constant = Size(max(_SMALL.total, constant_length(node))) if text is None else size_of(text)
        return lambda _: constant
    parts = [_size(argument) for argument in arguments]
    separator = text_constant(arguments[1]) if function in ("replace", "split") else None

    def size(values: Sizes) -> Size:
        result = _result(function, [part(values) for part in parts], separator)
        return _checked(result) if function in _GROWING or not function else result

    return size


def _attribute(variable: str, names: Sequence[str], values: Sizes) -> Size:
    value: object = values.get(variable)
    if isinstance(value, Size):
        return Size(value.total, value.total) if names else value
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return size_of(value)


def _loop(loop: Node) -> SizeOf:
    """``map``, ``filter``, ``exists`` and others: each step adds to the accumulator."""
    variables, accumulator, parts = loop_parts(loop)
    range_, start, condition, step, result = map(_size, parts)

    def size(values: Sizes) -> Size:
        def added(element: float) -> Size:
            inside = {**values, **dict.fromkeys(variables, Size(element, element)), accumulator: Size(0)}
            condition(inside)
            return step(inside)

        over = range_(values)
        begun, by_each, by_all = start(values), added(0), added(over.total)
        count = min(over.elements, _MAX_ITERATIONS)
        accumulated = Size(
            begun.total + count * by_each.total + by_all.total,
            begun.elements + count * by_each.elements + by_all.elements,
        )
        return _checked(result({**values, accumulator: accumulated}))

    return size


def _checked(size: Size) -> Size:
    if max(size) > MAX_RESULT:
        raise TooLargeError
    return size


def _result(function: str, sizes: Sequence[Size], separator: str | None) -> Size:  # noqa: PLR0911 - a table
    """The size of the result of a function. ``separator``: the constant text to find."""
    if function in _WITH_SMALL_RESULT:
        return _SMALL
    first, others = sizes[0].total, sum(size.total for size in sizes[1:])
    elements = sum(size.elements for size in sizes)
    matches = first / len(separator) if separator else first + 1
    match function:
        case "":  # a list or a map
            return Size(first + others + len(sizes), len(sizes))
        case "_+_":
            return Size(first + others, elements)
        case "_?_:_":
            return Size(others, elements - sizes[0].elements)
        case "_[_]" | "_[?_]" | "_?._":  # the element may be a list
            return Size(first, first)
        case "replace":
            return Size(first + matches * sizes[2].total)
        case "split":
            return Size(first + matches + 1, matches + 1)
        case "join":
            return Size(first + sizes[0].elements * others)
        case "format":
            # A letter of four bytes has eight hexadecimal digits.
            return Size(first + 8 * others + _FORMATTED * sizes[1].elements)
        case "strings.quote":
            return Size(6 * (first + others) + 2)
    # The upper case of a letter can have three letters, for example of a ligature.
    return Size(3 * (first + others) + _SMALL.total, elements)
