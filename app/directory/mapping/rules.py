"""Compiled mapping rules, which make records of a connector's objects and of the members of groups.

``app/directory/mapping/README.md`` defines what they mean.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

import orjson

from app.access.kinds import KINDS
from app.access.records import Fill, Record, User
from app.directory.casting import record_from_object
from app.directory.connector import ALL_ATTRIBUTES, RequestedFields
from app.directory.fields import ACCESS_FIELDS, MalformedRecordError, check_json, name_of_type
from app.directory.mapping.cel import IT, MEMBER, EvaluationError, Expression, Value, Variables, language
from app.directory.mapping.settings import RuleSettings

USERS = "users"
"""The set of members that no rule reads."""

MAX_ELEMENTS = 2_000
"""The longest list for an expression with a loop. The library takes quadratic time to build a list."""

_NEVER_ABSENT = frozenset({"accessRole", "accessType"})
"""Fields that must not be left out because of a missing attribute: users would become editors, documents public."""

_USER_FIELDS = frozenset({"userId", "userAlias"})


class Made(NamedTuple):
    """A rule made a record."""

    record: Record
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule makes no record, as intended."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotMade:
    """A rule should make a record, but cannot."""

    reason: str


Outcome = Made | Skipped | NotMade

NOT_MATCHED: Final = Skipped("when is false")
ATTRIBUTE_MISSING: Final = Skipped("when names an attribute that is missing")
NO_USER: Final = Skipped("no user is made of the member")


class MappingRule:
    """A compiled rule. Raises ``ExpressionError``."""

    def __init__(self, number: int, settings: RuleSettings, always: frozenset[str] = frozenset()) -> None:
        """``always``: the attributes that every object of the set has."""
        self.number = str(number)
        """Its number from 1, as in ``Origin.rule``."""
        self.set = settings.from_
        self.kind = settings.kind
        self.is_for_members = settings.each is not None
        """Whether it makes a record for each member (``each: members``)."""
        cel = language(IT, MEMBER) if self.is_for_members else language(IT)
        self._when = None if settings.when is None else cel.compile(settings.when)
        self._when_uses_member = self._when is not None and MEMBER in self._when.names
        self._aliases = [cel.compile(text) for text in settings.aliases]
        self._constants = {name: value for name, value in settings.fields.items() if not isinstance(value, str)}
        self._fields = {name: cel.compile(text) for name, text in settings.fields.items() if isinstance(text, str)}
        self._member_fields = {name: field for name, field in self._fields.items() if MEMBER in field.names}
        self._object_fields = {name: field for name, field in self._fields.items() if MEMBER not in field.names}
        self.makes = frozenset(settings.fields)
        """The fields that its records may have."""
        self.may_disable = "disabled" in self.makes and self._constants.get("disabled") is not False
        self._required = self._required_attributes(always)

    def _required_attributes(self, always: frozenset[str]) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Field → attributes that must be present, because a missing one would leave the field out and give too much
        access.

        ``when`` is one of the fields if the rule disables the users that it matches.
        """
        expressions = {name: expression for name, expression in self._fields.items() if name in ACCESS_FIELDS}
        if self._when is not None and self.kind == Fill.kind and self.may_disable:
            expressions["when"] = self._when
        # Attributes of directories ignore case.
        present = {name.lower() for name in always}
        required: dict[str, list[tuple[str, str]]] = {}
        for name, expression in expressions.items():
            for variable, attributes in expression.required.items():
                for attribute in sorted(attributes):
                    is_present = variable == IT and (ALL_ATTRIBUTES in always or attribute.lower() in present)
                    if is_present or name in _NEVER_ABSENT:
                        required.setdefault(name, []).append((variable, attribute))
        return required

    def attribute_of(self, field: str) -> str | None:
        """The attribute of ``it`` that is the field's whole expression."""
        return self._fields[field].attribute if field in self._fields else None

    def disabling(self, variable: str) -> frozenset[str]:
        """The attributes by which the rule disables, except those that it allows to be missing."""
        if not self.may_disable:
            return frozenset()
        expressions = [self._fields["disabled"]] if "disabled" in self._fields else []
        if self._when is not None and self.kind == Fill.kind:
            expressions.append(self._when)
        return frozenset().union(*(expression.required.get(variable, frozenset()) for expression in expressions))

    def expressions(self) -> Sequence[Expression]:
        return [*([] if self._when is None else [self._when]), *self._aliases, *self._fields.values()]

    def apply(self, variables: Variables) -> Outcome:
        """The record of an object. Only for a rule without ``each``."""
        if (outcome := self._check_when(variables)) is not None:
            return outcome
        try:
            fields = self._evaluated(self._object_fields, variables, self._constants)
            if self._aliases:
                fields["aliases"] = self._alias_values(variables)
        except MalformedRecordError as error:
            return NotMade(str(error))
        return _made(fields, self.kind)

    def readable_fields(self, variables: Variables) -> dict[str, object]:
        """The fields of a malformed object that can be evaluated. There are none if the rule does not match it."""
        fields: dict[str, object] = dict(self._constants)
        try:
            if self._when is not None and self._when.evaluate(variables) is not True:
                return {}
        except EvaluationError:
            return {}
        for name, expression in self._object_fields.items():
            with suppress(EvaluationError):
                fields[name] = expression.evaluate(variables)
        return fields

    def disables(self, variables: Variables) -> bool:
        """Whether the record of a malformed object would be disabled."""
        return self.may_disable and not self.is_for_members and self.readable_fields(variables).get("disabled") is True

    def begin(self, variables: Variables) -> "MemberRule | Skipped | NotMade":
        """The rule for the members of an object. Only for a rule with ``each``."""
        if not self._when_uses_member and (outcome := self._check_when(variables)) is not None:
            return outcome
        try:
            return MemberRule(self, self._evaluated(self._object_fields, variables, self._constants))
        except MalformedRecordError as error:
            not_made = NotMade(str(error))
            # Whether the rule matches depends on the member.
            return MemberRule(self, not_made) if self._when_uses_member else not_made

    def apply_to_member(self, object_fields: Mapping[str, object] | NotMade, variables: Variables) -> Outcome:
        """The record of a member. ``object_fields``: the fields that do not depend on the member."""
        if self._when_uses_member and (outcome := self._check_when(variables)) is not None:
            return outcome
        if isinstance(object_fields, NotMade):
            return object_fields
        try:
            fields = self._evaluated(self._member_fields, variables, object_fields)
        except MalformedRecordError as error:
            return NotMade(str(error))
        if any(name not in fields for name in self._member_fields if name in _USER_FIELDS):
            return NO_USER
        return _made(fields, self.kind)

    def _check_when(self, variables: Variables) -> Skipped | NotMade | None:
        """Why ``when`` rules out a record. None if it does not."""
        if self._when is None:
            return None
        try:
            value = self._when.evaluate(variables)
        except EvaluationError as error:
            return NotMade(f"when: {error}")
        if value is True:
            return None
        if value is False:
            return NOT_MATCHED
        if value is None:
            missing = self._missing("when", variables)
            return ATTRIBUTE_MISSING if missing is None else NotMade(f"when: {missing}")
        return NotMade(
            f'when: must be true or false, but is {name_of_type(value)}; compare it, for example it.status == "left"'
        )

    def _missing(self, name: str, variables: Variables) -> str | None:
        """The message about a missing attribute that field ``name`` requires. None if there is none."""
        for variable, attribute in self._required.get(name, ()):
            if variables.values[variable].get(attribute) is None:
                path = f"{variable}.{attribute}"
                return f"{path} is missing, and decides about access; if it may be missing, ask has({path}) first"
        return None

    def _evaluated(
        self, expressions: Mapping[str, Expression], variables: Variables, others: Mapping[str, object]
    ) -> dict[str, object]:
        """The values of expressions, added to other fields. Raises ``MalformedRecordError``."""
        fields = dict(others)
        for name, expression in expressions.items():
            try:
                value = expression.evaluate(variables)
            except EvaluationError as error:
                raise MalformedRecordError(f"{name}: {error}") from None
            if value is not None:
                fields[name] = value
            elif name in self._required and (missing := self._missing(name, variables)) is not None:
                raise MalformedRecordError(f"{name}: {missing}")
        return fields

    def _alias_values(self, variables: Variables) -> list[object]:
        """The aliases, which are text or lists. Empty and missing ones are left out."""
        aliases: list[object] = []
        for expression in self._aliases:
            try:
                value = expression.evaluate(variables)
            except EvaluationError as error:
                raise MalformedRecordError(f"aliases: {error}") from None
            aliases.extend(value if isinstance(value, list) else [value])
        present = [alias for alias in aliases if alias is not None and alias != ""]
        return list(dict.fromkeys(present)) if all(isinstance(alias, str) for alias in present) else present


@dataclass(frozen=True, slots=True)
class MemberRule:
    """A rule with ``each`` for the members of one object."""

    rule: MappingRule
    fields: Mapping[str, object] | NotMade
    """The fields that do not depend on the member, or why they cannot be evaluated."""

    def apply(self, variables: Variables) -> Outcome:
        return self.rule.apply_to_member(self.fields, variables)


def _made(fields: dict[str, object], kind: str) -> Outcome:
    try:
        return Made(*record_from_object(fields, kind))
    except MalformedRecordError as error:
        return NotMade(f"{error.problem}; write string(…) around it" if error.advice else error.problem)


class Rules:
    """The rules of a source, compiled, and the attributes of objects that they need."""

    def __init__(self, settings: Sequence[RuleSettings], always: Mapping[str, frozenset[str]] | None = None) -> None:
        """``always``: set → the attributes that all its objects have, or ``ALL_ATTRIBUTES``. If an object does not have
        one of them, the reader may not see it."""
        always = always or {}
        self.all = [
            MappingRule(number, rule, always.get(rule.from_, frozenset()))
            for number, rule in enumerate(settings, start=1)
        ]
        self.plain = _by_set(rule for rule in self.all if not rule.is_for_members)
        """Set → its rules without ``each``."""
        self.member_rules = _by_set(rule for rule in self.all if rule.is_for_members)
        """Set → its rules with ``each``."""
        names = _names(self.all, MEMBER)
        made = frozenset().union(
            *(rule.makes for rule in self.all if rule.kind == User.kind and not rule.is_for_members)
        )
        self.member_user_fields = made if ALL_ATTRIBUTES in names else names & made
        """The fields of a member's user that expressions name."""
        self.member_attributes = names - made
        """The attributes of a member's object that expressions name."""
        self.disabling = self._disabling()
        """Set → the attributes by which rules disable its objects → the number of one of these rules."""
        self.wanted = self._wanted()
        self._sets_with_loops = {
            rule.set for rule in self.all if any(expression.loops for expression in rule.expressions())
        }
        self.digest = sha256(
            orjson.dumps([rule.model_dump(mode="json") for rule in settings], option=orjson.OPT_SORT_KEYS)
        ).hexdigest()

    def checked_values(self, set_: str, value: Value) -> Value:
        """The attributes of an object that rules name. Raises ``MalformedRecordError`` for invalid values."""
        values = self._named_values(set_, value)
        check_values(values, with_loops=set_ in self._sets_with_loops)
        return values

    def valid_values_only(self, set_: str, value: Value) -> Value:
        """The attributes of a malformed object that rules name and that have valid values."""
        valid = {}
        for name, inner in self._named_values(set_, value).items():
            with suppress(MalformedRecordError):
                check_values({name: inner}, with_loops=set_ in self._sets_with_loops)
                valid[name] = inner
        return valid

    def _named_values(self, set_: str, value: Value) -> Value:
        names = self.wanted.attributes.get(set_, frozenset())
        if ALL_ATTRIBUTES not in names and not value.keys() <= names:
            return {name: value[name] for name in names if name in value}
        return value

    def readable_user(self, set_: str, value: Value) -> Mapping[str, object]:
        """The readable fields of a malformed user, so that groups keep the member."""
        if not self.member_user_fields:
            return {}
        variables = Variables(language(IT), {IT: value})
        users = (rule for rule in self.plain.get(set_, ()) if rule.kind == User.kind)
        return next(filter(None, (rule.readable_fields(variables) for rule in users)), {})

    def member_value(
        self, value: Value, users: Sequence[User], malformed_user: Mapping[str, object]
    ) -> dict[str, object]:
        """The value of ``member`` for an object: its attributes, and the fields of the users made of it.

        ``malformed_user``: the readable fields, if no user is made because others are malformed.
        """
        if ALL_ATTRIBUTES in self.member_attributes:
            member = dict(value)
        else:
            member = {name: value[name] for name in self.member_attributes if name in value}
        for name in self.member_user_fields:
            member.pop(name, None)
            candidates = (*(_field(user, name) for user in users), malformed_user.get(name))
            if (field := next((candidate for candidate in candidates if candidate is not None), None)) is not None:
                member[name] = field
        return member

    def _disabling(self) -> Mapping[str, Mapping[str, str]]:
        disabling: dict[str, dict[str, str]] = {}
        for rule in self.all:
            for attribute in rule.disabling(IT):
                disabling.setdefault(rule.set, {}).setdefault(attribute, rule.number)
            for attribute in rule.disabling(MEMBER) & self.member_attributes:
                disabling.setdefault(USERS, {}).setdefault(attribute, rule.number)
        return disabling

    def _wanted(self) -> RequestedFields:
        attributes: dict[str, frozenset[str]] = {}
        for rule in self.all:
            attributes[rule.set] = attributes.get(rule.set, frozenset()) | _names([rule], IT)
        if self.member_rules and self.member_attributes:
            # Objects that no rule reads can be members, too.
            attributes.setdefault(USERS, frozenset())
            for name in attributes:
                if name not in self.member_rules:
                    attributes[name] |= self.member_attributes
        plain = [rule for rule in self.all if not rule.is_for_members]
        return RequestedFields(
            attributes=attributes,
            members=frozenset(self.member_rules),
            user_ids=_only_attributes((r.set, r.attribute_of("userId")) for r in plain if r.kind == User.kind),
            user_aliases=_only_attributes(
                (r.set, r.attribute_of("userAlias")) for r in plain if "userAlias" in r.makes
            ),
            disabling={name: frozenset(by_attribute) for name, by_attribute in self.disabling.items()},
        )


_ATTRIBUTES: Mapping[str, str] = {field.name: field.attribute for field in KINDS[User.kind].fields}


def _field(user: User, name: str) -> object:
    """A field of a user for expressions, in which default and empty values are missing."""
    attribute = _ATTRIBUTES.get(name)
    if attribute is None:
        return user.extra_fields.get(name)
    value = getattr(user, attribute)
    if value is False or value == ():
        return None
    return list(value) if type(value) is tuple else value


def _by_set(rules: Iterable[MappingRule]) -> Mapping[str, Sequence[MappingRule]]:
    by_set: dict[str, list[MappingRule]] = {}
    for rule in rules:
        by_set.setdefault(rule.set, []).append(rule)
    return by_set


def _names(rules: Sequence[MappingRule], variable: str) -> frozenset[str]:
    return frozenset().union(*(text.names.get(variable, ()) for rule in rules for text in rule.expressions()))


def _only_attributes(attributes: Iterable[tuple[str, str | None]]) -> Mapping[str, str]:
    """Set → its attribute, for sets that have exactly one."""
    by_set: dict[str, set[str | None]] = {}
    for set_, attribute in attributes:
        by_set.setdefault(set_, set()).add(attribute)
    single = {set_: next(iter(names)) for set_, names in by_set.items() if len(names) == 1}
    return {set_: attribute for set_, attribute in single.items() if attribute is not None}


def check_values(value: Value, *, with_loops: bool = False) -> None:
    """Raises ``MalformedRecordError`` for values that expressions cannot use.

    The library crashes on deeply nested values, and rejects NUL and half surrogate pairs. ``with_loops``: whether an
    expression goes through lists.
    """
    for name, inner in value.items():
        check_json(inner, name)
        if with_loops:
            _check_lengths(inner, name)


def _check_lengths(value: object, name: str) -> None:
    if isinstance(value, list) and len(value) > MAX_ELEMENTS:
        raise MalformedRecordError(
            f"{name}: has {len(value):,} values; expressions go through {MAX_ELEMENTS:,} at most (use each: members for"
            " members)"
        )
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_lengths(inner, name)
