"""Pushes: changes that an application sends as JSON, and the source that contains nothing else.

The format is in ``app/service/push/README.md``. A push with an invalid item is rejected as a whole, with the errors of
all its items.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.access.kinds import KINDS
from app.access.records import Record
from app.directory.casting import record_from_object
from app.directory.fields import MAX_INTEGER, MalformedRecordError, name_of_type
from app.directory.source import EVERYTHING, Answered, End, Reading, ReadRequest, Verdict
from app.foundation.text import named, quoted

MAX_ITEMS = 1_000
"""The maximum of upserts and removals in a push."""

_FIELDS = ("sequence", "previousSequence", "upsert", "remove")


class ItemProblem(NamedTuple):
    """The error of an item of a push."""

    list: str
    """``upsert``, ``remove`` or ``line``."""
    number: int
    """Its position in the list, from 0. Lines are from 1."""
    reason: str


class PushError(ValueError):
    """A rejected push, with the errors of its items."""

    def __init__(self, message: str, items: Sequence[ItemProblem] = ()) -> None:
        super().__init__(message)
        self.items = tuple(items)


class MalformedPushError(PushError):
    """The push is invalid."""


class ForeignPushError(PushError):
    """The push contains records that this source must not contain."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The records that may be pushed to a source."""

    kinds: frozenset[str] = frozenset()
    """Empty: all."""
    organizations: frozenset[str] = frozenset()
    """Empty: all. Otherwise kinds without an organization must be in ``kinds``."""

    def objection(self, record: Record) -> str | None:
        """Why a record must not be pushed. None if it may be."""
        if self.kinds and record.kind not in self.kinds:
            return f"kind: {record.kind} may not be pushed to this source, only {', '.join(sorted(self.kinds))}"
        if not self.organizations:
            return None
        organization_id = getattr(record, "organization_id", None)
        if organization_id is None:
            if record.kind in self.kinds:
                return None
            return f"kind: {record.kind} belongs to no organization, and this source accepts certain organizations only"
        if organization_id not in self.organizations:
            return f"organizationId: {quoted(organization_id)} is not accepted by this source"
        return None


@dataclass(frozen=True, slots=True)
class Push:
    """A valid push."""

    sequence: int
    previous_sequence: int | None
    upserts: tuple[Record, ...]
    removals: tuple[Record, ...]
    """Records of which only the key is used."""


def push_from_object(body: object, allowed: Allowed) -> Push:
    """The push of a JSON object. Raises ``MalformedPushError``, ``ForeignPushError``."""
    if not isinstance(body, dict):
        raise MalformedPushError(f"the body must be a JSON object, but is {name_of_type(body)}")
    for name in body:
        if name not in _FIELDS:
            raise MalformedPushError(f"{named(name, limit=80)}: not a field of a push; it has {', '.join(_FIELDS)}")
    sequence = _number(body, "sequence", minimum=1)
    if sequence is None:
        raise MalformedPushError("sequence: is missing; number your pushes, each higher than the one before")
    previous = _number(body, "previousSequence", minimum=0)
    if previous is not None and previous >= sequence:
        raise MalformedPushError("previousSequence: must be lower than sequence")
    lists = {name: _list(body, name) for name in ("upsert", "remove")}
    count = sum(map(len, lists.values()))
    if count > MAX_ITEMS:
        raise MalformedPushError(f"{count:,} items are too many for one push; send {MAX_ITEMS:,} at most")
    problems: list[ItemProblem] = []
    upserts = _cast(lists["upsert"], "upsert", record_of_upsert, problems)
    removals = _cast(lists["remove"], "remove", record_of_key, problems)
    keys = {record.key for record in upserts if record is not None}
    for index, record in enumerate(removals):
        if record is not None and record.key in keys:
            problems.append(ItemProblem("remove", index, "the same key is in upsert; send one of the two"))
    _raise_if_any(MalformedPushError, "cannot be understood; nothing was applied", problems)
    push = Push(sequence, previous, tuple(filter(None, upserts)), tuple(filter(None, removals)))
    for name, records in (("upsert", push.upserts), ("remove", push.removals)):
        for index, record in enumerate(records):
            if (objection := allowed.objection(record)) is not None:
                problems.append(ItemProblem(name, index, objection))
    _raise_if_any(ForeignPushError, "may not be pushed here; nothing was applied", problems)
    return push


def record_of_upsert(value: object) -> Record:
    """The record of an item of ``upsert``. Raises ``MalformedRecordError``."""
    return record_from_object(value, every_alias=True)[0]


def record_of_key(value: object) -> Record:
    """A record with the key of an item of ``remove``, which has only ids. Raises ``MalformedRecordError``."""
    if isinstance(value, dict) and isinstance(kind := value.get("kind"), str) and kind in KINDS:
        key = [field.name for field in KINDS[kind].keys]
        for name in value:
            if name != "kind" and name not in key:
                raise MalformedRecordError(
                    f"{quoted(name)}: is not part of the key of this kind, which is {', '.join(key)}"
                )
        needed = (field.name for field in KINDS[kind].fields if field.is_needed and field.name not in key)
        value = {**value, **dict.fromkeys(needed, "removed")}
    return record_from_object(value)[0]


def _raise_if_any(
    error: Callable[[str, Sequence[ItemProblem]], PushError], what: str, problems: list[ItemProblem]
) -> None:
    if problems:
        items = "one item" if len(problems) == 1 else f"{len(problems):,} items"
        first = problems[0]
        raise error(f"{items} {what}: {first.list}[{first.number}]: {first.reason}", problems)


def _cast(
    items: Sequence[object], name: str, cast: Callable[[object], Record], problems: list[ItemProblem]
) -> list[Record | None]:
    """The records of items. None for invalid items, whose errors are added to ``problems``."""
    records: list[Record | None] = []
    for index, item in enumerate(items):
        try:
            records.append(cast(item))
        except MalformedRecordError as error:
            records.append(None)
            problems.append(ItemProblem(name, index, str(error)))
    return records


def _number(body: Mapping[str, object], name: str, *, minimum: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_INTEGER:
        raise MalformedPushError(f"{name}: must be a whole number of {minimum} or more, of 63 bits at most")
    return value


def _list(body: Mapping[str, object], name: str) -> list[object]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedPushError(f"{name}: must be a list, but is {name_of_type(value)}")
    return value


class PushedSource:
    """A source of ``type: push``. A read finds no changes, so that pushed records stay in force."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - every read is the same
        yield End(Verdict.COMPLETE, answered=Answered.CHANGES)
