"""Makes the records of the SCIM resources that a request changes, by the rules of the source.

A change of one member makes the records of this member only.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
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
from app.directory.mapping.rules import Made, MemberRule, NotMade, Outcome, Rules
from app.service.scim.members import ResourceChange
from app.service.scim.storage import StoredResources

Content = Mapping[str, Any]

PushedObjects = Iterator[tuple[str, PushedObject]]
"""Objects, each with its origin."""


class RecordMaker:
    """Makes records by the rules of a source."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._member_rules = rules.member_rules.get(GROUPS, ())

    def pushed_objects(self, resources: StoredResources) -> dict[str, PushedObject]:
        """Origin → what the object provides after the request. Only objects that the request affects. Raises
        ``InvalidValueException`` if the rules cannot make the records of a resource, unless it is disabled."""
        objects: dict[str, PushedObject] = {}
        pairs = set(resources.affected_pairs)
        for resource_id, change in resources.changes.items():
            origin = origin_text(SET_OF_TYPE[change.type], resource_id)
            if change.after is None:
                objects[origin] = PushedObject(place_of(change.before or {}, resource_id))
                continue
            before = self._rule_input(resource_id, change.type, change.before)
            is_affected = before is None or before != self._rule_input(resource_id, change.type, change.after)
            if is_affected:
                objects[origin] = self._make_object(
                    resource_id, change.type, change.after, is_new=change.before is None
                )
            if change.type == USER and self._changes_memberships(resource_id, change):
                pairs |= resources.groups_of([resource_id])
            elif change.type == GROUP and is_affected and self._member_rules:
                pairs.update((resource_id, user) for user in resources.users_below([resource_id]))
        if self._member_rules and pairs:
            objects.update(self._make_members(resources, pairs))
        return objects

    def _changes_memberships(self, user_id: str, change: ResourceChange) -> bool:
        """Whether the change of a user affects the records of its memberships."""
        if not self._member_rules or change.before is None or change.after is None:
            return False
        return self._member_value(user_id, change.before) != self._member_value(user_id, change.after)

    # The input of rules.

    def _rule_input(self, resource_id: str, type_: str, content: Content | None) -> Value | None:
        """The value of ``it``. None if there is no content, or some of it is invalid."""
        try:
            return None if content is None else self._checked_rule_input(resource_id, type_, content)
        except MalformedRecordError:
            return None

    def _checked_rule_input(self, resource_id: str, type_: str, content: Content) -> Value:
        """The value of ``it``. Raises ``MalformedRecordError``."""
        return self._rules.checked_values(SET_OF_TYPE[type_], object_value(resource_id, type_, content))

    def _member_value(self, user_id: str, content: Content) -> Value:
        """The value of ``member`` for a user."""
        value = self._rules.valid_values_only(USERS, object_value(user_id, USER, content))
        users: list[User] = []
        if self._rules.member_user_fields:
            variables = Variables(language(IT), {IT: value})
            for rule in self._rules.plain.get(USERS, ()):
                outcome = rule.apply(variables) if rule.kind == User.kind else None
                if isinstance(outcome, Made) and isinstance(outcome.record, User):
                    users.append(outcome.record)
        return self._rules.member_value(value, users, {} if users else self._rules.readable_user(USERS, value))

    # Records.

    def _make_object(self, resource_id: str, type_: str, content: Content, *, is_new: bool) -> PushedObject:
        """What a resource provides, without its members. Raises ``InvalidValueException``."""
        place = place_of(content, resource_id)
        try:
            value = self._checked_rule_input(resource_id, type_, content)
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
                if (fill := disabling_record(rule.readable_fields(variables), rule.kind)) is not None:
                    records.append((fill, rule.number))
        example = _member_variables(value)
        for rule in self._member_rules if type_ == GROUP else ():
            start: MemberRule | Outcome = rule.begin(example)
            if isinstance(start, MemberRule) and isinstance(start.fields, NotMade):
                start = start.apply(example)
            if isinstance(start, NotMade):
                reasons.append(f"rule {rule.number}: {start.reason}")
        is_disabled = bool(reasons) and any(rule.disables(variables) for rule in rules)
        if reasons and not is_disabled:
            raise InvalidValueException(detail=f"{place}: no record can be made of it: {'; '.join(reasons)}")
        return PushedObject(place, records, is_malformed=bool(reasons), is_disabled=is_disabled, is_new=is_new)

    def _make_members(self, resources: StoredResources, pairs: set[tuple[str, str]]) -> PushedObjects:
        """What members of groups provide: nothing if they are no members. ``pairs``: groups and users."""
        current = pairs & resources.groups_of({user for _, user in pairs})
        contents = resources.contents({resource_id for pair in current for resource_id in pair})
        members = {
            user: (self._member_value(user, contents[user]), is_active(contents[user]))
            for user in {user for _, user in current}
        }
        for group_id, user in pairs - current:
            yield origin_text(*member_object(group_id, user)), PushedObject(user)
        for group_id, pairs_of_group in groupby(sorted(current), key=itemgetter(0)):
            of_group = {user: members[user] for _, user in pairs_of_group}
            yield from self._make_members_of_group(group_id, contents[group_id], of_group)

    def _make_members_of_group(
        self, group_id: str, group: Content, members: Mapping[str, tuple[Value, bool]]
    ) -> PushedObjects:
        """``members``: user → the value of ``member``, and whether the user is active. Rules make no records of
        inactive users except those that disable, and inactive users do not keep malformed ones."""
        place = place_of(group, group_id)
        variables = _member_variables(self._rule_input(group_id, GROUP, group) or {})
        starts = [(rule.number, rule.begin(variables)) for rule in self._member_rules]
        for user, (value, active) in members.items():
            variables.set_member(value)
            outcomes = [
                (number, start.apply(variables) if isinstance(start, MemberRule) else start) for number, start in starts
            ]
            yield (
                origin_text(*member_object(group_id, user)),
                PushedObject(
                    place,
                    [(outcome.record, number) for number, outcome in outcomes if isinstance(outcome, Made)],
                    is_malformed=active and any(isinstance(outcome, NotMade) for _, outcome in outcomes),
                ),
            )


def _member_variables(value: Value) -> Variables:
    """The variables of rules for a group's members, with an active member without further attributes."""
    return Variables(language(IT, MEMBER), {IT: value, MEMBER: {"active": True}})
