"""The preview of a source: some of its objects as rules see them, what each rule makes of them, and how often.

A previewed source is read like any other, always as a whole; it gives the same steps, and remembers what somebody wants
to see of them. Sources without rules have nothing to tell but the records themselves.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

from app.access.kinds import KINDS
from app.access.records import ContextGrant, Grant, GroupMember, Key, Membership, Record
from app.directory.casting import object_from_record
from app.directory.connector import DirectoryObject
from app.directory.mapping.rule import Made, MappingRule, OfMembers, Outcome, Skipped, Spoilt
from app.directory.mapping.rules import Rules
from app.directory.mapping.source import Onlooker, Thing
from app.directory.mapping.spool import Member
from app.directory.source import EVERYTHING, End, Found, Malformed, ObjectId, Reading, ReadRequest, Source

MASKED = "********"

MOST_LINES = 20
"""So much is remembered of what rules make of one object; a group may have many members."""

_SECRET = re.compile(
    r"pass(word|wd|phrase)|pwd|secret|token|credential|api_?-?key|private_?-?key|(^|[^a-z])(pin|ssn|otp)([^a-z]|$)",
    re.IGNORECASE,
)
_LAST = datetime.max.replace(tzinfo=UTC)


@runtime_checkable
class Watchable(Protocol):
    """A source with rules at whose work somebody may look."""

    @property
    def rules(self) -> Rules:
        """Its rules."""
        ...

    def watched(self, request: ReadRequest, onlooker: Onlooker | None) -> Reading:
        """A read like any other, with somebody who looks on."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """Which objects are to be seen, and how many at most."""

    limit: int
    set: str = ""
    """Of which set; empty: of any."""
    id: str = ""
    """Which: its id or place, or a text that one of its attributes is; empty: the first."""

    def takes(self, thing: ObjectId | None, place: str, value: Mapping[str, object]) -> bool:
        """Whether an object is one of them."""
        if self.set and (thing is None or thing.set != self.set):
            return False
        if not self.id:
            return True
        if thing is not None and thing.id == self.id:
            return True
        wanted = self.id.casefold()
        return place.casefold() == wanted or any(
            isinstance(one, str) and one.casefold() == wanted for one in value.values()
        )


@dataclass(slots=True)
class RuleResult:
    """What one rule made of an object, or of the object as a member of another."""

    rule: str
    """Its number; empty: there are no rules."""
    kind: str
    record: Mapping[str, object] | None = None
    """The record as files have it; None: none was made."""
    reason: str = ""
    """Why none was made."""
    malformed: bool = False
    """Whether there should have been one."""
    through: Sequence[str] = ()
    """The places of the groups through which it is a member, the one to which the rule was applied first."""
    wins: bool = False
    """Whether all that counts of several with the same key is what it says."""
    gives: Sequence[str] = ()
    """Of several with the same key: the fields that count as it says them."""
    key: Key = ()
    rank: tuple[int, datetime] = (0, _LAST)


@dataclass(slots=True)
class Shown:
    """An object to be seen."""

    id: ObjectId | None
    """None: the source has no objects, only records."""
    place: str
    value: Mapping[str, object]
    """The attributes that rules name, secrets masked."""
    lines: list[RuleResult] = field(default_factory=list)
    left_off: int = 0
    """How many lines there would be besides."""

    def add(self, line: RuleResult) -> None:
        """One more line, if there is room."""
        if len(self.lines) < MOST_LINES:
            self.lines.append(line)
        else:
            self.left_off += 1


@dataclass(slots=True)
class Counts:
    """What one rule came to."""

    rule: MappingRule
    objects: int = 0
    """Of its set; the sum of the next three."""
    matched: int = 0
    skipped: int = 0
    malformed: int = 0
    records: int = 0
    members_skipped: int = 0
    """Members of whom no record was made, as it is meant."""
    members_malformed: int = 0


class PreviewedSource:
    """Another source, of whose next read is remembered what is to be seen."""

    def __init__(self, source: Source, choice: Choice) -> None:
        self._source = source
        self._choice = choice
        self._shown: dict[ObjectId | str, Shown] = {}
        self.kinds: Counter[str] = Counter()
        """kind → how many records of it there are."""
        self.malformed = 0
        self.end: End | None = None
        """How the read ended."""
        rules = source.rules.all if isinstance(source, Watchable) else []
        self.counts: Mapping[str, Counts] = {rule.number: Counts(rule) for rule in rules}
        """Number of a rule → what it came to; empty: there are no rules."""

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def shown(self) -> Sequence[Shown]:
        """The objects to be seen, as far as they were found."""
        for one in self._shown.values():
            one.lines.sort(key=lambda line: (len(line.rule), line.rule))
            _mark_those_that_win(one.lines)
        return list(self._shown.values())

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - a preview is of everything
        source = self._source
        reading = source.watched(EVERYTHING, self) if isinstance(source, Watchable) else source.read()
        for step in reading:
            if type(step) is Found:
                self.kinds[step.record.kind] += 1
                if not self.counts:
                    self._look_at(step)
            elif type(step) is Malformed:
                self.malformed += 1
            elif type(step) is End:
                self.end = step
                # What changes from here on is nothing to a preview.
                yield step._replace(cursor="")
                return
            yield step

    def _look_at(self, found: Found) -> None:
        """A record of a source at whose rules nobody may look, if it has any."""
        fields = object_from_record(found.record)
        origin = None if found.origin is None else found.origin.object
        shown = self._show(origin, found.place, fields, {})
        if shown is not None:
            shown.add(_line("" if found.origin is None else found.origin.rule, Made(found.record)))

    def _show(
        self, thing: ObjectId | None, place: str, value: Mapping[str, object], seen: Mapping[str, object] | None = None
    ) -> Shown | None:
        shown = self._shown.get(thing or place)
        if shown is None and len(self._shown) < self._choice.limit and self._choice.takes(thing, place, value):
            named = dict(sorted((value if seen is None else seen).items()))
            shown = self._shown[thing or place] = Shown(thing, place, masked(named))
        return shown

    # As an onlooker.

    def seen(self, thing: Thing) -> None:
        """An object to which rules are applied, if there are any for its set."""
        self._show(thing.id, thing.place, thing.value)

    def unfit(self, thing: DirectoryObject, reason: str) -> None:
        """No rule was applied to it."""
        for counts in self.counts.values():
            if counts.rule.set == thing.id.set:
                counts.objects += 1
                counts.malformed += 1
        shown = self._show(thing.id, thing.place, thing.value, {})
        if shown is not None:
            shown.add(RuleResult("", "", reason=reason, malformed=True))

    def applied(self, thing: Thing, rule: MappingRule, outcome: Outcome) -> None:
        """A rule without ``each``."""
        counts = self.counts[rule.number]
        counts.objects += 1
        if type(outcome) is Made:
            counts.matched += 1
            counts.records += 1
        elif type(outcome) is Skipped:
            counts.skipped += 1
        else:
            counts.malformed += 1
        self._note(thing, _line(rule.number, outcome, rule.kind))

    def begun(self, thing: Thing, rule: MappingRule, outcome: OfMembers | Skipped | Spoilt) -> None:
        """A rule with ``each``, at an object."""
        counts = self.counts[rule.number]
        counts.objects += 1
        if isinstance(outcome, OfMembers):
            counts.matched += 1
            return
        if type(outcome) is Skipped:
            counts.skipped += 1
        else:
            counts.malformed += 1
        self._note(thing, _line(rule.number, outcome, rule.kind))

    def _note(self, thing: Thing, line: RuleResult) -> None:
        shown = self._shown.get(thing.id)
        if shown is not None:
            shown.add(line)

    def applied_to_member(
        self, thing: Thing, rule: MappingRule, member: Member, outcome: Outcome, way: Callable[[], Sequence[str]]
    ) -> None:
        """A rule with ``each``, at a member."""
        counts = self.counts[rule.number]
        if type(outcome) is Made:
            counts.records += 1
        elif type(outcome) is Skipped:
            counts.members_skipped += 1
        else:
            counts.members_malformed += 1
        for shown, further in ((self._shown.get(member.id), []), (self._shown.get(thing.id), [member.place])):
            if shown is None:
                continue
            line = _line(rule.number, outcome, rule.kind)
            if len(shown.lines) < MOST_LINES:
                line.through = [*way(), *further]
            shown.add(line)


def masked(value: Mapping[str, object]) -> Mapping[str, object]:
    """The value without what looks like a secret by its name."""
    return {name: MASKED if _SECRET.search(name) else _masked(inner) for name, inner in value.items()}


def _masked(value: object) -> object:
    if isinstance(value, dict):
        return masked(value)
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return value


def _line(rule: str, outcome: Outcome, kind: str = "") -> RuleResult:
    if isinstance(outcome, Made):
        record = outcome.record
        fields = {name: value for name, value in object_from_record(record).items() if name != "kind"}
        return RuleResult(rule, record.kind, masked(fields), key=record.key, rank=_rank(record))
    return RuleResult(rule, kind, reason=outcome.reason, malformed=isinstance(outcome, Spoilt))


def _rank(record: Record) -> tuple[int, datetime]:
    """How much a record gives, of those that let somebody in: the role, then the end."""
    role = record.access_role.rank if isinstance(record, Membership | Grant) else 0
    ends = record.expires_at if isinstance(record, Membership | Grant | ContextGrant) else None
    return role, ends or _LAST


_LETTING_IN = frozenset({Membership.kind, Grant.kind, ContextGrant.kind, GroupMember.kind})

_FIELDS = {kind: frozenset(KINDS[kind].field_names) for kind in _LETTING_IN}


def _mark_those_that_win(lines: Sequence[RuleResult]) -> None:
    by_key: dict[Key, list[RuleResult]] = {}
    for line in lines:
        if line.record is not None and line.kind in _LETTING_IN:
            by_key.setdefault(line.key, []).append(line)
    for same in by_key.values():
        if len(same) > 1:
            role, ends = (max(part) for part in zip(*(one.rank for one in same), strict=True))
            for one in same:
                named = {"accessRole": one.rank[0] == role, "expiresAt": one.rank[1] == ends}
                one.gives = [name for name, counts in named.items() if counts and name in _FIELDS[one.kind]]
            winner = next((one for one in same if one.rank == (role, ends)), None)
            if winner is not None:
                winner.wins = True
