"""The bound on how much text and how many elements an expression makes, from the values that it is asked of.

The library has none: two chained ``replace`` make gigabytes of a thousand letters, which users can often write. The
bound is computed before the library is asked. It is never too low; it is exact enough for what rules do.
"""

from collections.abc import Callable, Mapping, Sequence
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
from app.directory.mapping.fitness import Value

MAX_RESULT = 1_000_000
"""The most characters, and elements of lists, that any part of an expression may make."""

_MOST_ITERATIONS = 10_000
"""Elements that all loops of an expression go through at most; the library sees to that."""

_NUMBER = 24
"""Characters of a number, a time, true or false."""

_FORMATTED = 1_100
"""Characters that a directive of ``format`` adds at most, besides the text that it is given."""


class TooLargeError(Exception):
    """An expression that would make more than ``MAX_RESULT``."""


class Size(NamedTuple):
    """How large a value is at most."""

    text: int
    """Characters of the text, or of the longest element of the list."""
    total: int
    """Characters of all elements, and one for each. Within a loop: on average."""
    elements: int = 1
    """Elements of a list; 1 of anything else."""
    is_list: bool = False

    @property
    def largest(self) -> int:
        """Characters of the whole value, within a loop, too."""
        return (self.text + 1) * self.elements if self.is_list else self.text


_SMALL = Size(_NUMBER, _NUMBER)
_NOTHING = Size(0, 0, 0, is_list=True)

Sizes = Mapping[str, "Value | Size"]
"""Variable → its value; of the variables of loops, their sizes."""

SizeOf = Callable[[Sizes], Size]


def growth(tree: Node) -> SizeOf | None:
    """The function that bounds what an expression makes of values; None if it cannot make more than it is given. It
    raises ``TooLargeError``."""
    return _size(tree) if _grows(tree) else None


def _grows(node: Node) -> bool:
    name, arguments = operands(node)
    return name in _GROWING or inner(node, LOOP) is not None or any(map(_grows, (*arguments, *children(node))))


def size_of(value: object) -> Size:
    """The size of a plain value."""
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
        return _attribute(*path)
    text = text_constant(node)
    if text is not None:
        constant = size_of(text)
        return lambda _: constant
    loop = inner(node, LOOP)
    if loop is not None:
        return _loop(loop)
    name, arguments = operands(node)
    parts = [_size(one) for one in arguments]
    if name in _GROWING:
        return _checked(_GROWING[name](parts, arguments))
    if name:
        return _SIZES.get(name, _any_other)(parts)
    elements = [_size(one) for one in children(node)]
    return _checked(_together(elements)) if elements else lambda _: _SMALL


def _checked(size: SizeOf) -> SizeOf:
    def checked(values: Sizes) -> Size:
        found = size(values)
        if found.total > MAX_RESULT or found.elements > MAX_RESULT:
            raise TooLargeError
        return found

    return checked


def _attribute(variable: str, names: Sequence[str]) -> SizeOf:
    def attribute(values: Sizes) -> Size:
        value: object = values.get(variable)
        if isinstance(value, Size):
            # Of an element of a list: no part of it is larger than all of it.
            return value._replace(elements=max(1, value.largest), is_list=True) if names else value
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return size_of(dict(value) if isinstance(value, Mapping) else value)

    return attribute


def _together(parts: Sequence[SizeOf]) -> SizeOf:
    """Of a list or a table in the expression."""

    def together(values: Sizes) -> Size:
        sizes = [part(values) for part in parts]
        total = sum(one.total for one in sizes) + len(sizes)
        return Size(max(one.largest for one in sizes), total, len(sizes), is_list=True)

    return together


def _loop(loop: Node) -> SizeOf:
    """Of ``map``, ``filter``, ``exists`` and the like: each step adds to what the loop has gathered."""
    variables, gathered, (range_, start, condition, step, result) = loop_parts(loop)
    in_range, at_start, in_condition, in_step, in_result = map(_size, (range_, start, condition, step, result))

    def size(values: Sizes) -> Size:
        over, before = in_range(values), at_start(values)
        count = min(over.elements, _MOST_ITERATIONS)
        one = Size(over.text, over.total // max(1, over.elements) + 1)
        inside = {**values, **dict.fromkeys(variables, one), gathered: _NOTHING}
        in_condition(inside)
        added = in_step(inside)
        all_ = Size(
            max(before.text, added.text),
            before.total + count * added.total,
            before.elements + count * added.elements,
            added.is_list,
        )
        return in_result({**values, gathered: all_})

    return _checked(size)


def _added(parts: Sequence[SizeOf], _: Sequence[Node]) -> SizeOf:
    def added(values: Sizes) -> Size:
        left, right = (part(values) for part in parts)
        if left.is_list or right.is_list:
            text = max(left.text, right.text)
            return Size(text, left.total + right.total, left.elements + right.elements, is_list=True)
        return Size(left.text + right.text, left.total + right.total)

    return added


def _replaced(parts: Sequence[SizeOf], nodes: Sequence[Node]) -> SizeOf:
    sought = max(1, len(text_constant(nodes[1]) or ""))

    def replaced(values: Sizes) -> Size:
        text, _, new = (part(values) for part in parts[:3])
        return Size(
            text.text + (text.text // sought + 1) * new.text, text.total + (text.total // sought + 1) * new.text
        )

    return replaced


def _split(parts: Sequence[SizeOf], nodes: Sequence[Node]) -> SizeOf:
    between = max(1, len(text_constant(nodes[1]) or ""))

    def split(values: Sizes) -> Size:
        text = parts[0](values)
        return Size(text.text, text.total + text.total // between + 1, text.text // between + 1, is_list=True)

    return split


def _joined(parts: Sequence[SizeOf], _: Sequence[Node]) -> SizeOf:
    def joined(values: Sizes) -> Size:
        texts = parts[0](values)
        between = parts[1](values).text if len(parts) > 1 else 0
        return Size(texts.largest + texts.elements * between, texts.total + texts.elements * between)

    return joined


def _formatted(parts: Sequence[SizeOf], _: Sequence[Node]) -> SizeOf:
    def formatted(values: Sizes) -> Size:
        text, given = (part(values) for part in parts)
        more = 2 * given.largest + _FORMATTED * given.elements
        return Size(text.text + more, text.total + more)

    return formatted


def _quoted(parts: Sequence[SizeOf], _: Sequence[Node]) -> SizeOf:
    def quoted(values: Sizes) -> Size:
        text = parts[-1](values)
        return Size(6 * text.text + 2, 6 * text.total + 2)

    return quoted


_GROWING: Mapping[str, Callable[[Sequence[SizeOf], Sequence[Node]], SizeOf]] = {
    "_+_": _added,
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "format": _formatted,
    "strings.quote": _quoted,
}
"""The functions that make more than one of their arguments."""


def _small(parts: Sequence[SizeOf]) -> SizeOf:
    def small(values: Sizes) -> Size:
        for part in parts:
            part(values)
        return _SMALL

    return small


def _chosen(parts: Sequence[SizeOf]) -> SizeOf:
    def chosen(values: Sizes) -> Size:
        _, one, other = (part(values) for part in parts)
        count, is_list = max(one.elements, other.elements), one.is_list or other.is_list
        return Size(max(one.text, other.text), max(one.total, other.total), count, is_list)

    return chosen


def _any_other(parts: Sequence[SizeOf]) -> SizeOf:
    def any_other(values: Sizes) -> Size:
        # Letters in upper case may be three: a ligature, for instance.
        sizes = [part(values) for part in parts]
        return Size(
            3 * sum(one.text for one in sizes) + _NUMBER,
            3 * sum(one.total for one in sizes) + _NUMBER,
            max((one.elements for one in sizes), default=1),
            any(one.is_list for one in sizes),
        )

    return any_other


_SIZES: Mapping[str, Callable[[Sequence[SizeOf]], SizeOf]] = {
    "_?_:_": _chosen,
    **dict.fromkeys(
        ("_&&_", "_||_", "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "@not_strictly_false"), _small
    ),
    **dict.fromkeys(("size", "startsWith", "endsWith", "contains", "matches", "indexOf", "lastIndexOf"), _small),
}
