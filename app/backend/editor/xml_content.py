"""Parses and writes the XML content of editors.

The content is a fragment: any number of elements and texts. Namespaces are not resolved, so names keep their prefixes.
"""

import re
from dataclasses import dataclass, field
from typing import Union
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from app.contract.limits import EDITOR_XML_LEVELS, EDITOR_XML_NODES

_DECLARATION = re.compile(r"\A\s*<\?xml\s[^>]*\?>")


class XmlContentError(ValueError):
    """The text is not an XML fragment that an editor can store. One line with the reason."""


@dataclass(slots=True)
class Element:
    """An element. Two of its children in a row are never both texts."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)


Node = Union[Element, str]  # noqa: UP007 - `Element | str` cannot be used in Element's own definition


def parse(text: str) -> list[Node]:
    """The nodes of a fragment. Raises ``XmlContentError``, also beyond the limits and for comments, processing
    instructions and document types, which Yjs cannot store."""
    builder = _Builder()
    # Without a namespace separator expat keeps prefixes. A document type within an element is an error, so no entity
    # can be declared.
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.buffer_size = 2**20
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.CommentHandler = builder.refuse
    parser.ProcessingInstructionHandler = builder.refuse
    try:
        parser.Parse("<fragment>", False)
        parser.Parse(_DECLARATION.sub("", text), False)
        parser.Parse("</fragment>", True)
    except expat.ExpatError as error:
        raise XmlContentError(f"is not well-formed XML: {expat.ErrorString(error.code)}, line {error.lineno}") from None
    (fragment,) = builder.root.children
    assert isinstance(fragment, Element)  # noqa: S101 - the wrapper
    return fragment.children


class _Builder:
    """Builds the elements from the parser's events. Its methods raise ``XmlContentError``."""

    def __init__(self) -> None:
        self.root = Element("")
        self._open_elements = [self.root]
        self._left = EDITOR_XML_NODES + 1  # the wrapper is one more

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self._open_elements) > EDITOR_XML_LEVELS + 1:
            raise XmlContentError(f"must not be nested deeper than {EDITOR_XML_LEVELS} levels")
        self._count(1 + len(attributes))
        element = Element(tag, attributes)
        self._open_elements[-1].children.append(element)
        self._open_elements.append(element)

    def end(self, _tag: str) -> None:
        self._open_elements.pop()

    def characters(self, data: str) -> None:
        children = self._open_elements[-1].children
        if children and isinstance(children[-1], str):
            children[-1] += data
        else:
            self._count(1)
            children.append(data)

    def refuse(self, *_: object) -> None:
        raise XmlContentError("must not hold comments or processing instructions")

    def _count(self, nodes: int) -> None:
        self._left -= nodes
        if self._left < 0:
            raise XmlContentError(f"must have at most {EDITOR_XML_NODES} elements, texts and attributes")


def write(nodes: list[Node]) -> str:
    """The fragment as text, the inverse of ``parse``. Attributes are sorted, because Yjs stores them without order."""
    return "".join(map(_write_node, nodes))


def _write_node(node: Node) -> str:
    if isinstance(node, str):
        return escape(node, {"\r": "&#13;"})
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in sorted(node.attributes.items()))
    if not node.children:
        return f"<{node.tag}{attributes}/>"
    return f"<{node.tag}{attributes}>{write(node.children)}</{node.tag}>"
