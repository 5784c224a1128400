"""Expressions of rules, in CEL. No other module uses the library.

An expression is compiled once, and rejected then if it contains an unknown name. It cannot reach files or networks, its
regular expressions take linear time, and all its loops together go through 10,000 elements at most. Its values must be
checked before (``app.directory.mapping.rules.check_values``), and the size of its result is limited
(``app.directory.mapping.result_size``).

A missing attribute makes the value of an expression missing (None), unless the expression allows it
(``has(it.mail)``, ``it.?mail.orValue("")``). A missing key of a map in the expression is an error.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from app.directory.connector import ALL_ATTRIBUTES
from app.directory.mapping.expression_tree import Names, Node, operands, plain_attribute, text_constant, tree_of
from app.directory.mapping.result_size import MAX_RESULT, TooLargeError, size_bound
from app.directory.spelling import resembling
from app.foundation.clock import utc_text
from app.foundation.text import quoted

IT = "it"
"""The variable of the object."""
MEMBER = "member"
"""The variable of a member, in rules with ``each: members``."""

MAX_TEXT = 4_000
"""Characters of an expression."""

Value = Mapping[str, object]
"""An object or a member in expressions."""


class ExpressionError(ValueError):
    """An invalid expression."""


class LibraryMissingError(ExpressionError):
    def __init__(self) -> None:
        super().__init__("rules need the package cel-expr-python: pip install 'usher[mapping]'")


class EvaluationError(Exception):
    """An expression has no value for an object."""


class Variables:
    """The values of ``it`` and perhaps ``member``, which must have been checked."""

    __slots__ = ("_activation", "_language", "values")

    def __init__(self, language: "Language", values: dict[str, Value]) -> None:
        self._language = language
        self.values = values
        self._activation: Any = None

    def set_member(self, member: Value) -> None:
        self.values[MEMBER] = member
        self._activation = None

    @property
    def activation(self) -> Any:
        """The values in the library's form, shared by all expressions."""
        if self._activation is None:
            self._activation = self._language.environment.Activation(self.values)
        return self._activation


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression."""

    names: Mapping[str, frozenset[str]]
    """Variable → the attributes that the expression names; ``ALL_ATTRIBUTES`` if it computes the name of one."""
    required: Mapping[str, frozenset[str]]
    """Variable → those of them that the expression does not allow to be missing."""
    attribute: str | None
    """The attribute of ``it`` that the expression is. None if it is more than that."""
    loops: bool
    """Whether it goes through lists."""
    is_boolean: bool
    """Whether it can be true or false."""
    evaluate: Callable[[Variables], object]
    """Its value. None: missing. Raises ``EvaluationError``."""


_FUNCTIONS: Mapping[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper}
"""Functions that CEL does not have, or only for ASCII."""

_PLAIN_TYPES: Final = frozenset({bool, int, float, list, dict})
"""Types of results that records can contain, in addition to text."""


class Language:
    """CEL with the given variables."""

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
        """Raises ``ExpressionError``."""
        if not text.strip():
            raise ExpressionError("is empty; write an expression, such as it.mail, or leave it out")
        if len(text) > MAX_TEXT:
            raise ExpressionError(f"is longer than {MAX_TEXT:,} characters")
        if "\0" in text:
            raise ExpressionError("contains a NUL character")
        try:
            program = self.environment.compile(text)
        except RuntimeError as error:
            raise ExpressionError(_compile_error(_one_line(str(error)), text)) from None
        returned = program.return_type().name()
        if returned.startswith("optional"):
            raise ExpressionError("may have no value: end it in .orValue(…), or leave the question mark out")
        tree = tree_of(program.serialize())
        named = Names(tree, self._variables)
        path = plain_attribute(tree, (IT,))
        return Expression(
            names={name: frozenset(found) for name, found in named.names.items() if found},
            required={
                name: frozenset(found - named.optional[name] - {ALL_ATTRIBUTES}) for name, found in named.names.items()
            },
            attribute=None if path is None else path[1],
            loops=named.loops,
            is_boolean=returned in {"BOOL", "DYN"},
            evaluate=_shortcut(tree, self._variables) or self._evaluation(program, named, tree),
        )

    def _evaluation(self, program: Any, named: Names, tree: Node) -> Callable[[Variables], object]:
        error_type = self._error
        # Without a map in the expression, every missing key is a missing attribute.
        attributes = named.selected if named.has_map else None
        bound = size_bound(tree)

        def evaluate(variables: Variables) -> object:
            if bound is not None:
                try:
                    bound(variables.values)
                except TooLargeError:
                    raise EvaluationError(f"would make more than {MAX_RESULT:,} characters or elements") from None
            try:
                result = program.eval(variables.activation)
                value: object = result.plain_value()
            except (RuntimeError, TypeError) as error:
                raise EvaluationError(_one_line(str(error))) from None
            if type(value) is str:
                # An error is a value here, and its text must not become a name.
                if result.type() != error_type:
                    return value
                _raise_unless_missing(value, attributes)
                return None
            if value is None or type(value) in _PLAIN_TYPES:
                return value
            if isinstance(value, datetime):
                return utc_text(value)
            type_name = type(value).__name__
            described = {"timedelta": "a duration", "bytearray": "bytes", "Type": "a type"}.get(type_name, type_name)
            raise EvaluationError(f"results in {described}, which a record cannot contain")

        function, arguments = operands(tree)
        path = plain_attribute(arguments[0], self._variables) if function in _FUNCTIONS else None
        if path is None:
            return evaluate
        call, (variable, name) = _FUNCTIONS[function], path

        def evaluate_function(variables: Variables) -> object:
            value = variables.values[variable].get(name)
            return call(value) if type(value) is str else evaluate(variables)

        return evaluate_function


@lru_cache(maxsize=4)
def language(*variables: str) -> Language:
    """The language with these variables. Raises ``LibraryMissingError``."""
    return Language(variables)


# Shortcuts: most expressions are so simple that a call of the library would take much longer than their evaluation.


def _shortcut(tree: Node, variables: Sequence[str]) -> Callable[[Variables], object] | None:
    """The evaluation of ``it.name``, ``has(it.name)`` and text constants."""
    if (path := plain_attribute(tree, variables)) is not None:
        variable, name = path
        return lambda values: values.values[variable].get(name)
    if (path := plain_attribute(tree, variables, tested=True)) is not None:
        variable, name = path
        return lambda values: name in values.values[variable]
    text = text_constant(tree)
    return None if text is None else lambda _: text


# Messages.

_KNOWN_FUNCTIONS = (
    *_FUNCTIONS,
    *("has", "size", "startsWith", "endsWith", "contains", "matches", "substring", "split", "join", "replace", "trim"),
    *("indexOf", "lastIndexOf", "charAt", "format", "reverse", "string", "int", "double", "bool", "timestamp"),
    *("exists", "exists_one", "all", "filter", "map", "orValue", "hasValue"),
    *("math.bitAnd", "math.bitOr", "math.greatest", "math.least"),
)
"""The names that a hint about a misspelled function may contain."""

_MISSING = re.compile(r'^NOT_FOUND: Key not found in map : "?(.*?)"?$', re.DOTALL)
_UNKNOWN = re.compile(r"<input>:(\d+:\d+): undeclared reference to '([^']*)'")
_POSITION = re.compile(r"<input>:1:(\d+): ")
_OVERLOAD = re.compile(r"No matching overloads found : ([^(]+)(?:\((.*)\))?$")
_STATUS = re.compile(r"^[A-Z_]+: ")


def _compile_error(message: str, text: str) -> str:
    unknown = _UNKNOWN.search(message)
    if unknown is None:
        position = _POSITION.search(message)
        if position is None:
            return f"is not an expression: {message}"
        return f"is not an expression: {message[position.end() :].partition(' expecting')[0]} (column {position[1]})"
    name = unknown[2].partition(".")[0]
    if name == MEMBER:
        return f"{MEMBER} exists only in rules with each: members"
    if name in _FUNCTIONS:
        return f"{name} is called as {name}({IT}.mail)"
    if name == "math":
        return "math has bitAnd, bitOr, greatest, least and others, but not this function"
    if re.search(rf"\b{re.escape(name)}\s*\(", text):
        hint = resembling(name, _KNOWN_FUNCTIONS)
        return f"there is no function {name}{f'; did you mean {hint}?' if hint else ''}"
    return f"there is no name {name}; did you mean {IT}.{name}?"


def _raise_unless_missing(message: str, attributes: set[str] | None) -> None:
    """Raises ``EvaluationError`` unless the message reports a missing attribute. ``attributes``: None allows any."""
    missing = _MISSING.match(message)
    if missing is not None and (attributes is None or missing[1] in attributes):
        return
    if missing is not None:
        raise EvaluationError(f"its table has no {quoted(missing[1])}")
    line = _one_line(message)
    if (overload := _OVERLOAD.match(line)) is not None:
        types = f"; the types here are ({overload[2].replace('int64', 'int')})" if overload[2] else ""
        line = f"{overload[1].strip('_')} does not support values of these types{types}"
    raise EvaluationError(line)


def _one_line(message: str) -> str:
    return _STATUS.sub("", message.split("\n", 1)[0]).removeprefix("ERROR: ")[:300]
