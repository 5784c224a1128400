"""The tree of an expression: which attributes it names, whether it loops, whether it is an attribute and nothing else.

As the library serializes it: a ``cel.expr.CheckedExpr`` of protocol buffers, of which only so much is read here as that
takes.
"""

from collections.abc import Iterator, Mapping, Sequence

from app.directory.connector import ALL_ATTRIBUTES

Node = Mapping[int, Sequence["int | bytes"]]
"""Field number → its values."""


def _message(data: bytes) -> Node:
    """The fields of a message; what is nested is bytes."""
    fields: dict[int, list[int | bytes]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            fields.setdefault(number, []).append(varint())
            continue
        length = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        fields.setdefault(number, []).append(data[at : at + length])
        at += length
    return fields


def tree_of(serialized: bytes) -> Node:
    """The root of the tree."""
    checked = inner(_message(serialized), 2) or {}  # it travels in a ``google.protobuf.Any``
    return inner(checked, 4) or {}


def inner(node: Node, number: int) -> Node | None:
    """A message in a message (``LOOP``), or None."""
    found = node.get(number)
    return _message(found[-1]) if found and isinstance(found[-1], bytes) else None


def _inners(node: Node, number: int) -> Iterator[Node]:
    return (_message(one) for one in node.get(number, ()) if isinstance(one, bytes))


def _text(node: Node, number: int) -> str:
    found = node.get(number)
    return found[-1].decode() if found and isinstance(found[-1], bytes) else ""


# Numbers of fields in ``cel.expr.Expr`` and what is in it.
_CONSTANT, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, LOOP = 3, 4, 5, 6, 7, 8, 9
_CONSTANT_TEXT = 6
_INDEXING = frozenset({"_[_]", "_[?_]", "_?._"})


class Named:
    """What an expression names: ``names``, the attributes of each variable; ``optional``, those of them that it allows
    to be missing; ``selected``, whatever it selects anywhere; and whether it ``loops``, or has a table."""

    def __init__(self, tree: Node, variables: Sequence[str]) -> None:
        self.names: dict[str, set[str]] = {name: set() for name in variables}
        self.optional: dict[str, set[str]] = {name: set() for name in variables}
        self.loops = False
        self.has_table = False
        selected: set[str] = set()
        self._selected = selected
        self._walk(tree, frozenset())
        self.selected = frozenset(selected)

    def _walk(self, node: Node, hidden: frozenset[str]) -> None:
        """``hidden``: variables that a loop gave another meaning."""
        name = _named(node)
        if name is not None:
            if name in self.names and name not in hidden:
                self.names[name].add(ALL_ATTRIBUTES)
            return
        selection = _selection(node)
        if selection is not None:
            operand, attribute = selection
            self._selected.add(attribute)
            variable = _named(operand)
            if variable in self.names and variable not in hidden:
                self.names[variable].add(attribute)
                if _is_optional(node):
                    self.optional[variable].add(attribute)
            else:
                self._walk(operand, hidden)
            return
        sought = _sought(node)
        if sought is not None and (variable := _named(sought[0])) in self.names and variable not in hidden:
            self.optional[variable].add(sought[1])
        loop = inner(node, LOOP)
        if loop is not None:
            self.loops = True
            own = hidden | {_text(loop, 1), _text(loop, 3), _text(loop, 8)}
            for number in (2, 4):
                self._walk(inner(loop, number) or {}, hidden)
            for number in (5, 6, 7):
                self._walk(inner(loop, number) or {}, own)
            return
        for child in self._children(node):
            self._walk(child, hidden)

    def _children(self, node: Node) -> Iterator[Node]:
        select, call, listed, struct = (inner(node, number) for number in (_SELECT, _CALL, _LIST, _STRUCT))
        if select is not None:
            yield from _inners(select, 1)
        if call is not None:
            yield from _inners(call, 1)
            yield from _inners(call, 3)
        if listed is not None:
            yield from _inners(listed, 1)
        if struct is not None:
            self.has_table = True
            for entry in _inners(struct, 2):
                yield from _inners(entry, 3)
                yield from _inners(entry, 4)


def _named(node: Node) -> str | None:
    """The variable that a node is, if it is one."""
    ident = inner(node, _IDENT)
    return None if ident is None else _text(ident, 1).removeprefix(".")


def _selection(node: Node) -> tuple[Node, str] | None:
    """Of ``x.name``, ``has(x.name)``, ``x["name"]`` and ``x.?name``: x and the name."""
    select = inner(node, _SELECT)
    if select is not None:
        return inner(select, 1) or {}, _text(select, 2)
    call = inner(node, _CALL)
    if call is None or _text(call, 2) not in _INDEXING:
        return None
    arguments = list(_inners(call, 3))
    if len(arguments) != 2:
        return None
    name = text_constant(arguments[1])
    return None if name is None else (arguments[0], name)


def _is_optional(node: Node) -> bool:
    """Whether a selection allows that there is nothing to select: ``has(x.name)``, ``x.?name``, ``x[?"name"]``."""
    select = inner(node, _SELECT)
    if select is not None:
        return bool(select.get(3))
    return _text(inner(node, _CALL) or {}, 2) != "_[_]"


def _sought(node: Node) -> tuple[Node, str] | None:
    """Of ``"name" in x``: x and the name."""
    call = inner(node, _CALL)
    if call is None or _text(call, 2) != "@in":
        return None
    arguments = list(_inners(call, 3))
    name = text_constant(arguments[0]) if len(arguments) == 2 else None
    return None if name is None else (arguments[1], name)


def plain_attribute(tree: Node, variables: Sequence[str], *, tested: bool = False) -> tuple[str, str]:
    """Of ``it.name`` and nothing else, the variable and the name; otherwise empty texts. ``tested``: of
    ``has(it.name)`` instead."""
    select = inner(tree, _SELECT)
    variable = None if select is None else _named(inner(select, 1) or {})
    if select is None or variable is None or variable not in variables or bool(select.get(3)) is not tested:
        return "", ""
    return variable, _text(select, 2)


def text_constant(tree: Node) -> str | None:
    """Of ``"text"`` and nothing else, the text."""
    constant = inner(tree, _CONSTANT)
    if constant is None or _CONSTANT_TEXT not in constant:
        return None
    return _text(constant, _CONSTANT_TEXT)


def operands(node: Node) -> tuple[str, Sequence[Node]]:
    """Of a call, the name of the function and what it is called with, its receiver first; otherwise nothing."""
    call = inner(node, _CALL)
    if call is None:
        return "", ()
    return _text(call, 2), [*_inners(call, 1), *_inners(call, 3)]


def children(node: Node) -> Sequence[Node]:
    """Of a list or a table, its elements, keys and values; of a selection, of what it selects."""
    select, listed, struct = (inner(node, number) for number in (_SELECT, _LIST, _STRUCT))
    if select is not None:
        return list(_inners(select, 1))
    if listed is not None:
        return list(_inners(listed, 1))
    return [one for entry in _inners(struct or {}, 2) for number in (3, 4) for one in _inners(entry, number)]


def path_of(node: Node) -> tuple[str, Sequence[str]] | None:
    """Of ``x``, ``x.name`` and ``x.name["other"]``, x and the names."""
    names: list[str] = []
    while (variable := _named(node)) is None:
        selection = _selection(node)
        if selection is None:
            return None
        node, name = selection
        names.insert(0, name)
    return variable, names


def loop_parts(loop: Node) -> tuple[Sequence[str], str, Sequence[Node]]:
    """Of a loop: its variables, the variable in which it gathers, and its range, start, condition, step and result."""
    variables = [name for name in (_text(loop, 1), _text(loop, 8)) if name]
    return variables, _text(loop, 3), [inner(loop, number) or {} for number in (2, 4, 5, 6, 7)]


def call_of_one(tree: Node) -> tuple[str, Node] | None:
    """Of ``function(x)``, the name of the function and x."""
    call = inner(tree, _CALL) or {}
    arguments = list(_inners(call, 3))
    return (_text(call, 2), arguments[0]) if len(arguments) == 1 else None
