"""The expressions of rules: CEL, and the library for it, which nobody else knows of.

An expression is compiled once, and refused then if it names what is not there. It computes: it reaches no file and no
network, its regular expressions take linear time, and it goes through 10,000 elements at most, all its loops together.
What it is asked of has been looked at before (``app.directory.mapping.fitness``), and so has how much it would make of
it (``app.directory.mapping.growth``).

An attribute that is missing makes the value of an expression missing (None), unless the expression asks first
(``has(it.mail)``, ``it.?mail.orValue("")``). A table in the expression that lacks a key is an error: what stands in
nobody's table must not be taken for something that was never said.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from app.directory.connector import ALL_ATTRIBUTES
from app.directory.mapping.expression_tree import Named, Node, call_of_one, plain_attribute, text_constant, tree_of
from app.directory.mapping.fitness import Value
from app.directory.mapping.growth import MAX_RESULT, SizeOf, TooLargeError, growth
from app.directory.spelling import resembling
from app.foundation.clock import utc_text
from app.foundation.text import quoted

IT = "it"
"""The name of the object in expressions."""
MEMBER = "member"
"""The name of one of its members, in rules with ``each: members``."""

MAX_TEXT = 4_000
"""Characters of the longest expression."""


class ExpressionError(ValueError):
    """An expression that cannot be used; the text says what is wrong with it."""


class LibraryMissingError(ExpressionError):
    """No expression can be used: the library is not installed; the text names the extra."""

    def __init__(self) -> None:
        super().__init__("rules need the package cel-expr-python: pip install 'usher[mapping]'")


class EvaluationError(Exception):
    """An expression that has no value for an object; the text says why."""


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

    names: Mapping[str, frozenset[str]]
    """Variable → the attributes of it that the expression names; ``ALL_ATTRIBUTES`` where that cannot be told."""
    required: Mapping[str, frozenset[str]]
    """Variable → those of them that the expression does not allow to be missing, by ``has(it.mail)`` or the like."""
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
            raise ExpressionError("is empty; write an expression, such as it.mail, or leave it out")
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
        tree = tree_of(program.serialize())
        named = Named(tree, self._variables)
        return Expression(
            names={name: frozenset(found) for name, found in named.names.items() if found},
            required={
                name: frozenset(found - named.optional[name] - {ALL_ATTRIBUTES}) for name, found in named.names.items()
            },
            attribute=plain_attribute(tree, (IT,))[1],
            member_attribute=plain_attribute(tree, (MEMBER,))[1],
            loops=named.loops,
            is_flag=returned in {"BOOL", "DYN"},
            evaluate=_simple(tree, self._variables, self._evaluation(program, named, growth(tree))),
        )

    def _evaluation(self, program: Any, named: Named, bound: SizeOf | None) -> Callable[[Asked], object]:
        error_type = self._error
        names = named.selected if named.has_table else None

        def evaluate(asked: Asked) -> object:
            if bound is not None:
                try:
                    bound(asked.values)
                except TooLargeError:
                    raise EvaluationError(f"would make more than {MAX_RESULT:,} characters or elements") from None
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
            position = _POSITION.search(first)
            if position is None:
                return f"is not an expression: {first}"
            return f"is not an expression: {first[position.end() :].partition(' expecting')[0]} (column {position[1]})"
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
_POSITION = re.compile(r"<input>:1:(\d+): ")
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


def _simple(tree: Node, variables: Sequence[str], by_library: Callable[[Asked], object]) -> Callable[[Asked], object]:
    """The evaluation of an expression: without the library, where it is ``it.name``, ``has(it.name)``, a text, or one
    of our functions of ``it.name``. Most are that, and to hand an object over takes it longer than to answer."""
    variable, name = plain_attribute(tree, variables)
    if variable:
        return lambda asked: asked.values[variable].get(name)
    variable, name = plain_attribute(tree, variables, tested=True)
    if variable:
        return lambda asked: name in asked.values[variable]
    text = text_constant(tree)
    if text is not None:
        return lambda _: text
    called, argument = call_of_one(tree) or ("", {})
    variable, name = plain_attribute(argument, variables)
    if called in _FUNCTIONS and variable:
        return _of_text(_FUNCTIONS[called], variable, name, by_library)
    return by_library


def _of_text(
    function: Callable[[str], str], variable: str, name: str, by_library: Callable[[Asked], object]
) -> Callable[[Asked], object]:
    def evaluate(asked: Asked) -> object:
        value = asked.values[variable].get(name)
        return function(value) if type(value) is str else by_library(asked)

    return evaluate
