"""Casters: what makes records of many rows that have the same fields.

Which fields there are, and what may stand in them, is settled once for all rows; what remains for each is to look at
its values and to fill in the record. A caster makes the same record as ``record_from_object``, or none: whatever is odd
about a row is left to that, which has the words for it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from app.access.kinds import KINDS, RecordField, compiled
from app.access.records import NO_FURTHER_FIELDS, Record, Sort
from app.directory.casting import are_plain_names
from app.directory.fields import (
    ACCESS_ROLES,
    ACCESS_TYPES,
    DECIDING,
    MAX_ID_BYTES,
    MAX_NESTING,
    check_json,
    checked_alias,
    checked_id,
    checked_text,
    take_aliases,
    take_context_value,
    take_time,
)

Cast = Callable[..., Record | None]
"""The record of a row's values, in the order of the names that the caster was made for; None: whether there is one, and
why not, is for ``record_from_object`` to say."""

Convert = Callable[[Any], object]
"""From a value as it comes to one that the field may have. What it raises is odd about the row."""


def caster(
    kind: str,
    names: Sequence[str],
    converters: Mapping[str, Convert] | None = None,
    *,
    null_travels: bool = True,
    null_is_absent: Collection[str] = (),
) -> Cast | None:
    """The caster of rows with these fields; None where every row is odd, or has to be asked whether it is.

    ``converters``: by name, what is done with values that are no texts (of times and lists of aliases, with all; what
    it gives for a time is aware). ``null_travels``: whether further fields that are null travel on as that, or are as
    good as missing. ``null_is_absent``: those of ``DECIDING`` in which null means that the field is absent.
    """
    described = KINDS[kind]
    variables = {name: f"v{number}" for number, name in enumerate(names)}
    lacking = any(field.is_needed and field.name not in variables for field in described.fields)
    if lacking or len(variables) < len(names) or not are_plain_names(kind, names):
        return None
    convert = {name: f"convert_{variables[name]}" for name in converters or ()}
    scope: dict[str, object] = dict(_HELPERS)
    scope |= {convert[name]: function for name, function in (converters or {}).items()}
    lines: list[str] = []
    values = {"further": "further"}
    for field in described.fields:
        values[field.attribute] = variables.get(field.name, f"absent_{field.attribute}")
        scope[f"absent_{field.attribute}"] = _ABSENT.get(field.sort, field.default)
        if field.name in variables:
            if field.name in DECIDING and field.name not in null_is_absent:
                lines.append(f"if {variables[field.name]} is None: return None")
            lines += _LINES[field.sort](_Given(variables[field.name], convert.get(field.name, ""), field))
            scope[f"known_{field.attribute}"] = {None: field.default, **_KNOWN.get(field.sort, {})}
    for group in described.alternatives:
        given = [f"({variables[field.name]} is not None)" for field in group if field.name in variables]
        lines.append(f"if {' + '.join(given) or 0} != 1: return None")
    others = {name: variables[name] for name in names if name not in described.field_names}
    for name, variable in others.items():
        scope[f"name_{variable}"] = name
        lines += _further(variable, convert.get(name, ""), travels=described.carries)
    lines += _together(others.values() if described.carries else (), null_travels=null_travels)
    making, needed = described.making(values)
    text = [
        f"def cast({', '.join(variables.values())}):",
        " try:",
        *(f"  {line}" for line in [*lines, *making]),
        # Whatever is wrong with a value ends in one of these.
        " except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError): return None",
    ]
    cast: Cast = compiled("cast", text, {**scope, **needed}, of=kind)
    return cast


_ABSENT: Mapping[Sort, object] = {Sort.FLAG: False, Sort.ALIASES: ()}
_KNOWN: Mapping[Sort, Mapping[Any, object]] = {Sort.ACCESS_ROLE: ACCESS_ROLES, Sort.ACCESS_TYPE: ACCESS_TYPES}

_HELPERS: Mapping[str, object] = {
    "no_further": NO_FURTHER_FIELDS,
    "checked_id": checked_id,
    "checked_alias": checked_alias,
    "checked_text": checked_text,
    "check_json": partial(check_json, depth=MAX_NESTING),
    "take_time": take_time,
    "take_aliases": take_aliases,
    "take_context_value": take_context_value,
}

# Lines for a field of each sort, which leave in the variable what the record has in the field. No text of which these
# conditions hold is wrong; of the others, a function says it.
_ODD_TEXT = 'not {0}.isascii() or "\\0" in {0}'
_ODD_ID = _ODD_TEXT + f" or not 0 < len({{0}}) <= {MAX_ID_BYTES // 4}"


class _Given(NamedTuple):
    """A field of the kind's own that rows have."""

    value: str
    """The variable in which its value comes."""
    convert: str
    """The function that makes a text of it where it is none; empty: there is none."""
    field: RecordField

    @property
    def converted(self) -> str:
        """The value made a text, whatever it was."""
        return f"{self.convert}({self.value})" if self.convert else self.value

    def as_text(self) -> list[str]:
        """Lines that make a text of what is neither that nor missing."""
        no_text = f"{self.value}.__class__ is not str and {self.value} is not None"
        return [f"if {no_text}: {self.value} = {self.converted}"] if self.convert else []


def _text(given: _Given, *, odd: str, check: str) -> list[str]:
    there = "" if given.field.is_needed else f"{given.value} is not None and "
    checked = f"{check}({given.value}, {given.field.name!r})"
    return [*given.as_text(), f"if {there}({odd.format(given.value)}): {checked}"]


def _alias(given: _Given) -> list[str]:
    value = given.value
    folded = f"checked_alias({value}, {given.field.name!r}) if {_ODD_ID.format(value)} else {value}.lower()"
    return [*given.as_text(), f"if {value} is not None: {value} = {folded}"]


def _context_value(given: _Given) -> list[str]:
    odd = f"{given.value}.__class__ is not str or {_ODD_ID.format(given.value)}"
    return [f"if {odd}: {given.value} = take_context_value({{'': {given.converted}}}, '')"]


def _flag(given: _Given) -> list[str]:
    value = given.value
    return [
        f"if {value} is None: {value} = False",
        f"elif {value}.__class__ is not bool:",
        f" {value} = {given.converted}",
        f" if {value}.__class__ is not bool: return None",
    ]


def _known(given: _Given) -> list[str]:
    return [f"{given.value} = known_{given.field.attribute}[{given.value}]"]


def _time(given: _Given) -> list[str]:
    taken = given.converted if given.convert else f"take_time({{'': {given.value}}}, '')"
    return [f"if {given.value} is not None: {given.value} = {taken}"]


def _aliases(given: _Given) -> list[str]:
    taken = f"take_aliases({{'': {given.converted}}}, '')"
    return [f"{given.value} = {taken} if {given.value} is not None else ()"]


def _further(value: str, convert: str, *, travels: bool) -> list[str]:
    """Lines for a field that is none of the kind's own, or for a note, which only has to be plain."""
    no_text = f"{value}.__class__ is not str and {value} is not None"
    lines = [f"if {no_text}: {value} = {convert}({value})"] if convert else []
    if travels:
        lines += [
            f"if {value}.__class__ is str:",
            f" if {_ODD_TEXT.format(value)}: checked_text({value}, name_{value})",
            f"elif {value} is not None and {value}.__class__ is not bool: check_json({value}, name_{value})",
        ]
    return lines


def _together(others: Iterable[str], *, null_travels: bool) -> list[str]:
    if null_travels:
        pairs = ", ".join(f"name_{value}: {value}" for value in others)
        return [f"further = {{{pairs}}}" if pairs else "further = no_further"]
    lines = [f"if {value} is not None: further[name_{value}] = {value}" for value in others]
    return ["further = {}", *lines, "if not further: further = no_further"]


_LINES: Mapping[Sort, Callable[[_Given], list[str]]] = {
    Sort.ID: partial(_text, odd=_ODD_ID, check="checked_id"),
    Sort.TEXT: partial(_text, odd=_ODD_TEXT, check="checked_text"),
    Sort.ALIAS: _alias,
    Sort.ALIASES: _aliases,
    Sort.CONTEXT_VALUE: _context_value,
    Sort.FLAG: _flag,
    Sort.ACCESS_TYPE: _known,
    Sort.ACCESS_ROLE: _known,
    Sort.TIME: _time,
}
