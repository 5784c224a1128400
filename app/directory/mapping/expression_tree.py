"""Decodes the syntax tree of a compiled expression, to find the attributes that the expression names.

The library serializes it as a ``cel.expr.CheckedExpr`` in protocol buffers. The numbers of fields are those of
``checked.proto`` and ``syntax.proto`` in the specification of CEL.
"""

from collections.abc import Iterator, Mapping, Sequence

from app.directory.connector import ALL_ATTRIBUTES

Node = Mapping[int, Sequence["int | bytes"]]
"""Field number → its values. Nested messages are bytes."""

# Fields of ``cel.expr.Expr``.
_CONSTANT, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, LOOP = 3, 4, 5, 6, 7, 8, 9
_CONSTANT_TEXT = 6
_INDEXING = frozenset({"_[_]", "_[?_]", "_?._"})


def _message(data: bytes) -> Node:
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
    checked = inner(_message(serialized), 2) or {}  # wrapped in a ``google.protobuf.Any``
    return inner(checked, 4) or {}


def inner(node: Node, number: int) -> Node | None:
    """The nested message in a field, such as ``LOOP``. None if there is none."""
    found = node.get(number)
    return _message(found[-1]) if found and isinstance(found[-1], bytes) else None


def _inners(node: Node, number: int) -> Iterator[Node]:
    return (_message(value) for value in node.get(number, ()) if isinstance(value, bytes))


def _text(node: Node, number: int) -> str:
    found = node.get(number)
    return found[-1].decode() if found and isinstance(found[-1], bytes) else ""


# Parts of a node.


def operands(node: Node) -> tuple[str, Sequence[Node]]:
    """The function and its arguments, the receiver first.

    A selection (``x.name``) is the function ``_[_]`` of its operand. A list or map has no function, and its elements,
    or its keys and values, are the arguments.
    """
    call, select, list_, struct = (inner(node, number) for number in (_CALL, _SELECT, _LIST, _STRUCT))
    if call is not None:
        return _text(call, 2), [*_inners(call, 1), *_inners(call, 3)]
    if select is not None:
        return "_[_]", list(_inners(select, 1))
    if list_ is not None:
        return "", list(_inners(list_, 1))
    return "", [part for entry in _inners(struct or {}, 2) for number in (3, 4) for part in _inners(entry, number)]


def loop_parts(loop: Node) -> tuple[Sequence[str], str, Sequence[Node]]:
    """The variables of a loop, its accumulator, and its range, start, condition, step and result."""
    variables = [name for name in (_text(loop, 1), _text(loop, 8)) if name]
    return variables, _text(loop, 3), [inner(loop, number) or {} for number in (2, 4, 5, 6, 7)]


def text_constant(tree: Node) -> str | None:
    constant = inner(tree, _CONSTANT)
    if constant is None or _CONSTANT_TEXT not in constant:
        return None
    return _text(constant, _CONSTANT_TEXT)


def constant_length(tree: Node) -> int:
    """The length of a constant in bytes, at least. 0 if it is not one."""
    found = tree.get(_CONSTANT)
    return len(found[-1]) if found and isinstance(found[-1], bytes) else 0


def plain_attribute(tree: Node, variables: Sequence[str], *, tested: bool = False) -> tuple[str, str] | None:
    """The variable and the name in ``it.name``. ``tested``: in ``has(it.name)``."""
    select = inner(tree, _SELECT)
    variable = None if select is None else _variable(inner(select, 1) or {})
    if select is None or variable is None or variable not in variables or bool(select.get(3)) is not tested:
        return None
    return variable, _text(select, 2)


def path_of(node: Node) -> tuple[str, Sequence[str]] | None:
    """The variable and the names in ``x``, ``x.name`` and ``x.name["other"]``."""
    names: list[str] = []
    while (variable := _variable(node)) is None:
        selection = _selection(node)
        if selection is None:
            return None
        node, name = selection
        names.insert(0, name)
    return variable, names


def _variable(node: Node) -> str | None:
    ident = inner(node, _IDENT)
    return None if ident is None else _text(ident, 1).removeprefix(".")


def _selection(node: Node) -> tuple[Node, str] | None:
    """The operand and the name in ``x.name``, ``has(x.name)``, ``x["name"]`` and ``x.?name``."""
    select = inner(node, _SELECT)
    if select is not None:
        return inner(select, 1) or {}, _text(select, 2)
    function, arguments = operands(node)
    if function not in _INDEXING or len(arguments) != 2:
        return None
    name = text_constant(arguments[1])
    return None if name is None else (arguments[0], name)


def _is_optional(selection: Node) -> bool:
    """Whether a selection allows the name to be missing: ``has(x.name)``, ``x.?name``, ``x[?"name"]``."""
    select = inner(selection, _SELECT)
    return bool(select.get(3)) if select is not None else operands(selection)[0] != "_[_]"


def _membership(node: Node) -> tuple[Node, str] | None:
    """The operand and the name in ``"name" in x``."""
    function, arguments = operands(node)
    name = text_constant(arguments[0]) if function == "@in" and len(arguments) == 2 else None
    return None if name is None else (arguments[1], name)


class Names:
    """The attributes that an expression names."""

    def __init__(self, tree: Node, variables: Sequence[str]) -> None:
        self.names: dict[str, set[str]] = {name: set() for name in variables}
        """Variable → the names of its attributes."""
        self.optional: dict[str, set[str]] = {name: set() for name in variables}
        """Variable → those that the expression allows to be missing."""
        self.loops = False
        """Whether the expression has a loop."""
        self.has_map = False
        """Whether the expression has a map of its own."""
        self.selected: set[str] = set()
        """All names that are selected of anything."""
        self._walk(tree, frozenset())

    def _walk(self, node: Node, hidden: frozenset[str]) -> None:
        """``hidden``: variables that a loop redefines."""
        variable = _variable(node)
        if variable is not None:
            if variable in self.names and variable not in hidden:
                self.names[variable].add(ALL_ATTRIBUTES)
            return
        selection = _selection(node)
        if selection is not None:
            operand, attribute = selection
            self.selected.add(attribute)
            variable = _variable(operand)
            if variable in self.names and variable not in hidden:
                self.names[variable].add(attribute)
                if _is_optional(node):
                    self.optional[variable].add(attribute)
            else:
                self._walk(operand, hidden)
            return
        membership = _membership(node)
        if membership is not None and (variable := _variable(membership[0])) in self.names and variable not in hidden:
            self.optional[variable].add(membership[1])
        loop = inner(node, LOOP)
        if loop is not None:
            self.loops = True
            variables, accumulator, (range_, start, *inside) = loop_parts(loop)
            for part in (range_, start):
                self._walk(part, hidden)
            for part in inside:
                self._walk(part, hidden | {*variables, accumulator})
            return
        self.has_map = self.has_map or inner(node, _STRUCT) is not None
        for child in operands(node)[1]:
            self._walk(child, hidden)
