"""XML content of editors, read and written.

Editors hold fragments: any number of elements and texts side by side. Names keep their prefixes as they are written;
nothing is looked up in namespaces.
"""

import re
from dataclasses import dataclass, field
from typing import Union
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from app.contract.limits import EDITOR_XML_NODES, NESTING

_DECLARATION = re.compile(r"\A\s*<\?xml\s[^>]*\?>")


class XmlContentError(ValueError):
    """The text is no XML fragment, or holds what an editor has no place for; one line that says what."""


@dataclass(slots=True)
class Element:
    """An element; its children are elements and texts, and no two texts stand side by side."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)


Node = Union[Element, str]  # noqa: UP007 - `Element | str` cannot be used in Element's own definition


def parse(text: str) -> list[Node]:
    """The nodes of a fragment. Raises ``XmlContentError``.

    Comments, processing instructions and document types are refused: an editor's document has no place for them, and
    dropping them would be silent. Nesting ends at ``NESTING`` levels, and so does the fragment at ``EDITOR_XML_NODES``
    elements, texts and attributes.
    """
    root = Element("")
    open_elements = [root]
    # The wrapper and the line break after it are two more.
    left = EDITOR_XML_NODES + 2

    def count(nodes: int) -> None:
        nonlocal left
        left -= nodes
        if left < 0:
            raise XmlContentError(f"must have at most {EDITOR_XML_NODES} elements, texts and attributes")

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(open_elements) > NESTING + 1:
            raise XmlContentError(f"must not be nested deeper than {NESTING} levels")
        count(1 + len(attributes))
        element = Element(tag, attributes)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements.pop()

    def characters(data: str) -> None:
        children = open_elements[-1].children
        if children and isinstance(children[-1], str):
            children[-1] += data
        else:
            count(1)
            children.append(data)

    def refuse(*_: object) -> None:
        raise XmlContentError("must not hold comments or processing instructions")

    # Without a namespace separator, names come as they are written. A document type is an error within an element,
    # so no entity can be declared.
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.buffer_size = 2**20
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.CommentHandler = refuse
    parser.ProcessingInstructionHandler = refuse
    try:
        parser.Parse("<fragment>\n", False)
        parser.Parse(_DECLARATION.sub("", text), False)
        parser.Parse("</fragment>", True)
    except expat.ExpatError as error:
        line = max(1, error.lineno - 1)
        reason = expat.errors.messages[error.code]
        raise XmlContentError(
            f"is not well-formed XML: {expat.ErrorString(error.code) or reason}, line {line}"
        ) from None
    fragment = root.children[0]
    assert isinstance(fragment, Element)  # noqa: S101 - it is the wrapper from above
    return _without_the_wrapper(fragment.children)


def write(nodes: list[Node]) -> str:
    """The fragment as text; ``parse`` of it gives the same nodes. Attributes come by name: Yjs keeps no order of
    them."""
    parts: list[str] = []
    _write(nodes, parts)
    return "".join(parts)


def _write(nodes: list[Node], parts: list[str]) -> None:
    for node in nodes:
        if isinstance(node, str):
            parts.append(escape(node, {"\r": "&#13;"}))
            continue
        attributes = "".join(f" {name}={quoteattr(value)}" for name, value in sorted(node.attributes.items()))
        if node.children:
            parts.append(f"<{node.tag}{attributes}>")
            _write(node.children, parts)
            parts.append(f"</{node.tag}>")
        else:
            parts.append(f"<{node.tag}{attributes}/>")


def _without_the_wrapper(nodes: list[Node]) -> list[Node]:
    """The nodes without the line break that separates them from the wrapper."""
    first, *others = nodes
    assert isinstance(first, str)  # noqa: S101 - the line break is there
    return [first[1:], *others] if len(first) > 1 else others
