"""Pushes: changes that an application tells of, made of the JSON that it sends.

The rules: ``app/service/push/README.md``. All or nothing: a push in which one item is wrong is refused, with what is
wrong with each of its items.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.access.kinds import KINDS
from app.access.records import Record
from app.directory.casting import record_from_object
from app.directory.fields import MAX_INTEGER, MalformedRecordError, name_of_type
from app.foundation.text import named, quoted

MAX_ITEMS = 1_000
"""Records and keys in one push, together."""

_FIELDS = ("sequence", "previousSequence", "upsert", "remove")


class ItemProblem(NamedTuple):
    """What is wrong with one item of a push."""

    list: str
    """``upsert``, ``remove`` or ``line``."""
    number: int
    """Its position there, from 0; of a line from 1."""
    reason: str


class PushError(ValueError):
    """A push that is refused; the text says why, ``items`` what is wrong with which item."""

    def __init__(self, message: str, items: Sequence[ItemProblem] = ()) -> None:
        super().__init__(message)
        self.items = tuple(items)


class MalformedPushError(PushError):
    """It cannot be understood."""


class ForeignPushError(PushError):
    """It is about what whoever pushes has no say in."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be pushed to a source."""

    kinds: frozenset[str] = frozenset()
    """Empty: all."""
    organizations: frozenset[str] = frozenset()
    """Empty: all. Otherwise kinds that belong to no organization have to be among ``kinds``."""

    def objection(self, record: Record) -> str | None:
        """Why this record may not be pushed; None: it may."""
        if self.kinds and record.kind not in self.kinds:
            return f"kind: {record.kind} may not be pushed to this source, only {', '.join(sorted(self.kinds))}"
        if not self.organizations:
            return None
        organization_id = getattr(record, "organization_id", None)
        if organization_id is None:
            if record.kind in self.kinds:
                return None
            return f"kind: {record.kind} belongs to no organization, and this source may be told of some alone"
        if organization_id not in self.organizations:
            return f"organizationId: {quoted(organization_id)} is not one that this source may be told of"
        return None


ANYTHING = Allowed()
"""Everything may be pushed."""


@dataclass(frozen=True, slots=True)
class Push:
    """What an application tells of."""

    sequence: int
    previous_sequence: int | None
    upserts: tuple[Record, ...]
    removals: tuple[Record, ...]
    """Records of which the key alone means something."""


def push_from_object(body: object, allowed: Allowed = ANYTHING) -> Push:
    """The push that a JSON object stands for.

    Raises ``MalformedPushError``, and ``ForeignPushError`` where ``allowed`` does not have all of it.
    """
    if not isinstance(body, dict):
        raise MalformedPushError(f"the body must be a JSON object, but is {name_of_type(body)}")
    for name in body:
        if name not in _FIELDS:
            raise MalformedPushError(f"{named(name, limit=80)}: not a field of a push; it has {', '.join(_FIELDS)}")
    sequence = _number(body, "sequence", least=1)
    if sequence is None:
        raise MalformedPushError("sequence: is missing; number your pushes, each higher than the one before")
    previous = _number(body, "previousSequence", least=0)
    if previous is not None and previous >= sequence:
        raise MalformedPushError("previousSequence: must be lower than sequence")
    lists = {name: _list(body, name) for name in ("upsert", "remove")}
    count = sum(map(len, lists.values()))
    if count > MAX_ITEMS:
        raise MalformedPushError(f"{count:,} items are too many for one push; send {MAX_ITEMS:,} at most")
    problems: list[ItemProblem] = []
    upserts = _cast(lists["upsert"], "upsert", record_of_upsert, problems)
    removals = _cast(lists["remove"], "remove", record_of_key, problems)
    told = {record.key for record in upserts if record is not None}
    for index, record in enumerate(removals):
        if record is not None and record.key in told:
            problems.append(ItemProblem("remove", index, "the same key is in upsert; say one of the two"))
    _refuse(MalformedPushError, "cannot be understood; nothing was applied", problems)
    push = Push(sequence, previous, tuple(filter(None, upserts)), tuple(filter(None, removals)))
    for name, records in (("upsert", push.upserts), ("remove", push.removals)):
        for index, record in enumerate(records):
            if (objection := allowed.objection(record)) is not None:
                problems.append(ItemProblem(name, index, objection))
    _refuse(ForeignPushError, "may not be pushed here; nothing was applied", problems)
    return push


def record_of_upsert(value: object) -> Record:
    """The record that an item of ``upsert`` stands for. Raises ``MalformedRecordError``."""
    return record_from_object(value, every_alias=True)[0]


def record_of_key(value: object) -> Record:
    """A record with the key that an item of ``remove`` gives: ``kind`` and the ids, and nothing else. Raises
    ``MalformedRecordError``."""
    if isinstance(value, dict) and isinstance(kind := value.get("kind"), str) and kind in _KEY_FIELDS:
        key = _KEY_FIELDS[kind]
        for name in value:
            if name != "kind" and name not in key:
                raise MalformedRecordError(
                    f"{quoted(name)}: is not part of the key of this kind, which is {', '.join(key)}"
                )
        value = {**value, **_PLACEHOLDERS[kind]}
    return record_from_object(value)[0]


def _refuse(error: Callable[[str, Sequence[ItemProblem]], PushError], what: str, problems: list[ItemProblem]) -> None:
    if problems:
        items = "one item" if len(problems) == 1 else f"{len(problems):,} items"
        first = problems[0]
        raise error(f"{items} {what}: {first.list}[{first.number}]: {first.reason}", problems)


def _cast(
    items: Sequence[object], name: str, cast: Callable[[object], Record], problems: list[ItemProblem]
) -> list[Record | None]:
    records: list[Record | None] = []
    for index, item in enumerate(items):
        try:
            records.append(cast(item))
        except MalformedRecordError as error:
            records.append(None)
            problems.append(ItemProblem(name, index, str(error)))
    return records


def _number(body: Mapping[str, object], name: str, *, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INTEGER:
        raise MalformedPushError(f"{name}: must be a whole number of {least} or more, of 63 bits at most")
    return value


def _list(body: Mapping[str, object], name: str) -> list[object]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise MalformedPushError(f"{name}: must be a list, but is {name_of_type(value)}")
    return value


_KEY_FIELDS: Mapping[str, tuple[str, ...]] = {
    kind.name: tuple(field.name for field in kind.keys) for kind in KINDS.values()
}
"""What identifies a record of each kind."""

_PLACEHOLDERS: Mapping[str, Mapping[str, str]] = {
    kind.name: {
        field.name: "removed" for field in kind.fields if field.is_needed and field.name not in _KEY_FIELDS[kind.name]
    }
    for kind in KINDS.values()
}
"""What a record needs besides, and a key does not give."""
