"""Rules that can be applied: of an object, and perhaps one of its members, the record that a rule makes, or why none.

Semantics: ``app/directory/mapping/README.md``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from app.access.kinds import KINDS
from app.access.records import Fill, Record, User
from app.directory.casters import Cast, caster
from app.directory.casting import record_from_object
from app.directory.connector import ALL_ATTRIBUTES, NO_NAMES, Wanted
from app.directory.fields import DECIDING, MalformedRecordError, name_of_type
from app.directory.mapping.cel import IT, MEMBER, Asked, EvaluationError, Expression, Language, language
from app.directory.mapping.fitness import Value, fit
from app.directory.mapping.settings import RuleSettings

NO_ATTRIBUTES: Mapping[str, frozenset[str]] = MappingProxyType({})
"""No attribute is known to be there always."""

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

    def __init__(self, number: int, settings: RuleSettings, always: frozenset[str] = NO_NAMES) -> None:
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
        self._names_of_object = [*self._constants, *(name for name, _ in self._of_object)]
        self._attributes_of_member = [one.member_attribute for _, one in self._fields if one.member_attribute]
        self._constant_values = list(self._constants.values())
        self._evaluations_of_object = [evaluate for _, evaluate in self._of_object]
        self._ids_of_member = [index for index, (name, _) in enumerate(self._of_member) if name in _IDS]
        names = [*self._names_of_object, *(name for name, _ in self._of_member)]
        self._cast = caster(
            self.kind, names + (["aliases"] if self._aliases else []), null_travels=False, null_is_absent=DECIDING
        )
        self.makes = frozenset(self._constants) | {name for name, _ in self._fields}
        """The names of the fields that its records may have."""
        self._when_of_member = self._when is not None and MEMBER in self._when.names
        self._required = self._required_attributes(always)
        required = frozenset(self._required)
        self._required_of_object = [i for i, (name, _) in enumerate(self._of_object) if name in required]
        self._required_of_member = [i for i, (name, _) in enumerate(self._of_member) if name in required]
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
            return NO_NAMES
        expressions = [one for name, one in self._fields if name == "disabled"]
        if self._when is not None and self.kind == Fill.kind:
            expressions.append(self._when)
        return frozenset().union(*(one.required.get(variable, NO_NAMES) for one in expressions))

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
        record = None if self._cast is None else self._record(self._cast, asked)
        if record is not None:
            return Made(record)
        try:
            fields = self._evaluated(self._of_object, asked, dict(self._constants))
            if self._alias_of_object:
                fields["aliases"] = self._aliases_of(asked)
            return _made(fields, self.kind)
        except MalformedRecordError as error:
            return Spoilt(str(error))

    def _record(self, cast: Cast, asked: Asked) -> Record | None:
        """The record of an object about which nothing is odd."""
        try:
            values = [evaluate(asked) for evaluate in self._evaluations_of_object]
            if self._alias_of_object:
                values.append(self._aliases_of(asked))
        except (EvaluationError, MalformedRecordError):
            return None
        if any(values[index] is None for index in self._required_of_object):
            return None
        return cast(*self._constant_values, *values)

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
        return OfMembers(self, fields, list(map(fields.get, self._names_of_object)))

    def records_of_members(
        self, values: Sequence[object], asked: Asked, members: Sequence[Value]
    ) -> Sequence[Record | None]:
        """The records of members, None for each about whom something is odd. ``values``: those that all have."""
        cast = self._cast
        if cast is None or self._when_of_member:
            return [None] * len(members)
        if len(self._attributes_of_member) == 1 == len(self._of_member) and not self._required_of_member:
            [attribute] = self._attributes_of_member
            return [cast(*values, member.get(attribute)) for member in members]
        return [self._record_of_member(cast, values, asked, member) for member in members]

    def _record_of_member(self, cast: Cast, values: Sequence[object], asked: Asked, member: Value) -> Record | None:
        asked.turn_to(member)
        try:
            own = [evaluate(asked) for _, evaluate in self._of_member]
        except EvaluationError:
            return None
        if any(own[index] is None for index in (*self._ids_of_member, *self._required_of_member)):
            return None
        return cast(*values, *own)

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
    values: Sequence[object]
    """The same, in the order in which records are made of them."""

    def of(self, asked: Asked) -> Outcome:
        """What it makes of one member."""
        return self.rule.of_member(self.fields, asked)


def _made(fields: dict[str, object], kind: str) -> Outcome:
    try:
        return Made(*record_from_object(fields, kind))
    except MalformedRecordError as error:
        # The words are those for people who write files.
        return Spoilt(str(error).replace("; put it in quotes", "; write string(…) around it"))


class Rules:
    """All rules of a source, in their order."""

    def __init__(self, settings: Sequence[RuleSettings], always: Mapping[str, frozenset[str]] = NO_ATTRIBUTES) -> None:
        """``always``: set → the attributes that each of its objects has, or ``ALL_ATTRIBUTES``; a source that does not
        give one of them hides it."""
        self.all = [
            MappingRule(number, one, always.get(one.from_, NO_NAMES)) for number, one in enumerate(settings, start=1)
        ]
        self.plain: Mapping[str, Sequence[MappingRule]] = _by_set(rule for rule in self.all if not rule.each)
        """Set → its rules without ``each``."""
        self.each: Mapping[str, Sequence[MappingRule]] = _by_set(rule for rule in self.all if rule.each)
        """Set → its rules with ``each``."""
        self._named_of_members = _named(self.all, MEMBER)
        made = frozenset().union(*(rule.makes for rule in self.all if rule.kind == User.kind and not rule.each))
        self.members_user = self._named_of_members & made if ALL_ATTRIBUTES not in self._named_of_members else made
        """The fields of a member's user that expressions name."""
        self.members_own = self._named_of_members - made
        """The attributes of a member's object that expressions name."""
        self.wanted = self._wanted()
        self.disabling = self._disabling()
        """Set → the attributes by which rules disable its objects, each with the number of one of these rules."""
        self._loops = {
            name: any(one.loops for rule in self.all if rule.set == name for one in rule.expressions())
            for name in self.wanted.attributes
        }
        self.digest = sha256(
            orjson.dumps([one.model_dump(mode="json") for one in settings], option=orjson.OPT_SORT_KEYS)
        ).hexdigest()
        """A hash of them."""

    @cached_property
    def of_object(self) -> Language:
        """What rules without ``each`` are written in."""
        return language(IT)

    @cached_property
    def of_member(self) -> Language:
        """What rules with ``each`` are written in."""
        return language(IT, MEMBER)

    def taken(self, set_: str, value: Value) -> Value:
        """Of an object's value, what rules name; expressions may be asked of it. Raises ``UnfitValueError``."""
        wanted = self.wanted.attributes.get(set_, frozenset())
        if ALL_ATTRIBUTES not in wanted and not value.keys() <= wanted:
            value = {name: value[name] for name in wanted if name in value}
        fit(value, loops=self._loops.get(set_, False))
        return value

    def as_member(self, value: Value, users: Sequence[User]) -> dict[str, object]:
        """What ``member`` is for an object: its attributes, and over them the fields of the users made of it."""
        if ALL_ATTRIBUTES in self.members_own:
            member = dict(value)
        else:
            member = {name: value[name] for name in self.members_own if name in value}
        for name in self.members_user:
            member.pop(name, None)
            for user in users:
                told = _value_of(user, name)
                if told is not None:
                    member[name] = told
                    break
        return member

    def _user_ids(self) -> Mapping[str, str]:
        """Set → the attribute that its users' ids are. Where rules take several, nobody is found by one of them."""
        found: dict[str, set[str]] = {}
        for rule in self.all:
            if rule.kind == User.kind and not rule.each:
                found.setdefault(rule.set, set()).add(rule.user_id)
        return {name: one for name, attributes in found.items() if len(attributes) == 1 and (one := min(attributes))}

    def _user_aliases(self) -> Mapping[str, str]:
        """Set → the attribute by which all its rules that name users by an alias do so."""
        found: dict[str, set[str]] = {}
        for rule in self.all:
            if not rule.each and "userAlias" in rule.makes:
                found.setdefault(rule.set, set()).add(rule.user_alias)
        return {name: one for name, attributes in found.items() if len(attributes) == 1 and (one := min(attributes))}

    def _disabling(self) -> Mapping[str, Mapping[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for rule in self.all:
            for attribute in rule.disabling(IT):
                found.setdefault(rule.set, {}).setdefault(attribute, rule.number)
            for attribute in rule.disabling(MEMBER) & self.members_own:
                found.setdefault(USERS, {}).setdefault(attribute, rule.number)
        return found

    def _wanted(self) -> Wanted:
        attributes: dict[str, frozenset[str]] = {}
        for rule in self.all:
            attributes[rule.set] = attributes.get(rule.set, frozenset()) | _named([rule], IT)
        if self.each and self.members_own:
            # Somebody is a member though no rule makes anything of them: of these, too, attributes are named.
            attributes.setdefault(USERS, frozenset())
            for name in attributes:
                if name not in self.each:
                    attributes[name] |= self.members_own
        return Wanted(
            attributes=attributes,
            members=frozenset(self.each),
            user_ids=self._user_ids(),
            user_aliases=self._user_aliases(),
        )


def _value_of(user: User, name: str) -> object:
    """A field of a user as an expression sees it; None: it is missing, which what is not set or empty is, too."""
    attribute = _ATTRIBUTES.get(name)
    if attribute is None:
        return user.further.get(name)
    value = getattr(user, attribute)
    return None if value is False or value == () else list(value) if type(value) is tuple else value


_ATTRIBUTES: Mapping[str, str] = {field.name: field.attribute for field in KINDS[User.kind].fields}

USERS = "users"
"""The set in which members are looked for where no rule reads one."""


def _is_among(attribute: str, always: frozenset[str]) -> bool:
    # Directories do not tell capital letters from small ones.
    return ALL_ATTRIBUTES in always or attribute.lower() in {name.lower() for name in always}


def _by_set(rules: Iterable[MappingRule]) -> Mapping[str, Sequence[MappingRule]]:
    found: dict[str, list[MappingRule]] = {}
    for rule in rules:
        found.setdefault(rule.set, []).append(rule)
    return found


def _named(rules: Sequence[MappingRule], variable: str) -> frozenset[str]:
    return frozenset().union(*(one.names.get(variable, ()) for rule in rules for one in rule.expressions()))
