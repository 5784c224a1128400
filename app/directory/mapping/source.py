"""The source that is made of a connector and rules.

What rules without ``each`` make is given as soon as an object has been read. What rules with ``each`` make is given at
the end, when all members are known to the spool (``app.directory.mapping.spool``), and only if the read was worth it.

Among changes, a group appears with all of its records when anything about it or its members changed, also when the
connector did not tell of the group itself; and an object of which no record is made (any more) appears as gone.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple, Protocol

from app.access.records import User
from app.directory.casting import disabling_record
from app.directory.connector import Connector, DirectoryObject
from app.directory.mapping.cel import IT, MEMBER, Asked
from app.directory.mapping.fitness import UnfitValueError, Value
from app.directory.mapping.rule import NOBODY, Made, MappingRule, OfMembers, Outcome, Skipped, Spoilt
from app.directory.mapping.rules import NO_FIELDS, Rules
from app.directory.mapping.spool import Held, Member, Spool, SpoolError
from app.directory.mapping.spool_file import SpoolFile
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Found,
    Gone,
    Malformed,
    ObjectId,
    Origin,
    Reading,
    ReadRequest,
    Remark,
    Verdict,
)
from app.foundation.text import counted

Step = Found | Gone | Malformed | Remark


class Thing(NamedTuple):
    """An object to which rules are applied."""

    id: ObjectId
    place: str
    value: Value
    """Of its value, what rules name."""


class Onlooker(Protocol):
    """Somebody who wants to know what rules did, besides what came of it."""

    def unfit(self, thing: DirectoryObject, reason: str) -> None:
        """No rule was applied to an object: nothing can be asked of its value."""
        ...

    def seen(self, thing: Thing) -> None:
        """An object was read; what rules make of it follows."""
        ...

    def applied(self, thing: Thing, rule: MappingRule, outcome: Outcome) -> None:
        """A rule without ``each`` was applied to an object."""
        ...

    def begun(self, thing: Thing, rule: MappingRule, outcome: OfMembers | Skipped | Spoilt) -> None:
        """A rule with ``each`` was applied to an object; its members follow, if there is something to make of them."""
        ...

    def applied_to_member(
        self, thing: Thing, rule: MappingRule, member: Member, outcome: Outcome, way: Callable[[], Sequence[str]]
    ) -> None:
        """It was applied to one of the members; ``way``: the places of the groups through which they are one."""
        ...


class MappedSource:
    """A connector and rules, as one source. ``spool``: where members are kept between reads."""

    def __init__(self, name: str, connector: Connector, rules: Rules, spool: SpoolFile | None = None) -> None:
        self._name = name
        self.connector = connector
        self.rules = rules
        self._spool = spool or SpoolFile()

    @property
    def name(self) -> str:
        return self._name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        return self.watched(request, None)

    def watched(self, request: ReadRequest, onlooker: Onlooker | None) -> Reading:
        """A read, with somebody who looks on."""
        try:
            if not self.rules.each:
                yield from _Mapping(self, request, None, onlooker).steps()
                return
            spool = None
            if request.since or request.part is not None:
                spool = self._spool.kept(request.since, self.rules.digest)
                if spool is None and request.since:
                    reason = "what is known of members does not belong to this cursor; the source is read as a whole"
                    yield End(Verdict.FAILED, reason, answered=Answered.CURSOR_REFUSED)
                    return
                if spool is None:
                    # Whom a group has cannot be told without the others.
                    request = EVERYTHING
            with spool or self._spool.fresh() as opened:
                yield from _Mapping(self, request, opened, onlooker).steps()
        except (SpoolError, sqlite3.Error, OSError) as error:
            yield End(Verdict.FAILED, f"the spool of members: {error}")


class _Mapping:
    """One read."""

    def __init__(
        self, source: MappedSource, request: ReadRequest, spool: Spool | None, onlooker: Onlooker | None
    ) -> None:
        self._connector = source.connector
        self._rules = source.rules
        self._request = request
        self._spool = spool
        self._onlooker = onlooker
        self._whole = request == EVERYTHING
        self._malformed = 0
        self._unnamed = 0
        """How many of them do not name an object."""
        self._nobody = 0
        self._objects: Counter[str] = Counter()
        """Set → how many objects of it were read."""
        self._unseen = {name: set(attributes) for name, attributes in source.rules.disabling.items()}
        """Set → those attributes by which rules disable its objects that no object had so far."""
        self._said: set[tuple[str, str]] = set()
        """Remarks that were made already: a rule is odd once, not once for each object."""

    def steps(self) -> Reading:
        end: End | None = None
        with closing(self._connector.read(self._rules.wanted, self._request)) as objects:  # type: ignore[type-var]
            for step in objects:
                if type(step) is DirectoryObject:
                    yield from self._of_object(step)
                elif type(step) is End:
                    end = step
                    break
                elif type(step) is Gone:
                    if self._spool is not None:
                        self._spool.remove(step.object)
                    yield step
                elif isinstance(step, Malformed):
                    self._malformed += 1
                    self._unnamed += step.object is None
                    yield step
                elif isinstance(step, Remark):
                    yield step
        if end is None:
            yield End(Verdict.FAILED, "the connector ended without a verdict")
            return
        if self._spool is not None and end.verdict is not Verdict.FAILED:
            yield from self._of_members(self._spool, end)
        yield self._verdict(end)

    def _hidden(self) -> str:
        """Which attributes no object of a set has by which rules disable its objects; empty: none."""
        found = [
            f"rule {self._rules.disabling[set_][attribute]} disables by {attribute}, which none of the"
            f" {self._objects[set_]:,} objects of {set_} has: give the reader the right to read it, or ask"
            f" has(it.{attribute}) first if it may be missing"
            for set_, attributes in sorted(self._unseen.items())
            if self._objects[set_]
            for attribute in sorted(attributes)
        ]
        return "; ".join(found)

    def _verdict(self, end: End) -> End:
        verdict, reason, cursor = end.verdict, end.reason, end.cursor
        if end.answered is None and verdict is not Verdict.FAILED and (hidden := self._hidden()):
            return End(Verdict.FAILED, hidden)
        except_malformed = self._malformed > 0 == self._unnamed and (
            verdict is Verdict.COMPLETE or end.except_malformed
        )
        if verdict is Verdict.COMPLETE and self._malformed:
            verdict, reason = Verdict.PARTIAL, counted(self._malformed, "malformed record")
        if verdict is Verdict.FAILED:
            return End(verdict, reason, cursor, end.answered, login_refused=end.login_refused)
        if verdict is Verdict.PARTIAL and end.answered is Answered.CHANGES and not except_malformed:
            # What is missing of them is asked for again, until it can be understood or everything is read.
            return End(verdict, reason, self._request.since, end.answered)
        if self._spool is not None and end.answered is not Answered.PART:
            self._spool.keep(cursor, self._rules.digest)
        return End(verdict, reason, cursor, end.answered, except_malformed)

    # Objects.

    def _of_object(self, thing: DirectoryObject) -> Sequence[Step]:
        set_ = thing.id.set
        self._objects[set_] += 1
        if unseen := self._unseen.get(set_):
            unseen.difference_update([name for name in unseen if thing.value.get(name) is not None])
        try:
            value = self._rules.taken(set_, thing.value)
        except UnfitValueError as error:
            return self._of_unfit(thing, str(error))
        known = Thing(thing.id, thing.place, value)
        if self._onlooker is not None:
            self._onlooker.seen(known)
        steps = self._plain(known)
        if self._spool is not None:
            if set_ in self._rules.each:
                self._spool.put(thing, value=value, member=None)
                return steps
            users: list[User] = []
            if self._rules.members_user:
                users = [step.record for step in steps if type(step) is Found and type(step.record) is User]
            malformed = users or not any(type(step) is Malformed for step in steps)
            told = NO_FIELDS if malformed else self._user_that_can_be_told(set_, value)
            self._spool.put(thing, value=None, member=self._rules.as_member(value, users, told))
        if not self._whole and set_ not in self._rules.each and not _say_something(steps):
            return [*steps, Gone(thing.id)]
        return steps

    def _of_unfit(self, thing: DirectoryObject, reason: str) -> Sequence[Step]:
        """What is made of an object of which not all can be asked: it may be disabled, and is still a member."""
        self._malformed += 1
        if self._onlooker is not None:
            self._onlooker.unfit(thing, reason)
        set_, value = thing.id.set, self._rules.taken_in_part(thing.id.set, thing.value)
        if self._spool is not None and set_ not in self._rules.each:
            told = self._user_that_can_be_told(set_, value)
            self._spool.put(thing, value=None, member=self._rules.as_member(value, (), told))
        asked = Asked(self._rules.of_object, {IT: value})
        rules = self._rules.plain.get(set_, ())
        found = [step for rule in rules for step in self._fills(rule, asked, Thing(thing.id, thing.place, value))]
        return [*found, Malformed(thing.place, reason, thing.id, any(rule.disables(asked) for rule in rules))]

    def _user_that_can_be_told(self, set_: str, value: Value) -> Mapping[str, object]:
        """The fields of the user that rules would make of a malformed object, so that groups keep them as a member."""
        if not self._rules.members_user:
            return NO_FIELDS
        asked = Asked(self._rules.of_object, {IT: value})
        users = (rule for rule in self._rules.plain.get(set_, ()) if rule.kind == User.kind)
        return next(filter(None, (rule.fields_that_can_be_told(asked) for rule in users)), NO_FIELDS)

    @staticmethod
    def _fills(rule: MappingRule, asked: Asked, thing: Thing) -> Iterator[Found]:
        """Of a malformed object: the fill that only disables, if the rule would make one that does."""
        record = disabling_record(rule.fields_that_can_be_told(asked), rule.kind)
        if record is not None:
            yield Found(record, thing.place, Origin(thing.id, rule.number))

    def _plain(self, thing: Thing) -> list[Step]:
        """What rules without ``each`` make of an object."""
        rules = self._rules.plain.get(thing.id.set)
        if not rules:
            return []
        steps: list[Step] = []
        asked = Asked(self._rules.of_object, {IT: thing.value})
        for rule in rules:
            outcome = rule.of(asked)
            if self._onlooker is not None:
                self._onlooker.applied(thing, rule, outcome)
            if type(outcome) is Made:
                steps.append(Found(outcome.record, thing.place, Origin(thing.id, rule.number)))
                if outcome.remarks:
                    steps += self._remarks(outcome, rule, thing.place)
            elif type(outcome) is Spoilt:
                self._malformed += 1
                steps += self._fills(rule, asked, thing)
                reason = f"rule {rule.number}: {outcome.reason}"
                steps.append(Malformed(thing.place, reason, thing.id, rule.disables(asked)))
        return steps

    def _remarks(self, made: Made, rule: MappingRule, place: str) -> Iterator[Remark]:
        for remark in made.remarks:
            if (rule.number, remark) not in self._said:
                self._said.add((rule.number, remark))
                yield Remark(place, f"rule {rule.number}: {remark}")

    # Members.

    def _of_members(self, spool: Spool, end: End) -> Iterator[Found | Gone | Malformed | Remark]:
        if not self._whole and end.answered is None:
            spool.remove_unseen()
        spool.make_ready()
        for held in spool.all_held() if end.answered is None else spool.held_to_tell():
            silent = True
            thing = Thing(held.id, held.place, held.value)
            if not held.seen:
                for step in self._plain(thing):
                    silent = False
                    yield step
            if end.answered is None:
                yield from self._each(spool, held, thing)
                continue
            for found in self._each(spool, held, thing):
                silent = False
                yield found
            if silent and not self._made_anything(thing):
                yield Gone(held.id)
        if end.answered is None:
            yield from self._nowhere(spool)

    def _made_anything(self, thing: Thing) -> bool:
        """Whether rules without ``each`` make something of an object, whose steps were given already."""
        asked = Asked(self._rules.of_object, {IT: thing.value})
        return any(isinstance(rule.of(asked), Made | Spoilt) for rule in self._rules.plain.get(thing.id.set, ()))

    def _each(self, spool: Spool, held: Held, thing: Thing) -> Iterator[Found | Malformed | Remark]:
        """What rules with ``each`` make of an object's members."""
        asked = Asked(self._rules.of_member, {IT: held.value, MEMBER: {}})
        begun: list[OfMembers] = []
        for rule in self._rules.each[held.id.set]:
            start = rule.begin(asked)
            if self._onlooker is not None:
                self._onlooker.begun(thing, rule, start)
            if isinstance(start, OfMembers):
                begun.append(start)
            elif isinstance(start, Spoilt):
                self._malformed += 1
                yield Malformed(thing.place, f"rule {rule.number}: {start.reason}", thing.id)
        if not begun:
            return
        for member in spool.members(held.number):
            asked.turn_to(member.value)
            for one in begun:
                outcome = one.of(asked)
                if self._onlooker is not None:
                    way = partial(spool.chain, held.number, member.number)
                    self._onlooker.applied_to_member(thing, one.rule, member, outcome, way)
                yield from self._steps_of_member(thing, one.rule, member, outcome)

    def _steps_of_member(
        self, thing: Thing, rule: MappingRule, member: Member, outcome: Outcome
    ) -> Sequence[Found | Malformed | Remark]:
        if type(outcome) is Made:
            found = Found(outcome.record, thing.place, Origin(thing.id, rule.number))
            return [found, *self._remarks(outcome, rule, thing.place)] if outcome.remarks else [found]
        if type(outcome) is Spoilt:
            self._malformed += 1
            reason = f"rule {rule.number}, member {member.place}: {outcome.reason}"
            return [Malformed(thing.place, reason, thing.id)]
        self._nobody += outcome is NOBODY
        return []

    def _nowhere(self, spool: Spool) -> Iterator[Remark]:
        count, example = spool.nowhere()
        if count:
            yield Remark(self._sets(), f"{_members(count)} not in scope: nothing was told of {example}, for instance")
        count, example = spool.ambiguous()
        if count:
            yield Remark(
                self._sets(),
                f"{_members(count)} nobody: several objects have the name {example}, for instance; let the filter or"
                " base of the set leave out all but one",
            )
        if self._nobody:
            yield Remark(self._sets(), f"{_members(self._nobody)} nobody of whom a user is made")

    def _sets(self) -> str:
        """The place of what is said of all groups together."""
        return ", ".join(sorted(self._rules.each))


def _say_something(steps: Sequence[Step]) -> bool:
    return any(type(step) is not Remark for step in steps)


def _members(count: int) -> str:
    return "1 member is" if count == 1 else f"{count:,} members are"
