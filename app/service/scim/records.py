"""Makes the records of the resources that a request changes, by the rules of the source.

A change of one member makes the records of this member only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from scim2_models import InvalidValueException

from app.access.records import Record, User
from app.access.refresh.objects import PushedObject
from app.access.source_tables import origin_text
from app.directory.casting import disabling_record
from app.directory.connectors.scim.objects import (
    GROUP,
    SET_OF_TYPE,
    USER,
    is_active,
    member_object,
    object_value,
    place_of,
)
from app.directory.connectors.scim.rules import GROUPS, USERS
from app.directory.fields import MalformedRecordError
from app.directory.mapping.cel import IT, MEMBER, Value, Variables, language
from app.directory.mapping.rules import Made, MemberRule, NotMade, Rules
from app.service.scim.storage import StoredResources

Content = Mapping[str, Any]


class RecordMaker:
    """Makes records by the rules of a source."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._member_rules = rules.member_rules.get(GROUPS, ())

    def pushed_objects(self, resources: StoredResources) -> dict[str, PushedObject]:
        """Origin → what the object provides after the request; only objects that the request affects.

        Raises ``InvalidValueException`` if the rules cannot make the records of a resource, unless it is disabled.
        """
        objects: dict[str, PushedObject] = {}
        pairs = set(resources.pairs)
        for resource_id, (type_, before, after) in resources.changed.items():
            origin = origin_text(SET_OF_TYPE[type_], resource_id)
            if after is None:
                objects[origin] = PushedObject(place_of(before or {}, resource_id))
                continue
            old = self._value(resource_id, type_, before)
            is_new = old is None or old != self._value(resource_id, type_, after)
            if is_new:
                objects[origin] = replace(self._object(resource_id, type_, after), is_new=before is None)
            if not self._member_rules:
                continue
            if type_ == GROUP and is_new:
                pairs.update((resource_id, user) for user in resources.users_below([resource_id]))
            elif (
                type_ == USER
                and before is not None
                and self._member(resource_id, before) != self._member(resource_id, after)
            ):
                pairs |= resources.groups_of([resource_id])
        if self._member_rules and pairs:
            objects |= self._members(resources, pairs)
        return objects

    def _value(self, resource_id: str, type_: str, content: Content | None) -> Value | None:
        """The attributes that rules name; None if there are none, or some are invalid."""
        try:
            return None if content is None else self._checked(resource_id, type_, content)
        except MalformedRecordError:
            return None

    def _checked(self, resource_id: str, type_: str, content: Content) -> Value:
        return self._rules.checked_values(SET_OF_TYPE[type_], object_value(resource_id, type_, content))

    def _object(self, resource_id: str, type_: str, content: Content) -> PushedObject:
        place = place_of(content, resource_id)
        try:
            value = self._checked(resource_id, type_, content)
        except MalformedRecordError as error:
            raise InvalidValueException(detail=str(error)) from error
        variables = Variables(language(IT), {IT: value})
        rules = self._rules.plain.get(SET_OF_TYPE[type_], ())
        records: list[tuple[Record, str]] = []
        reasons: list[str] = []
        for rule in rules:
            outcome = rule.apply(variables)
            if isinstance(outcome, Made):
                records.append((outcome.record, rule.number))
            elif isinstance(outcome, NotMade):
                reasons.append(f"rule {rule.number}: {outcome.reason}")
                fill = disabling_record(rule.readable_fields(variables), rule.kind)
                records += [] if fill is None else [(fill, rule.number)]
        if type_ == GROUP:
            starts = ((rule, rule.begin(_member_variables(value))) for rule in self._member_rules)
            reasons += [f"rule {rule.number}: {start.reason}" for rule, start in starts if isinstance(start, NotMade)]
        is_disabled = bool(reasons) and any(rule.disables(variables) for rule in rules)
        if reasons and not is_disabled:
            raise InvalidValueException(detail=f"{place}: no record can be made of it: {'; '.join(reasons)}")
        return PushedObject(place, records, is_malformed=bool(reasons), is_disabled=is_disabled)

    def _member(self, resource_id: str, content: Content | None) -> Mapping[str, object] | None:
        """The value of ``member`` for a user."""
        if content is None:
            return None
        value = self._rules.valid_values_only(USERS, object_value(resource_id, USER, content))
        variables = Variables(language(IT), {IT: value})
        rules = [rule for rule in self._rules.plain.get(USERS, ()) if rule.kind == User.kind]
        outcomes = (rule.apply(variables) for rule in rules) if self._rules.member_user_fields else ()
        users = [one.record for one in outcomes if isinstance(one, Made) and isinstance(one.record, User)]
        readable = (rule.readable_fields(variables) for rule in rules)
        malformed = {} if users or not self._rules.member_user_fields else next(filter(None, readable), {})
        return self._rules.member_value(value, users, malformed)

    def _members(self, resources: StoredResources, pairs: set[tuple[str, str]]) -> Iterator[tuple[str, PushedObject]]:
        """What members of groups provide; those that are no members provide nothing."""
        users = {user for _, user in pairs}
        current = pairs & resources.groups_of(users)
        groups = resources.contents({group_id for group_id, _ in current})
        contents = resources.contents({user for _, user in current})
        members = {user: self._member(user, content) for user, content in contents.items()}
        for group_id, user in pairs - current:
            yield origin_text(*member_object(group_id, user)), PushedObject(user)
        of_group: dict[str, list[str]] = {}
        for group_id, user in sorted(current):
            of_group.setdefault(group_id, []).append(user)
        for group_id, users_of_group in of_group.items():
            place = place_of(groups[group_id], group_id)
            variables = _member_variables(self._value(group_id, GROUP, groups[group_id]) or {})
            starts = [rule.begin(variables) for rule in self._member_rules]
            for user in users_of_group:
                if not is_active(contents[user]):
                    yield origin_text(*member_object(group_id, user)), PushedObject(place)
                    continue
                variables.set_member(members[user] or {})
                outcomes = [(one.rule.number, one.apply(variables)) for one in starts if isinstance(one, MemberRule)]
                yield (
                    origin_text(*member_object(group_id, user)),
                    PushedObject(
                        place,
                        [(one.record, number) for number, one in outcomes if isinstance(one, Made)],
                        is_malformed=any(isinstance(one, NotMade) for one in (*starts, *(one for _, one in outcomes))),
                    ),
                )


def _member_variables(value: Value) -> Variables:
    return Variables(language(IT, MEMBER), {IT: value, MEMBER: {}})
