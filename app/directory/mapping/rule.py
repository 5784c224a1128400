"""One rule that can be applied: of an object, and perhaps one of its members, the record that it makes, or why none.

Semantics: ``app/directory/mapping/README.md``.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.access.records import Fill, Record
from app.directory.casting import record_from_object
from app.directory.connector import ALL_ATTRIBUTES
from app.directory.fields import DECIDING, MalformedRecordError, name_of_type
from app.directory.mapping.cel import IT, MEMBER, Asked, EvaluationError, Expression, language
from app.directory.mapping.settings import RuleSettings

_NEVER_ABSENT = frozenset({"accessRole", "accessType"})
"""Fields that a missing attribute never leaves out: users would become editors, documents open to the organization."""

_IDS = frozenset({"userId", "userAlias"})
"""Fields that say who; a member that lacks what they name is nobody here, which is no fault of the rule."""


class Made(NamedTuple):
    """A record."""

    record: Record
    remarks: tuple[str, ...] = ()
    """What is odd about its fields."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """No record, as it is meant."""

    reason: str


@dataclass(frozen=True, slots=True)
class Spoilt:
    """No record, though there should be one."""

    reason: str


Outcome = Made | Skipped | Spoilt

NOT_MATCHED: Final = Skipped("when is false")
ATTRIBUTE_MISSING: Final = Skipped("when names an attribute that is missing")
NOBODY: Final = Skipped("the member is nobody of whom a user is made")

_Evaluate = Callable[[Asked], object]


class MappingRule:
    """One rule, compiled. Raises ``ExpressionError``."""

    def __init__(self, number: int, settings: RuleSettings, always: frozenset[str] = frozenset()) -> None:
        """``always``: the attributes that every object of its set has."""
        self.number = str(number)
        """Counted from 1, as ``Origin.rule`` has it."""
        self.set = settings.from_
        self.kind = settings.kind
        self.each = settings.each is not None
        """Whether it makes a record for each member."""
        spoken = language(IT, MEMBER) if self.each else language(IT)
        self._when = None if settings.when is None else spoken.compile(settings.when)
        self._aliases = [spoken.compile(text) for text in settings.aliases]
        self._constants = {name: value for name, value in settings.fields.items() if not isinstance(value, str)}
        self._fields = [(name, spoken.compile(text)) for name, text in settings.fields.items() if isinstance(text, str)]
        self._of_object = [(name, one.evaluate) for name, one in self._fields if MEMBER not in one.names]
        self._of_member = [(name, one.evaluate) for name, one in self._fields if MEMBER in one.names]
        self._alias_of_object = [one.evaluate for one in self._aliases]
        self.makes = frozenset(self._constants) | {name for name, _ in self._fields}
        """The names of the fields that its records may have."""
        self._when_of_member = self._when is not None and MEMBER in self._when.names
        self._required = self._required_attributes(always)
        self.user_id = next((one.attribute for name, one in self._fields if name == "userId"), "")
        """The attribute that is the ``userId``; empty: it is none by itself."""
        self.user_alias = next((one.attribute for name, one in self._fields if name == "userAlias"), "")
        """The same of ``userAlias``."""

    def _required_attributes(self, always: frozenset[str]) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Field → the variables and attributes without which the field must not be absent: that would be the most
        permissive. ``when`` is among the fields where a rule disables those whom it matches."""
        expressions = {name: one for name, one in self._fields if name in DECIDING}
        if self._when is not None and self.kind == Fill.kind and self._disables:
            expressions["when"] = self._when
        found: dict[str, list[tuple[str, str]]] = {}
        for name, expression in expressions.items():
            for variable, attributes in expression.required.items():
                for attribute in sorted(attributes):
                    there = variable == IT and _is_among(attribute, always)
                    if there or name in _NEVER_ABSENT:
                        found.setdefault(name, []).append((variable, attribute))
        return found

    @property
    def _disables(self) -> bool:
        """Whether its records may be disabled."""
        return "disabled" in self.makes and self._constants.get("disabled") is not False

    def disabling(self, variable: str) -> frozenset[str]:
        """The attributes by which it disables, but for those that it allows to be missing."""
        if not self._disables:
            return frozenset()
        expressions = [one for name, one in self._fields if name == "disabled"]
        if self._when is not None and self.kind == Fill.kind:
            expressions.append(self._when)
        return frozenset().union(*(one.required.get(variable, frozenset()) for one in expressions))

    def expressions(self) -> Sequence[Expression]:
        """All of them."""
        when = [] if self._when is None else [self._when]
        return [*when, *self._aliases, *(one for _, one in self._fields)]

    def of(self, asked: Asked) -> Outcome:
        """What it makes of an object; only for a rule without ``each``."""
        if self._when is not None:
            outcome = self._judge(asked)
            if outcome is not None:
                return outcome
        try:
            fields = self._evaluated(self._of_object, asked, dict(self._constants))
            if self._alias_of_object:
                fields["aliases"] = self._aliases_of(asked)
            return _made(fields, self.kind)
        except MalformedRecordError as error:
            return Spoilt(str(error))

    def fields_that_can_be_told(self, asked: Asked) -> dict[str, object]:
        """Of an object of which it cannot make a record: the fields that have a value all the same, if it matches."""
        fields: dict[str, object] = dict(self._constants)
        try:
            if self._when is not None and self._when.evaluate(asked) is not True:
                return {}
        except EvaluationError:
            return {}
        for name, evaluate in self._of_object:
            with suppress(EvaluationError):
                fields[name] = evaluate(asked)
        return fields

    def disables(self, asked: Asked) -> bool:
        """Whether the record would be disabled that it cannot make of an object."""
        return self._disables and not self.each and self.fields_that_can_be_told(asked).get("disabled") is True

    def begin(self, asked: Asked) -> "OfMembers | Skipped | Spoilt":
        """What it makes of an object's members; only for a rule with ``each``."""
        if self._when is not None and not self._when_of_member:
            outcome = self._judge(asked)
            if outcome is not None:
                return outcome
        try:
            fields = self._evaluated(self._of_object, asked, dict(self._constants))
        except MalformedRecordError as error:
            return Spoilt(str(error))
        return OfMembers(self, fields)

    def of_member(self, fields: Mapping[str, object], asked: Asked) -> Outcome:
        """What it makes of one member; ``fields``: those that are the same for all."""
        if self._when_of_member:
            outcome = self._judge(asked)
            if outcome is not None:
                return outcome
        try:
            own = self._evaluated(self._of_member, asked, dict(fields))
            for name, _ in self._of_member:
                if name in _IDS and name not in own:
                    return NOBODY
            return _made(own, self.kind)
        except MalformedRecordError as error:
            return Spoilt(str(error))

    def _judge(self, asked: Asked) -> Skipped | Spoilt | None:
        """Why there is no record by ``when``; None: there is."""
        assert self._when is not None  # noqa: S101 - for the type checker: callers have looked
        try:
            holds = self._when.evaluate(asked)
        except EvaluationError as error:
            return Spoilt(f"when: {error}")
        if holds is True:
            return None
        if holds is False:
            return NOT_MATCHED
        if holds is None:
            missing = self._missing("when", asked)
            return ATTRIBUTE_MISSING if missing is None else Spoilt(f"when: {missing}")
        return Spoilt(
            f'when: must be true or false, but is {name_of_type(holds)}; compare it, for example it.status == "left"'
        )

    def _missing(self, name: str, asked: Asked) -> str | None:
        """Which attribute is missing that ``name`` requires, for people; None: none."""
        for variable, attribute in self._required.get(name, ()):
            if asked.values[variable].get(attribute) is None:
                path = f"{variable}.{attribute}"
                return f"{path} is missing, and decides about access; if it may be missing, ask has({path}) first"
        return None

    def _evaluated(
        self, fields: Sequence[tuple[str, _Evaluate]], asked: Asked, into: dict[str, object]
    ) -> dict[str, object]:
        for name, evaluate in fields:
            try:
                value = evaluate(asked)
            except EvaluationError as error:
                raise MalformedRecordError(f"{name}: {error}") from None
            if value is not None:
                into[name] = value
            elif name in self._required and (missing := self._missing(name, asked)) is not None:
                raise MalformedRecordError(f"{name}: {missing}")
        return into

    def _aliases_of(self, asked: Asked) -> list[object]:
        """Their values: texts, and the texts of lists; those that are missing or empty are not there."""
        found: list[object] = []
        for evaluate in self._alias_of_object:
            try:
                value = evaluate(asked)
            except EvaluationError as error:
                raise MalformedRecordError(f"aliases: {error}") from None
            found.extend(value if isinstance(value, list) else [value])
        given = [one for one in found if one is not None and one != ""]
        if len(given) < 2:
            return given
        return list(dict.fromkeys(given)) if all(isinstance(one, str) for one in given) else given


@dataclass(frozen=True, slots=True)
class OfMembers:
    """A rule with ``each``, at one object."""

    rule: MappingRule
    fields: Mapping[str, object]

    def of(self, asked: Asked) -> Outcome:
        """What it makes of one member."""
        return self.rule.of_member(self.fields, asked)


def _made(fields: dict[str, object], kind: str) -> Outcome:
    try:
        return Made(*record_from_object(fields, kind))
    except MalformedRecordError as error:
        # The words are those for people who write files.
        return Spoilt(str(error).replace("; put it in quotes", "; write string(…) around it"))


def _is_among(attribute: str, always: frozenset[str]) -> bool:
    # Directories do not tell capital letters from small ones.
    return ALL_ATTRIBUTES in always or attribute.lower() in {name.lower() for name in always}
