"""Writes, edits and reads editor content as Yjs documents.

A document has one shared type under its content key: a Y.Text, Y.Map, Y.Array or Y.XmlFragment. Values in maps and
arrays are plain JSON, as ``map.set(key, value)`` of the JavaScript library stores them. Numbers are JavaScript's, so
integers beyond 2^53 lose digits.

An update edits the stored document and never replaces it. Clients with an older state merge, and keep their changes.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from pycrdt import Array, Doc, Map, Text, XmlElement, XmlFragment, XmlText

from app.backend.editor import xml_content
from app.backend.editor.xml_content import Element, Node, XmlContentError
from app.contract.crdt import CrdtType

STATE_BYTES = 8 * 1024 * 1024
"""Maximum size of a stored document. It keeps traces of deleted content, so it may outgrow its content. An edit needs
about fifty times its size in memory."""

_MAX_EXACT = 2**53
"""Integers up to here are exact in JavaScript."""
_ITEMS_PER_COMMIT = 256
_MAX_STEPS = 10_000_000
"""How many children an XML edit may walk over to keep an equal start."""


class EditorDataError(ValueError):
    """The value cannot be stored in a document. One line with the reason."""


class StateTooLargeError(ValueError):
    """The document would be larger than ``STATE_BYTES``."""


def new_state(kind: CrdtType, content_key: str, value: object, client_id: int) -> bytes:
    """A new document with ``value`` under ``content_key``, as a Yjs update (format 1).

    ``client_id`` identifies the writer: 32 random bits, for one write only. Raises ``EditorDataError`` and
    ``StateTooLargeError``.
    """
    return _edit(Doc(client_id=client_id), kind, content_key, value)


def changed_state(state: bytes, kind: CrdtType, content_key: str, value: object, client_id: int) -> bytes:
    """``state`` after a minimal edit that makes ``value`` its content. Texts, arrays and XML keep their common start
    and end, maps their equal entries. Raises the same errors."""
    document: Doc[Any] = Doc(client_id=client_id)
    document.apply_update(state)
    return _edit(document, kind, content_key, value)


def value_of(state: bytes, kind: CrdtType, content_key: str) -> object:
    """The content of a document as JSON. XML is a string."""
    document: Doc[Any] = Doc()
    document.apply_update(state)
    match kind:
        case "text":
            return str(document.get(content_key, type=Text))
        case "map":
            return _from_yjs(document.get(content_key, type=Map).to_py())
        case "array":
            return _from_yjs(document.get(content_key, type=Array).to_py())
        case "xml":
            return xml_content.write(_nodes_of(document.get(content_key, type=XmlFragment)))


def _edit(document: "Doc[Any]", kind: CrdtType, content_key: str, value: Any) -> bytes:
    match kind:
        case "text":
            with document.transaction():
                _edit_text(document.get(content_key, type=Text), value)
        case "map":
            with document.transaction():
                _edit_map(document.get(content_key, type=Map), value)
        case "array":
            _edit_array(document, document.get(content_key, type=Array), value)
        case "xml":
            try:
                nodes = xml_content.parse(value)
            except XmlContentError as error:
                raise EditorDataError(str(error)) from error
            with document.transaction():
                _edit_children(document.get(content_key, type=XmlFragment), nodes)
    state = document.get_update()
    if len(state) > STATE_BYTES:
        raise StateTooLargeError
    return state


def _edit_text(text: Text | XmlText, new: str) -> None:
    old = str(text)
    start, end = _common_ends(old, new)
    # Positions in a shared text are offsets in UTF-8.
    first = len(old[:start].encode())
    last = first + len(old[start : len(old) - end].encode())
    if last > first:
        del text[first:last]
    added = new[start : len(new) - end]
    if added:
        text.insert(first, added)


def _edit_map(shared: "Map[Any]", new: dict[str, object]) -> None:
    old = shared.to_py() or {}
    for key in old.keys() - new.keys():
        del shared[key]
    for key, value in new.items():
        if key not in old or _comparable(old[key]) != _comparable(value):
            shared[key] = _to_yjs(value)


def _edit_array(document: "Doc[Any]", shared: "Array[Any]", new: list[object]) -> None:
    start, end = _common_ends(list(map(_comparable, shared.to_py() or [])), list(map(_comparable, new)))
    if len(shared) - end > start:
        del shared[start : len(shared) - end]
    added = new[start : len(new) - end]
    # An insertion walks over all items before it. A commit joins them into one block.
    for first in range(0, len(added), _ITEMS_PER_COMMIT):
        with document.transaction():
            for position, value in enumerate(added[first : first + _ITEMS_PER_COMMIT], start + first):
                shared.insert(position, _to_yjs(value))


def _edit_children(shared: XmlFragment | XmlElement, new: list[Node]) -> None:
    children = list(shared.children)
    old = _nodes_of(shared)
    # A formatted text is one child but several nodes. Without a one-to-one mapping all children are replaced.
    is_one_to_one = len(old) == len(children)
    start, end = _common_ends(old, new) if is_one_to_one else (0, 0)
    old, changed = old[start : len(old) - end], new[start : len(new) - end]
    if is_one_to_one and list(map(_tag, old)) == list(map(_tag, changed)):
        for child, node in zip(children[start:], changed, strict=False):
            _edit_node(child, node)
        return
    if start * len(changed) > _MAX_STEPS:
        start, end, changed = 0, 0, new
    del shared.children[start : len(children) - end]
    _insert_nodes(shared.children, start, changed)


def _edit_node(shared: Any, new: Node) -> None:
    if isinstance(new, str):
        _edit_text(shared, new)
        return
    attributes = dict(shared.attributes)
    for name in attributes.keys() - new.attributes.keys():
        del shared.attributes[name]
    for name, value in new.attributes.items():
        if attributes.get(name) != value:
            shared.attributes[name] = value
    _edit_children(shared, new.children)


def _insert_nodes(children: Any, position: int, nodes: list[Node]) -> None:
    # Back to front, because an insertion walks over all children before it.
    for node in reversed(nodes):
        if isinstance(node, str):
            children.insert(position, XmlText(node))
        else:
            element = children.insert(position, XmlElement(node.tag, node.attributes))
            _insert_nodes(element.children, 0, node.children)


def _tag(node: Node) -> str | None:
    return None if isinstance(node, str) else node.tag


def _nodes_of(shared: XmlFragment | XmlElement) -> list[Node]:
    nodes: list[Node] = []
    for child in shared.children:
        if isinstance(child, XmlElement):
            view: Any = child.attributes
            attributes = {name: _attribute(value) for name, value in view}
            nodes.append(Element(child.tag or "", attributes, _nodes_of(child)))
        elif isinstance(child, XmlText):
            nodes.extend(_formatted(piece, formats or {}) for piece, formats in child.diff() if isinstance(piece, str))
    return nodes


def _formatted(text: str, formats: dict[str, Any]) -> Node:
    """The text inside an element for each of its formats, as Yjs itself writes formatted text."""
    node: Node = text
    for name in sorted(formats, reverse=True):
        value = formats[name]
        attributes = {key: _attribute(inner) for key, inner in value.items()} if isinstance(value, dict) else {}
        node = Element(name, attributes, [node])
    return node


def _attribute(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(_from_yjs(value)).decode()


def _to_yjs(value: object) -> object:
    """JSON with integers as floats, which is JavaScript's type of number."""
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
    """JSON with whole numbers as integers."""
    if isinstance(value, dict):
        return {key: _from_yjs(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_from_yjs(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT:
        return int(value)
    return value


def _comparable(value: object) -> str:
    """A text that is equal for equal JSON only. In Python ``1`` equals ``True``."""
    # Decoded, because orjson's bytes objects keep buffers of a kilobyte or more.
    return orjson.dumps(_to_yjs(value), option=orjson.OPT_SORT_KEYS).decode()


def _common_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """The length of the common start, and of the common end of the rest."""
    shorter = min(len(old), len(new))
    start = _longest(shorter, lambda count: old[:count] == new[:count])
    end = _longest(shorter - start, lambda count: old[len(old) - count :] == new[len(new) - count :])
    return start, end


def _longest(maximum: int, is_common: Callable[[int], bool]) -> int:
    """The largest common length. A binary search over slices is much faster than a comparison of each item."""
    return bisect_left(range(1, maximum + 1), True, key=lambda count: not is_common(count))
