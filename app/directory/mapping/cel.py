"""The expressions of rules: CEL, and the library for it, which nobody else knows of.

An expression is compiled once, and refused then if it names what is not there. It computes: it reaches no file and no
network, its regular expressions take linear time, and it goes through 10,000 elements at most, all its loops together.
What it is asked of has been looked at before (``fit``): the library ends the process on data that is nested too deep,
and cannot take a NUL or half a surrogate pair.

An attribute that is missing makes the value of an expression missing (None), unless the expression asks first
(``has(it.mail)``, ``it.?mail.orValue("")``). A table in the expression that lacks a key is an error: what stands in
nobody's table must not be taken for something that was never said.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from app.clock import utc_text
from app.directory.connector import ALL_ATTRIBUTES
from app.directory.fields import MAX_INTEGER, MAX_NESTING, name_of_type
from app.directory.spelling import resembling
from app.text import quoted

IT = "it"
"""The name of the object in expressions."""
MEMBER = "member"
"""The name of one of its members, in rules with ``each: members``."""

MAX_TEXT = 4_000
"""Characters of the longest expression."""
MAX_ELEMENTS = 2_000
"""The longest list in an object of which an expression with a loop is asked; building a list takes quadratic time."""


class ExpressionError(ValueError):
    """An expression that cannot be used; the text says what is wrong with it."""


class LibraryMissingError(ExpressionError):
    """No expression can be used: the library is not installed; the text names the extra."""

    def __init__(self) -> None:
        super().__init__("rules need the package cel-expr-python: pip install 'usher[mapping]'")


class EvaluationError(Exception):
    """An expression that has no value for an object; the text says why."""


class UnfitValueError(ValueError):
    """A value of which no expression can be asked; the text begins with the attribute."""


Value = Mapping[str, object]


class Asked:
    """What expressions are asked of: values for ``it`` and, where there is one, ``member``; both have to be fit."""

    __slots__ = ("_activation", "_language", "values")

    def __init__(self, language: "Language", values: dict[str, Value]) -> None:
        self._language = language
        self.values = values
        self._activation: Any = None

    def turn_to(self, member: Value) -> None:
        """The same with another member."""
        self.values[MEMBER] = member
        self._activation = None

    @property
    def activation(self) -> Any:
        """The same for the library: made once for all expressions."""
        if self._activation is None:
            self._activation = self._language.environment.Activation(self.values)
        return self._activation


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that can be evaluated."""

    text: str
    names: Mapping[str, frozenset[str]]
    """Variable → the attributes of it that the expression names; ``ALL_ATTRIBUTES`` where that cannot be told."""
    attribute: str
    """The attribute of ``it`` that it is, and nothing else; empty: it is more than that."""
    member_attribute: str
    """The same of ``member``."""
    loops: bool
    """Whether it goes through lists."""
    is_flag: bool
    """Whether it can be true or false."""
    evaluate: Callable[[Asked], object]
    """Its value, plain; None: missing. Raises ``EvaluationError``."""


class Language:
    """CEL with certain variables."""

    def __init__(self, variables: Sequence[str]) -> None:
        try:
            from cel_expr_python import cel  # noqa: PLC0415 - an extra, and 16 MB
            from cel_expr_python.ext import ext_math, ext_optional, ext_strings  # noqa: PLC0415 - as above
        except ImportError as error:
            raise LibraryMissingError from error
        text = cel.Type.STRING
        self._variables = tuple(variables)
        self._error = cel.Type.ERROR
        self.environment: Any = cel.NewEnv(
            variables={name: cel.Type.Map(text, cel.Type.DYN) for name in variables},
            extensions=[ext_math.ExtMath(), ext_strings.ExtStrings(), ext_optional.ExtOptional()],
            functions=[
                cel.FunctionDecl(
                    name, [cel.Overload(f"{name}_string", return_type=text, parameters=[text], impl=function)]
                )
                for name, function in _FUNCTIONS.items()
            ],
        )

    def compile(self, text: str) -> Expression:
        """The expression. Raises ``ExpressionError``."""
        if not text.strip():
            raise ExpressionError("is empty; write an expression, as it.mail, or leave it out")
        if len(text) > MAX_TEXT:
            raise ExpressionError(f"is longer than {MAX_TEXT:,} characters")
        if "\0" in text:
            raise ExpressionError("contains a NUL character")
        try:
            program = self.environment.compile(text)
        except RuntimeError as error:
            raise ExpressionError(self._what_is_wrong(str(error), text)) from None
        returned = program.return_type().name()
        if returned.startswith("optional"):
            raise ExpressionError("may have no value: end it in .orValue(…), or leave the question mark out")
        tree = _tree_of(program.serialize())
        seen = _Seen(tree, self._variables)
        return Expression(
            text=text,
            names={name: frozenset(found) for name, found in seen.names.items() if found},
            attribute=_plain_attribute(tree, (IT,))[1],
            member_attribute=_plain_attribute(tree, (MEMBER,))[1],
            loops=seen.loops,
            is_flag=returned in {"BOOL", "DYN"},
            evaluate=_simple(tree, self._variables, self._evaluation(program, seen)),
        )

    def _evaluation(self, program: Any, seen: "_Seen") -> Callable[[Asked], object]:
        error_type = self._error
        names = seen.selected if seen.has_table else None

        def evaluate(asked: Asked) -> object:
            try:
                result = program.eval(asked.activation)
                value: object = result.plain_value()
            except (RuntimeError, TypeError) as error:
                raise EvaluationError(_one_line(str(error))) from None
            if type(value) is str:
                # Errors are values here, and their texts must not be taken for anybody's name.
                if result.type() != error_type:
                    return value
                _raise_unless_missing(value, names)
                return None
            if value is None or type(value) in _PLAIN:
                return value
            if isinstance(value, datetime):
                return utc_text(value)
            raise EvaluationError(f"gives {_type_name(value)}, which no record can hold")

        return evaluate

    def _what_is_wrong(self, message: str, text: str) -> str:
        first = _one_line(message)
        unknown = _UNKNOWN.search(first)
        if unknown is None:
            place = _PLACE.search(first)
            if place is None:
                return f"is no expression: {first}"
            return f"is no expression: {first[place.end() :].partition(' expecting')[0]} (column {place[1]})"
        name = unknown[2].partition(".")[0]
        sort = "name"
        if name == MEMBER:
            return f"{MEMBER} is there only in rules with each: members"
        if name in _FUNCTIONS:
            return f"{name} is called as {name}({IT}.mail)"
        if name == "math":
            return "math has bitAnd, bitOr, greatest, least and the like, but not this function"
        if re.search(rf"\b{re.escape(name)}\s*\(", text):
            sort = "function"
            hint = resembling(name, _KNOWN_FUNCTIONS)
        else:
            hint = f"{IT}.{name}"
        return f"there is no {sort} {name}{f'; did you mean {hint}?' if hint else ''}"


@lru_cache(maxsize=4)
def language(*variables: str) -> Language:
    """The language with these variables, made once. Raises ``LibraryMissingError``."""
    return Language(variables)


def fit(value: Value, *, loops: bool = False) -> None:
    """Whether expressions may be asked of an object. Raises ``UnfitValueError``.

    ``loops``: whether one of them goes through lists.
    """
    for name, inner in value.items():
        if type(inner) is str:
            # Most attributes are short texts: what looks at the others takes longer than all else here.
            if not inner.isascii() or "\0" in inner:
                _fit_text(inner, name)
        elif inner is not None and type(inner) is not bool:
            _fit(inner, name, MAX_NESTING, loops=loops)


def _fit(value: object, name: str, depth: int, *, loops: bool) -> None:
    if isinstance(value, str):
        _fit_text(value, name)
    elif value is None or isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise UnfitValueError(f"{name}: the number has more than 63 bits")
    elif depth == 0:
        raise UnfitValueError(f"{name}: is nested more than {MAX_NESTING} deep")
    elif isinstance(value, list):
        if loops and len(value) > MAX_ELEMENTS:
            raise UnfitValueError(
                f"{name}: has {len(value):,} values; expressions go through {MAX_ELEMENTS:,} at most"
                " (for members there is each: members)"
            )
        for inner in value:
            _fit(inner, name, depth - 1, loops=loops)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise UnfitValueError(f"{name}: a key in it is {name_of_type(key)}, not text")
            _fit_text(key, name)
            _fit(inner, f"{name}.{key}", depth - 1, loops=loops)
    else:
        raise UnfitValueError(f"{name}: {name_of_type(value)} is nothing that expressions know")


def _fit_text(value: str, name: str) -> None:
    if "\0" in value:
        raise UnfitValueError(f"{name}: contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UnfitValueError(f"{name}: contains half of a surrogate pair") from None


_FUNCTIONS: Mapping[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper}
"""Our own: those of the language know ASCII only."""

_KNOWN_FUNCTIONS = (
    *_FUNCTIONS,
    *("has", "size", "startsWith", "endsWith", "contains", "matches", "substring", "split", "join", "replace", "trim"),
    *("indexOf", "lastIndexOf", "charAt", "format", "reverse", "string", "int", "double", "bool", "timestamp"),
    *("exists", "exists_one", "all", "filter", "map", "orValue", "hasValue"),
    *("math.bitAnd", "math.bitOr", "math.greatest", "math.least"),
)
"""What people may have meant."""

_PLAIN: Final = frozenset({bool, int, float, list, dict})
_MISSING = re.compile(r'^NOT_FOUND: Key not found in map : "?(.*?)"?$', re.DOTALL)
_UNKNOWN = re.compile(r"<input>:(\d+:\d+): undeclared reference to '([^']*)'")
_PLACE = re.compile(r"<input>:1:(\d+): ")
_OVERLOAD = re.compile(r"No matching overloads found : ([^(]+)(?:\((.*)\))?$")
_STATUS = re.compile(r"^[A-Z_]+: ")


def _raise_unless_missing(message: str, names: frozenset[str] | None) -> None:
    """Raises ``EvaluationError``, unless an attribute is missing. ``names``: those that count as such; None: all."""
    missing = _MISSING.match(message)
    if missing is None:
        raise EvaluationError(_in_words(_one_line(message)))
    if names is not None and missing[1] not in names:
        raise EvaluationError(f"its table has no {quoted(missing[1])}")


def _in_words(message: str) -> str:
    overload = _OVERLOAD.match(message)
    if overload is None:
        return message
    types = f"; here it is asked to take ({overload[2].replace('int64', 'int')})" if overload[2] else ""
    return f"{overload[1].strip('_')} does not take values of such types{types}"


def _one_line(message: str) -> str:
    return _STATUS.sub("", message.split("\n", 1)[0]).removeprefix("ERROR: ")[:300]


def _type_name(value: object) -> str:
    return {"timedelta": "a duration", "bytearray": "bytes", "Type": "a type"}.get(
        type(value).__name__, type(value).__name__
    )


# The tree of an expression, as the library serializes it: a ``cel.expr.CheckedExpr`` of protocol buffers.

_Node = Mapping[int, Sequence["int | bytes"]]
"""Field number → its values."""


def _message(data: bytes) -> _Node:
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


def _tree_of(serialized: bytes) -> _Node:
    checked = _inner(_message(serialized), 2) or {}  # it travels in a ``google.protobuf.Any``
    return _inner(checked, 4) or {}


def _inner(node: _Node, number: int) -> _Node | None:
    """A message in a message, or None."""
    found = node.get(number)
    return _message(found[-1]) if found and isinstance(found[-1], bytes) else None


def _inners(node: _Node, number: int) -> Iterator[_Node]:
    return (_message(one) for one in node.get(number, ()) if isinstance(one, bytes))


def _text(node: _Node, number: int) -> str:
    found = node.get(number)
    return found[-1].decode() if found and isinstance(found[-1], bytes) else ""


# Numbers of fields in ``cel.expr.Expr`` and what is in it.
_CONSTANT, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _LOOP = 3, 4, 5, 6, 7, 8, 9
_CONSTANT_TEXT = 6
_INDEXING = frozenset({"_[_]", "_[?_]", "_?._"})


class _Seen:
    """What an expression names."""

    def __init__(self, tree: _Node, variables: Sequence[str]) -> None:
        self.names: dict[str, set[str]] = {name: set() for name in variables}
        self.loops = False
        self.has_table = False
        selected: set[str] = set()
        self._selected = selected
        self._walk(tree, frozenset())
        self.selected = frozenset(selected)

    def _walk(self, node: _Node, hidden: frozenset[str]) -> None:
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
            else:
                self._walk(operand, hidden)
            return
        loop = _inner(node, _LOOP)
        if loop is not None:
            self.loops = True
            own = hidden | {_text(loop, 1), _text(loop, 3), _text(loop, 8)}
            for number in (2, 4):
                self._walk(_inner(loop, number) or {}, hidden)
            for number in (5, 6, 7):
                self._walk(_inner(loop, number) or {}, own)
            return
        for child in self._children(node):
            self._walk(child, hidden)

    def _children(self, node: _Node) -> Iterator[_Node]:
        select, call, listed, struct = (_inner(node, number) for number in (_SELECT, _CALL, _LIST, _STRUCT))
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


def _named(node: _Node) -> str | None:
    """The variable that a node is, if it is one."""
    ident = _inner(node, _IDENT)
    return None if ident is None else _text(ident, 1).removeprefix(".")


def _selection(node: _Node) -> tuple[_Node, str] | None:
    """Of ``x.name``, ``has(x.name)``, ``x["name"]`` and ``x.?name``: x and the name."""
    select = _inner(node, _SELECT)
    if select is not None:
        return _inner(select, 1) or {}, _text(select, 2)
    call = _inner(node, _CALL)
    if call is None or _text(call, 2) not in _INDEXING:
        return None
    arguments = list(_inners(call, 3))
    if len(arguments) != 2:
        return None
    constant = _inner(arguments[1], _CONSTANT)
    if constant is None or _CONSTANT_TEXT not in constant:
        return None
    return arguments[0], _text(constant, _CONSTANT_TEXT)


def _plain_attribute(tree: _Node, variables: Sequence[str], *, tested: bool = False) -> tuple[str, str]:
    """Of ``it.name`` and nothing else, the variable and the name; otherwise empty texts. ``tested``: of
    ``has(it.name)`` instead."""
    select = _inner(tree, _SELECT)
    variable = None if select is None else _named(_inner(select, 1) or {})
    if select is None or variable is None or variable not in variables or bool(select.get(3)) is not tested:
        return "", ""
    return variable, _text(select, 2)


def _simple(tree: _Node, variables: Sequence[str], by_library: Callable[[Asked], object]) -> Callable[[Asked], object]:
    """The evaluation of an expression: without the library, where it is ``it.name``, ``has(it.name)``, a text, or one
    of our functions of ``it.name``. Most are that, and to hand an object over takes it longer than to answer."""
    variable, name = _plain_attribute(tree, variables)
    if variable:
        return lambda asked: asked.values[variable].get(name)
    variable, name = _plain_attribute(tree, variables, tested=True)
    if variable:
        return lambda asked: name in asked.values[variable]
    constant = _inner(tree, _CONSTANT)
    if constant is not None and _CONSTANT_TEXT in constant:
        text = _text(constant, _CONSTANT_TEXT)
        return lambda _: text
    call = _inner(tree, _CALL) or {}
    function, arguments = _FUNCTIONS.get(_text(call, 2)), list(_inners(call, 3))
    if function is not None and len(arguments) == 1:
        variable, name = _plain_attribute(arguments[0], variables)
        if variable:
            return _of_text(function, variable, name, by_library)
    return by_library


def _of_text(
    function: Callable[[str], str], variable: str, name: str, by_library: Callable[[Asked], object]
) -> Callable[[Asked], object]:
    def evaluate(asked: Asked) -> object:
        value = asked.values[variable].get(name)
        return function(value) if type(value) is str else by_library(asked)

    return evaluate
