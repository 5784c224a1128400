"""Editors' content as Yjs documents: put in, changed, read back.

A document holds one shared type under its content key: a Y.Text, Y.Map, Y.Array or Y.XmlFragment. Values within maps
and arrays are plain JSON, as ``map.set(key, value)`` of the JavaScript library stores them; numbers are JavaScript's,
so whole numbers beyond 2^53 lose digits. An update is an edit of the stored document, never a new document: whoever
has an older state of it merges, and what they did meanwhile stays.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import orjson
from pycrdt import Array, Doc, Map, Text, XmlElement, XmlFragment, XmlText

from app.backend.editor import xml_content
from app.backend.editor.xml_content import Element, Node, XmlContentError
from app.contract.crdt import CrdtType

_EXACT = 2**53
"""Whole numbers up to here are exact in JavaScript."""

_ITEMS_A_COMMIT = 256
STATE_BYTES = 8 * 1024 * 1024
"""The largest document that is stored. A document remembers in short what was in it, so it may outgrow its content; to
work on one takes some fifty times its size."""
_STEPS = 10_000_000
"""How many children may be walked over to keep what stays equal at the start."""

ValueT = TypeVar("ValueT")


class EditorDataError(ValueError):
    """A value that cannot be held in a document; one line that says why."""


class OutgrownError(ValueError):
    """The document would be larger than ``STATE_BYTES``."""


def new_state(kind: CrdtType, content_key: str, value: object, client_id: int) -> bytes:
    """The state of a new document with ``value`` under ``content_key``, as a Yjs update (format 1).

    ``client_id`` (32 bits, random) marks who wrote: it must not be used for two writes. Raises ``EditorDataError``
    and ``OutgrownError``.
    """
    return _edited(Doc(client_id=client_id), kind, content_key, value)


def changed_state(state: bytes, kind: CrdtType, content_key: str, value: object, client_id: int) -> bytes:
    """``state`` after an edit that makes ``value`` of its content, changing no more than differs.

    Texts keep their common beginning and end, maps the entries that stay equal, arrays and XML the items at both ends
    that stay equal. Raises ``EditorDataError`` and ``OutgrownError``.
    """
    document: Doc[Any] = Doc(client_id=client_id)
    document.apply_update(state)
    return _edited(document, kind, content_key, value)


def value_of(state: bytes, kind: CrdtType, content_key: str) -> object:
    """What ``state`` holds under ``content_key``, as JSON; XML as text."""
    document: Doc[Any] = Doc()
    document.apply_update(state)
    if kind == "text":
        return str(document.get(content_key, type=Text))
    if kind == "map":
        return _from_yjs(document.get(content_key, type=Map).to_py())
    if kind == "array":
        return _from_yjs(document.get(content_key, type=Array).to_py())
    return xml_content.write(_nodes_of(document.get(content_key, type=XmlFragment)))


def _edited(document: "Doc[Any]", kind: CrdtType, content_key: str, value: object) -> bytes:
    if kind == "text":
        with document.transaction():
            _edit_text(document.get(content_key, type=Text), str(value))
    elif kind == "map":
        assert isinstance(value, dict)  # noqa: S101 - the contract's model made sure
        with document.transaction():
            _edit_map(document.get(content_key, type=Map), value)
    elif kind == "array":
        assert isinstance(value, list)  # noqa: S101 - see above
        _edit_array(document, document.get(content_key, type=Array), value)
    else:
        try:
            nodes = xml_content.parse(str(value))
        except XmlContentError as error:
            raise EditorDataError(str(error)) from error
        with document.transaction():
            _edit_children(document.get(content_key, type=XmlFragment), nodes)
    state = document.get_update()
    if len(state) > STATE_BYTES:
        raise OutgrownError
    return state


def _edit_text(text: Text | XmlText, wanted: str) -> None:
    held = str(text)
    start, end = _differing(held, wanted)
    # Positions in a shared text count bytes of UTF-8.
    first = len(held[:start].encode())
    last = first + len(held[start : len(held) - end].encode())
    if last > first:
        del text[first:last]
    added = wanted[start : len(wanted) - end]
    if added:
        text.insert(first, added)


def _edit_map(shared: "Map[Any]", wanted: dict[str, object]) -> None:
    held = shared.to_py() or {}
    for key in held.keys() - wanted.keys():
        del shared[key]
    for key, value in wanted.items():
        stored = _to_yjs(value)
        if key not in held or _form(held[key]) != _form(stored):
            shared[key] = stored


def _edit_array(document: "Doc[Any]", shared: "Array[Any]", wanted: list[object]) -> None:
    stored = [_to_yjs(value) for value in wanted]
    start, end = _differing([_form(value) for value in shared.to_py() or []], [_form(value) for value in stored])
    if len(shared) - end > start:
        del shared[start : len(shared) - end]
    added = stored[start : len(stored) - end]
    # An insertion walks over all items before it, until a commit joins them into one block.
    for first in range(0, len(added), _ITEMS_A_COMMIT):
        with document.transaction():
            for number, value in enumerate(added[first : first + _ITEMS_A_COMMIT], start + first):
                shared.insert(number, value)


def _edit_children(shared: XmlFragment | XmlElement, wanted: list[Node]) -> None:
    children = list(shared.children)
    held = _nodes_of(shared)
    # A formatted text counts as several nodes: there is no telling which is which then, so all are replaced.
    start, end = _differing(held, wanted) if len(held) == len(children) else (0, 0)
    old, new = held[start : len(held) - end], wanted[start : len(wanted) - end]
    if len(held) == len(children) and len(old) == len(new) and all(map(_alike, old, new)):
        for child, node in zip(children[start:], new, strict=False):
            _edit_node(child, node)
        return
    if start * len(new) > _STEPS:
        start, end, new = 0, 0, wanted
    del shared.children[start : len(children) - end]
    _insert_all(shared.children, start, new)


def _edit_node(shared: Any, wanted: Node) -> None:
    if isinstance(wanted, str):
        _edit_text(shared, wanted)
        return
    attributes = dict(shared.attributes)
    for name in attributes.keys() - wanted.attributes.keys():
        del shared.attributes[name]
    for name, value in wanted.attributes.items():
        if attributes.get(name) != value:
            shared.attributes[name] = value
    _edit_children(shared, wanted.children)


def _insert_all(children: Any, position: int, nodes: list[Node]) -> None:
    # The last one first: an insertion walks over all children before it.
    for node in reversed(nodes):
        if isinstance(node, str):
            children.insert(position, XmlText(node))
        else:
            element = children.insert(position, XmlElement(node.tag, node.attributes))
            _insert_all(element.children, 0, node.children)


def _alike(held: Node, wanted: Node) -> bool:
    """Whether the one can become the other and stay itself."""
    if isinstance(held, str) or isinstance(wanted, str):
        return isinstance(held, str) and isinstance(wanted, str)
    return held.tag == wanted.tag


def _nodes_of(shared: XmlFragment | XmlElement) -> list[Node]:
    nodes: list[Node] = []
    for child in shared.children:
        if isinstance(child, XmlElement):
            view: Any = child.attributes
            attributes = {name: _text(value) for name, value in view}
            nodes.append(Element(child.tag or "", attributes, _nodes_of(child)))
        elif isinstance(child, XmlText):
            nodes.extend(_formatted(piece, formats or {}) for piece, formats in child.diff() if isinstance(piece, str))
    return nodes


def _formatted(text: str, formats: dict[str, Any]) -> Node:
    """A piece of text within an element for each of its formats, which is how Yjs itself writes formatted text."""
    node: Node = text
    for name in sorted(formats, reverse=True):
        value = formats[name]
        attributes = {key: _text(inner) for key, inner in value.items()} if isinstance(value, dict) else {}
        node = Element(name, attributes, [node])
    return node


def _text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(_from_yjs(value)).decode()


def _to_yjs(value: object) -> object:
    """JSON with every number as JavaScript has it."""
    if isinstance(value, dict):
        return {key: _to_yjs(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_to_yjs(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise EditorDataError("holds a number that is too large") from None
    return value


def _from_yjs(value: object) -> object:
    """JSON with whole numbers written as such."""
    if isinstance(value, dict):
        return {key: _from_yjs(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_from_yjs(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value


def _form(value: object) -> str:
    """Equal for equal JSON values only; ``1`` and ``true`` are not equal here, as they are in Python."""
    # A copy: the encoder's own bytes lie in a buffer of a kilobyte or more each, which nobody else can use as long as
    # they are kept.
    return orjson.dumps(_to_yjs(value), option=orjson.OPT_SORT_KEYS).decode()


def _differing(held: Sequence[ValueT], wanted: Sequence[ValueT]) -> tuple[int, int]:
    """How many items both have in common at the start, and how many of the others at the end."""
    shorter = min(len(held), len(wanted))
    start = _longest(shorter, lambda count: held[:count] == wanted[:count])
    end = _longest(shorter - start, lambda count: held[len(held) - count :] == wanted[len(wanted) - count :])
    return start, end


def _longest(most: int, fits: Any) -> int:
    """The largest count up to ``most`` that fits; whatever fits, all below it do. Few comparisons of whole slices are
    far faster than many of single items.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
