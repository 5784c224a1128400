"""A source that makes records of a connector's objects by mapping rules.

Rules without ``each`` are applied as objects are read. A rule with ``each`` makes a record for each member of a group.
So it is applied at the end, when the spool (``app.directory.mapping.spool``) has all members, and only if the read has
not failed.

An incremental read reports a group, with all of its records, if a change of it or of its members could matter to a
rule. It reports an object of which no record is made any more as gone.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol

from app.access.records import User
from app.directory.casting import disabling_record
from app.directory.connector import Connector, CursorRefusedError, DirectoryObject
from app.directory.fields import MalformedRecordError
from app.directory.mapping.cel import IT, MEMBER, Variables, language
from app.directory.mapping.rules import NO_USER, Made, MappingRule, MemberRule, NotMade, Outcome, Rules
from app.directory.mapping.spool import Member, Spool, SpooledGroup, SpoolError
from app.directory.mapping.spool_file import SpoolFile
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Found,
    Gone,
    Malformed,
    MalformedTally,
    ObjectId,
    Origin,
    Reading,
    ReadRequest,
    Remark,
    Step,
    Verdict,
)
from app.foundation.text import counted


class MappingObserver(Protocol):
    """Observes how rules are applied. Except in ``on_unusable``, objects have only the attributes that rules name."""

    def on_unusable(self, object_: DirectoryObject, reason: str) -> None:
        """No rule was applied to an object, because of its values."""
        ...

    def on_object(self, object_: DirectoryObject) -> None:
        """An object was read. Its rules follow."""
        ...

    def on_rule(self, object_: DirectoryObject, rule: MappingRule, outcome: Outcome | MemberRule) -> None:
        """A rule was applied to an object. The members of the object follow, if it is a ``MemberRule``."""
        ...

    def on_member(
        self,
        object_: DirectoryObject,
        rule: MappingRule,
        member: Member,
        outcome: Outcome,
        path: Callable[[], Sequence[str]],
    ) -> None:
        """The rule was applied to a member. ``path``: the places of the groups through which it is one."""
        ...


class MappedSource:
    """A connector and rules. ``spool``: the file for members between reads."""

    def __init__(self, name: str, connector: Connector, rules: Rules, spool: SpoolFile | None = None) -> None:
        self.name = name
        self.connector = connector
        self.rules = rules
        self._spool = spool or SpoolFile()

    def member_origin(self, group: ObjectId, member: ObjectId) -> ObjectId:  # noqa: ARG002 - of subclasses
        """The object that provides the records of a member: by default its group."""
        return group

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        return self.observed(request, None)

    def observed(self, request: ReadRequest, observer: MappingObserver | None) -> Reading:
        try:
            if not self.rules.member_rules:
                yield from _MappedRead(self, request, None, observer).steps()
                return
            spool = None
            if request.since or request.part is not None:
                spool = self._spool.open_kept(request.since, self.rules.digest)
            if spool is None:
                if request.since:
                    yield CursorRefusedError("the spool of members is of another cursor; a full read is required").end
                    return
                # A part is not enough to find a group's members.
                request = EVERYTHING
            with spool or self._spool.create() as opened:
                yield from _MappedRead(self, request, opened, observer).steps()
        except (SpoolError, sqlite3.Error, OSError) as error:
            yield End(Verdict.FAILED, f"the spool of members: {error}")


class _MappedRead:
    """One read of a mapped source."""

    def __init__(
        self, source: MappedSource, request: ReadRequest, spool: Spool | None, observer: MappingObserver | None
    ) -> None:
        self._connector = source.connector
        self._member_origin = source.member_origin
        self._rules = source.rules
        self._request = request
        self._spool = spool
        self._observer = observer
        self._is_full = request == EVERYTHING
        self._tally = MalformedTally()
        self._members_without_user = 0
        self._objects: Counter[str] = Counter()
        """Set → its number of objects."""
        self._unseen = {name: set(attributes) for name, attributes in source.rules.disabling.items()}
        """Set → the attributes by which rules disable its objects and that no object had so far."""
        self._reported: set[tuple[str, str]] = set()
        """Rule and remark: each is reported once, not for each object."""

    def steps(self) -> Reading:
        end: End | None = None
        with closing(self._connector.read(self._rules.wanted, self._request)) as steps:  # type: ignore[type-var]
            for step in steps:
                if isinstance(step, DirectoryObject):
                    yield from self._tally.counted(self._object_steps(step))
                elif isinstance(step, End):
                    end = step
                    break
                else:
                    if isinstance(step, Gone) and self._spool is not None:
                        self._spool.remove(step.object)
                    yield from self._tally.counted([step])
        if end is None:
            yield End(Verdict.FAILED, "the connector ended without a verdict")
            return
        if self._spool is not None and end.verdict is not Verdict.FAILED:
            yield from self._tally.counted(self._group_steps(self._spool, is_incremental=end.answered is not None))
        yield self._end(end)

    def _hidden(self) -> str:
        """The message about attributes by which rules disable and that no object has. Empty if there are none."""
        return "; ".join(
            f"rule {self._rules.disabling[set_][attribute]} disables by {attribute}, which none of the"
            f" {self._objects[set_]:,} objects of {set_} has: give the reader the right to read it, or ask"
            f" has(it.{attribute}) first if it may be missing"
            for set_, attributes in sorted(self._unseen.items())
            if self._objects[set_]
            for attribute in sorted(attributes)
        )

    def _end(self, end: End) -> End:
        """The end of the read, from that of the connector."""
        verdict, reason, cursor = end.verdict, end.reason, end.cursor
        if verdict is Verdict.FAILED:
            return end._replace(except_malformed=False)
        if end.answered is None and (hidden := self._hidden()):
            return End(Verdict.FAILED, hidden)
        malformed = self._tally.count
        are_all_named = malformed > 0 and self._tally.unnamed == 0
        except_malformed = are_all_named and (verdict is Verdict.COMPLETE or end.except_malformed)
        if verdict is Verdict.COMPLETE and malformed:
            verdict, reason = Verdict.PARTIAL, counted(malformed, "malformed record")
        if verdict is Verdict.PARTIAL and end.answered is Answered.CHANGES and not except_malformed:
            # The next read repeats these changes, until they are understood or everything is read.
            return End(verdict, reason, self._request.since, end.answered)
        if self._spool is not None and end.answered is not Answered.PART:
            self._spool.keep(cursor, self._rules.digest)
        return end._replace(verdict=verdict, reason=reason, except_malformed=except_malformed)

    # Objects.

    def _object_steps(self, object_: DirectoryObject) -> Sequence[Step]:
        set_ = object_.id.set
        self._objects[set_] += 1
        if unseen := self._unseen.get(set_):
            unseen.difference_update([name for name in unseen if object_.value.get(name) is not None])
        try:
            value = self._rules.checked_values(set_, object_.value)
        except MalformedRecordError as error:
            return self._unusable_steps(object_, str(error))
        mapped = DirectoryObject(object_.id, value, object_.place)
        if self._observer is not None:
            self._observer.on_object(mapped)
        steps = self._plain_steps(mapped)
        if self._spool is not None:
            if set_ in self._rules.member_rules:
                self._spool.put(object_, value=value, member=None)
                return steps
            users: list[User] = []
            if self._rules.member_user_fields:
                users = [step.record for step in steps if type(step) is Found and type(step.record) is User]
            is_malformed = not users and any(type(step) is Malformed for step in steps)
            malformed_user = self._rules.readable_user(set_, value) if is_malformed else {}
            self._spool.put(object_, value=None, member=self._rules.member_value(value, users, malformed_user))
        if not self._is_full and set_ not in self._rules.member_rules and all(type(step) is Remark for step in steps):
            return [*steps, Gone(object_.id)]
        return steps

    def _unusable_steps(self, object_: DirectoryObject, reason: str) -> Sequence[Step]:
        """The steps of an object with unusable values: it may be disabled, and is a member nevertheless."""
        if self._observer is not None:
            self._observer.on_unusable(object_, reason)
        set_ = object_.id.set
        value = self._rules.valid_values_only(set_, object_.value)
        if self._spool is not None and set_ not in self._rules.member_rules:
            member = self._rules.member_value(value, (), self._rules.readable_user(set_, value))
            self._spool.put(object_, value=None, member=member)
        variables = Variables(language(IT), {IT: value})
        rules = self._rules.plain.get(set_, ())
        mapped = DirectoryObject(object_.id, value, object_.place)
        fills = [step for rule in rules for step in self._disabling_fill(rule, variables, mapped)]
        return [*fills, Malformed(object_.place, reason, object_.id, any(rule.disables(variables) for rule in rules))]

    @staticmethod
    def _disabling_fill(rule: MappingRule, variables: Variables, object_: DirectoryObject) -> Iterator[Found]:
        """The fill that only disables, for a malformed object, if the rule makes fills that disable."""
        record = disabling_record(rule.readable_fields(variables), rule.kind)
        if record is not None:
            yield Found(record, object_.place, Origin(object_.id, rule.number))

    def _plain_steps(self, object_: DirectoryObject) -> list[Step]:
        """The records of rules without ``each``."""
        rules = self._rules.plain.get(object_.id.set)
        if not rules:
            return []
        steps: list[Step] = []
        variables = Variables(language(IT), {IT: object_.value})
        for rule in rules:
            outcome = rule.apply(variables)
            if self._observer is not None:
                self._observer.on_rule(object_, rule, outcome)
            if type(outcome) is Made:
                steps.append(Found(outcome.record, object_.place, Origin(object_.id, rule.number)))
                if outcome.remarks:
                    steps += self._remarks(outcome, rule, object_.place)
            elif type(outcome) is NotMade:
                steps += self._disabling_fill(rule, variables, object_)
                reason = f"rule {rule.number}: {outcome.reason}"
                steps.append(Malformed(object_.place, reason, object_.id, rule.disables(variables)))
        return steps

    def _remarks(self, made: Made, rule: MappingRule, place: str) -> Iterator[Remark]:
        for remark in made.remarks:
            if (rule.number, remark) not in self._reported:
                self._reported.add((rule.number, remark))
                yield Remark(place, f"rule {rule.number}: {remark}")

    # Groups.

    def _group_steps(self, spool: Spool, *, is_incremental: bool) -> Iterator[Step]:
        if not self._is_full and not is_incremental:
            spool.remove_unseen()
        spool.index()
        for group in spool.groups(changed=is_incremental):
            object_ = DirectoryObject(group.id, group.value, group.place)
            has_steps = False
            if not group.is_seen:
                for step in self._plain_steps(object_):
                    has_steps = True
                    yield step
            for step in self._member_steps(spool, group, object_):
                has_steps = True
                yield step
            if is_incremental and not has_steps and not self._has_plain_records(object_):
                yield Gone(group.id)
        if not is_incremental:
            yield from self._unknown_members(spool)

    def _has_plain_records(self, object_: DirectoryObject) -> bool:
        """Whether rules without ``each`` make records of an object, whose steps were yielded before."""
        variables = Variables(language(IT), {IT: object_.value})
        return any(
            isinstance(rule.apply(variables), Made | NotMade) for rule in self._rules.plain.get(object_.id.set, ())
        )

    def _member_steps(self, spool: Spool, group: SpooledGroup, object_: DirectoryObject) -> Iterator[Step]:
        """The records of rules with ``each``."""
        variables = Variables(language(IT, MEMBER), {IT: group.value, MEMBER: {}})
        member_rules: list[MemberRule] = []
        for rule in self._rules.member_rules[group.id.set]:
            start = rule.begin(variables)
            if self._observer is not None:
                self._observer.on_rule(object_, rule, start)
            if isinstance(start, MemberRule):
                member_rules.append(start)
            elif isinstance(start, NotMade):
                yield Malformed(object_.place, f"rule {rule.number}: {start.reason}", object_.id)
        if not member_rules:
            return
        for member in spool.members(group.number):
            variables.set_member(member.value)
            for member_rule in member_rules:
                outcome = member_rule.apply(variables)
                rule = member_rule.rule
                if self._observer is not None:
                    path = partial(spool.path, group.number, member.number)
                    self._observer.on_member(object_, rule, member, outcome, path)
                origin = self._member_origin(object_.id, member.id)
                if type(outcome) is Made:
                    yield Found(outcome.record, object_.place, Origin(origin, rule.number))
                    if outcome.remarks:
                        yield from self._remarks(outcome, rule, object_.place)
                elif type(outcome) is NotMade:
                    reason = f"rule {rule.number}, member {member.place}: {outcome.reason}"
                    yield Malformed(object_.place, reason, origin)
                else:
                    self._members_without_user += outcome is NO_USER

    def _unknown_members(self, spool: Spool) -> Iterator[Remark]:
        sets = ", ".join(sorted(self._rules.member_rules))
        count, example = spool.unknown_members()
        if count:
            yield Remark(sets, f"{_members(count)} not in scope, for example {example}: no object has this name")
        count, example = spool.ambiguous_members()
        if count:
            yield Remark(
                sets,
                f"{_members(count)} ambiguous: several objects have the name {example}, for example; let the filter or"
                " base of the set leave out all but one",
            )
        if self._members_without_user:
            yield Remark(sets, f"{_members(self._members_without_user)} skipped, because no user is made of them")


def _members(count: int) -> str:
    return "1 member is" if count == 1 else f"{count:,} members are"
