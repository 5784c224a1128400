"""The preview of a source: selected objects, the records that rules make of them, and counts per rule.

A previewed source yields the same steps as the source itself, and records the preview. Of a source without rules, the
preview shows records only.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from app.access.kinds import KINDS
from app.access.records import ContextGrant, Grant, Key, Membership, Record
from app.directory.casting import object_from_record
from app.directory.connector import DirectoryObject
from app.directory.mapping.rules import Made, MappingRule, MemberRule, NotMade, Outcome, Skipped
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool import Member
from app.directory.source import EVERYTHING, End, Found, Malformed, ObjectId, Reading, ReadRequest, Source
from app.foundation.secrets import MASK

MAX_RESULTS = 20
"""Results of rules per object. A group may have many members."""

_SECRET = re.compile(
    r"pass(word|wd|phrase)|pwd|secret|token|credential|api_?-?key|private_?-?key|(^|[^a-z])(pin|ssn|otp)([^a-z]|$)",
    re.IGNORECASE,
)
_NO_END = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PreviewFilter:
    """Selects the objects to show."""

    limit: int
    set: str = ""
    """Empty: any set."""
    id: str = ""
    """The id or place of an object, or the text of one of its attributes. Empty: any object."""

    def matches(self, object_id: ObjectId | None, place: str, value: Mapping[str, object]) -> bool:
        if self.set and (object_id is None or object_id.set != self.set):
            return False
        if not self.id or (object_id is not None and object_id.id == self.id):
            return True
        folded = self.id.casefold()
        return folded in (text.casefold() for text in (place, *value.values()) if isinstance(text, str))


class _Rank(NamedTuple):
    """How permissive a record is."""

    role: int
    end: datetime


_UNRANKED = _Rank(0, _NO_END)


@dataclass(slots=True)
class RuleResult:
    """The record that a rule made of an object, or of the object as a member of a group."""

    rule: str
    """The number of the rule. Empty if there are no rules."""
    kind: str
    record: Mapping[str, object] | None = None
    """The record as in files. None: no record was made."""
    reason: str = ""
    """Why no record was made."""
    malformed: bool = False
    """Whether there should be a record."""
    through: Sequence[str] = ()
    """The places of the groups through which the object is a member, the group of the rule first."""
    wins: bool = False
    """Whether this record is effective, if several have one key."""
    winning_fields: Sequence[str] = ()
    """The fields in which this record is effective, if several have one key."""
    key: Key = ()
    rank: _Rank = _UNRANKED


@dataclass(slots=True)
class PreviewedObject:
    """An object to show."""

    id: ObjectId | None
    """None: the source has records only."""
    place: str
    value: Mapping[str, object]
    """The attributes that rules name, with masked secrets."""
    results: list[RuleResult] = field(default_factory=list)
    omitted: int = 0
    """The number of results beyond ``MAX_RESULTS``."""

    def add(self, result: RuleResult) -> None:
        if len(self.results) < MAX_RESULTS:
            self.results.append(result)
        else:
            self.omitted += 1


@dataclass(slots=True)
class RuleCounts:
    """The results of a rule. ``objects`` is the sum of the next three."""

    rule: MappingRule
    objects: int = 0
    matched: int = 0
    skipped: int = 0
    malformed: int = 0
    records: int = 0
    members_skipped: int = 0
    members_malformed: int = 0

    def add_object(self, outcome: Outcome | MemberRule) -> None:
        self.objects += 1
        self.matched += isinstance(outcome, Made | MemberRule)
        self.records += isinstance(outcome, Made)
        self.skipped += isinstance(outcome, Skipped)
        self.malformed += isinstance(outcome, NotMade)

    def add_member(self, outcome: Outcome) -> None:
        self.records += isinstance(outcome, Made)
        self.members_skipped += isinstance(outcome, Skipped)
        self.members_malformed += isinstance(outcome, NotMade)


class PreviewedSource:
    """A source, with a preview of its next read."""

    def __init__(self, source: Source, filter_: PreviewFilter) -> None:
        self.name = source.name
        self._source = source
        self._filter = filter_
        self._objects: dict[ObjectId | str, PreviewedObject] = {}
        self.kinds: Counter[str] = Counter()
        """Kind → number of records."""
        self.malformed = 0
        self.end: End | None = None
        rules = source.rules.all if isinstance(source, MappedSource) else []
        self.counts: Mapping[str, RuleCounts] = {rule.number: RuleCounts(rule) for rule in rules}
        """Number of a rule → its counts. Empty if there are no rules."""

    @property
    def objects(self) -> Sequence[PreviewedObject]:
        """The selected objects, with the results in the order of the rules."""
        return [replace(object_, results=list(_with_winners(object_.results))) for object_ in self._objects.values()]

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - a preview is of everything
        source = self._source
        steps = source.observed(EVERYTHING, self) if isinstance(source, MappedSource) else source.read()
        for step in steps:
            if type(step) is Found:
                self.kinds[step.record.kind] += 1
                if not self.counts:
                    self._add_record(step)
            elif type(step) is Malformed:
                self.malformed += 1
            elif type(step) is End:
                self.end = step
                # A preview must not move the cursor.
                yield step._replace(cursor="")
                return
            yield step

    def _add_record(self, found: Found) -> None:
        object_id, rule = (None, "") if found.origin is None else found.origin
        selected = self._select(object_id, found.place, object_from_record(found.record), shown={})
        if selected is not None:
            selected.add(_result(rule, Made(found.record)))

    def _select(
        self,
        object_id: ObjectId | None,
        place: str,
        value: Mapping[str, object],
        shown: Mapping[str, object] | None = None,
    ) -> PreviewedObject | None:
        """The object in the preview, if it is selected. ``shown``: the attributes to show. Default: ``value``."""
        selected = self._objects.get(object_id or place)
        if (
            selected is None
            and len(self._objects) < self._filter.limit
            and self._filter.matches(object_id, place, value)
        ):
            attributes = dict(sorted((value if shown is None else shown).items()))
            selected = self._objects[object_id or place] = PreviewedObject(object_id, place, masked(attributes))
        return selected

    # As an observer.

    def on_object(self, object_: DirectoryObject) -> None:
        self._select(object_.id, object_.place, object_.value)

    def on_unusable(self, object_: DirectoryObject, reason: str) -> None:
        for counts in self.counts.values():
            if counts.rule.set == object_.id.set:
                counts.add_object(NotMade(reason))
        selected = self._select(object_.id, object_.place, object_.value, shown={})
        if selected is not None:
            selected.add(RuleResult("", "", reason=reason, malformed=True))

    def on_rule(self, object_: DirectoryObject, rule: MappingRule, outcome: Outcome | MemberRule) -> None:
        self.counts[rule.number].add_object(outcome)
        selected = self._objects.get(object_.id)
        if selected is not None and not isinstance(outcome, MemberRule):
            selected.add(_result(rule.number, outcome, rule.kind))

    def on_member(
        self,
        object_: DirectoryObject,
        rule: MappingRule,
        member: Member,
        outcome: Outcome,
        path: Callable[[], Sequence[str]],
    ) -> None:
        self.counts[rule.number].add_member(outcome)
        for object_id, further in ((member.id, []), (object_.id, [member.place])):
            selected = self._objects.get(object_id)
            if selected is None:
                continue
            result = _result(rule.number, outcome, rule.kind)
            if len(selected.results) < MAX_RESULTS:
                result.through = [*path(), *further]
            selected.add(result)


def masked(value: Mapping[str, object]) -> Mapping[str, object]:
    """The value with a mask for attributes that look like secrets by their names."""
    return {name: MASK if _SECRET.search(name) else _masked(inner) for name, inner in value.items()}


def _masked(value: object) -> object:
    if isinstance(value, dict):
        return masked(value)
    return [_masked(element) for element in value] if isinstance(value, list) else value


def _result(rule: str, outcome: Outcome, kind: str = "") -> RuleResult:
    if isinstance(outcome, Made):
        record = outcome.record
        fields = {name: value for name, value in object_from_record(record).items() if name != "kind"}
        return RuleResult(rule, record.kind, masked(fields), key=record.key, rank=_rank(record))
    return RuleResult(rule, kind, reason=outcome.reason, malformed=isinstance(outcome, NotMade))


def _rank(record: Record) -> _Rank:
    role = record.access_role.rank if isinstance(record, Membership | Grant) else 0
    end = record.expires_at if isinstance(record, Membership | Grant | ContextGrant) else None
    return _Rank(role, end or _NO_END)


def _with_winners(results: Sequence[RuleResult]) -> Iterator[RuleResult]:
    """The results in the order of their rules, of which those that are effective are marked."""
    ordered = sorted(results, key=lambda result: (len(result.rule), result.rule))
    by_key: dict[Key, list[RuleResult]] = {}
    for result in ordered:
        # Of the kinds that grant access, the most permissive record wins.
        if result.record is not None and not KINDS[result.kind].has_extra_fields:
            by_key.setdefault(result.key, []).append(result)
    for result in ordered:
        same = by_key.get(result.key, ())
        if len(same) < 2:
            yield result
            continue
        best = _Rank(max(other.rank.role for other in same), max(other.rank.end for other in same))
        winner = next((other for other in same if other.rank == best), None)
        is_winning = {"accessRole": result.rank.role == best.role, "expiresAt": result.rank.end == best.end}
        names = KINDS[result.kind].field_names
        winning_fields = [name for name, wins in is_winning.items() if wins and name in names]
        yield replace(result, wins=result is winner, winning_fields=winning_fields)
