"""The rules of a source, in their order, and what they ask for.

Semantics: ``app/directory/mapping/README.md``.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType

import orjson

from app.access.kinds import KINDS
from app.access.records import User
from app.directory.connector import ALL_ATTRIBUTES, Wanted
from app.directory.mapping.cel import IT, MEMBER, Language, language
from app.directory.mapping.fitness import Value, fit, fit_part
from app.directory.mapping.rule import MappingRule
from app.directory.mapping.settings import RuleSettings

NO_FIELDS: Mapping[str, object] = MappingProxyType({})

NO_ATTRIBUTES: Mapping[str, frozenset[str]] = MappingProxyType({})
"""No attribute is known to be there always."""


class Rules:
    """All rules of a source, in their order."""

    def __init__(self, settings: Sequence[RuleSettings], always: Mapping[str, frozenset[str]] = NO_ATTRIBUTES) -> None:
        """``always``: set → the attributes that each of its objects has, or ``ALL_ATTRIBUTES``; a source that does not
        give one of them hides it."""
        self.all = [
            MappingRule(number, one, always.get(one.from_, frozenset())) for number, one in enumerate(settings, start=1)
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
        self.disabling = self._disabling()
        """Set → the attributes by which rules disable its objects, each with the number of one of these rules."""
        self.wanted = self._wanted()
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
        value = self._named(set_, value)
        fit(value, loops=self._loops.get(set_, False))
        return value

    def taken_in_part(self, set_: str, value: Value) -> Value:
        """The same of an object of which not all is fit: what of it is."""
        return fit_part(self._named(set_, value), loops=self._loops.get(set_, False))

    def _named(self, set_: str, value: Value) -> Value:
        wanted = self.wanted.attributes.get(set_, frozenset())
        if ALL_ATTRIBUTES not in wanted and not value.keys() <= wanted:
            return {name: value[name] for name in wanted if name in value}
        return value

    def as_member(
        self, value: Value, users: Sequence[User], malformed: Mapping[str, object] = NO_FIELDS
    ) -> dict[str, object]:
        """What ``member`` is for an object: its attributes, and over them the fields of the users made of it.

        ``malformed``: the fields that can be told of a user who is not made of it because of others.
        """
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
            else:
                if malformed.get(name) is not None:
                    member[name] = malformed[name]
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
            disabling={name: frozenset(found) for name, found in self.disabling.items()},
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


def _by_set(rules: Iterable[MappingRule]) -> Mapping[str, Sequence[MappingRule]]:
    found: dict[str, list[MappingRule]] = {}
    for rule in rules:
        found.setdefault(rule.set, []).append(rule)
    return found


def _named(rules: Sequence[MappingRule], variable: str) -> frozenset[str]:
    return frozenset().union(*(one.names.get(variable, ()) for rule in rules for one in rule.expressions()))
