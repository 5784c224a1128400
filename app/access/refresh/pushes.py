"""Applies pushes: changes that an application sends to a source, and that take effect at once.

The rules: ``app/service/push/README.md``.

A push is one transaction under the lock of refreshes. It compares the sequence, changes the records of the source,
stores the pushed keys so that a running read does not undo them, and merges the records. A second transaction stores
the answer. Repeating one of the latest pushes changes nothing, and returns the answer to the last one
(``push_sequences.py``).
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Engine, update

from app.access.change_counts import ChangeCounts
from app.access.problem_list import ProblemList
from app.access.record_tables import VALUES_FROM_RECORD
from app.access.records import Record
from app.access.refresh.problems import staged_problems
from app.access.refresh.push_sequences import answer_to_repetition, store_push
from app.access.refresh.pushed_keys import PUSH, PushKey, store_pushed_keys
from app.access.refresh.reads import COMPLETE, PARTIAL, StagedRead
from app.access.refresh.refresh import Refresh
from app.access.refresh.source_changes import compute_source_changes, total
from app.access.refresh.sources import SOURCE, configure_source, configured_source
from app.access.refresh.tables import REFRESH_TABLES
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import reading, writing
from app.foundation.database.statements import json_lists

_MAX_RECORDS = 1_000_000
"""More than the records of any push: every record without effect is reported."""

PushAuditHook = Callable[[Connection, Mapping[str, int], int], None]
"""A callback in the transaction that applies a push: its counts, and the number of pushes to its source so far."""


@dataclass(frozen=True, kw_only=True)
class NumberedPush:
    """A push to a source."""

    source: str
    sequence: int
    previous_sequence: int | None
    upserts: Sequence[Record]
    removals: Sequence[Record]
    """Only their keys are used."""
    by: str
    """The fingerprint of the token."""

    @cached_property
    def digest(self) -> str:
        """The digest of its records and keys."""
        content = [
            [(record.kind, VALUES_FROM_RECORD[record.kind](record)) for record in self.upserts],
            list(map(_record_key, self.removals)),
        ]
        return blake2b(orjson.dumps(content), digest_size=16).hexdigest()


_RecordKey = tuple[str, PushKey]
"""The kind of a record, and its ids."""


class _Upsert(NamedTuple):
    """A record of a push, and its position among the upserts."""

    position: int
    record: Record


class _ChangedKeys(NamedTuple):
    """The numbers of keys that a push changes. A key may have several rows."""

    removed: int
    over_objects: int
    """Keys that are pushed for the first time, and that objects of the source already provide."""


_KEY_POSITIONS = {
    tables.kind: [tables.source_columns.index(name) for name in tables.pushed_keys] for tables in REFRESH_TABLES
}
"""kind → the positions of a record's key among the values of its row."""

# A cross join stops SQLite from reading all rows of the source to look them up in the list.
_REMOVE = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove}
FROM (SELECT value AS key FROM (@list(keys)) AS listed) AS requested CROSS JOIN {source} s
WHERE ({pushed_keys:s}) = ({pushed_values:requested}) AND s.source_id = :source_id
"""

_REMOVED_KEYS = """
SELECT COUNT(*) FROM (SELECT DISTINCT {written_keys} FROM {source_delta} WHERE change = {remove}) AS removed
"""

_ADDED_OVER_OBJECTS = """
SELECT COUNT(*) FROM {source_delta} d WHERE d.change = {add}
AND EXISTS (SELECT 1 FROM {source} s WHERE {written_keys:s=d} AND s.origin <> '')
"""


def apply_push(
    engine: Engine,
    push: NumberedPush,
    *,
    configured: Sequence[str],
    only_pushed: bool,
    clock: Clock,
    audit_hook: PushAuditHook | None = None,
) -> dict[str, Any]:
    """Applies a push and returns its answer.

    ``configured`` are the names of all sources in their order; ``only_pushed``: the source is never read.
    Raises ``SequenceConflictError``.
    """
    with reading(engine) as connection:
        source_id = configured_source(connection, push.source)
        if source_id is not None and (answer := _earlier_answer(connection, source_id, push)) is not None:
            # Without the lock: repetitions do not wait.
            return answer
    if source_id is None:
        with writing(engine) as connection:
            source_id = configure_source(connection, push.source, configured)
    upserts, replaced = _drop_replaced(push.upserts)
    places = {f"push {push.sequence}, upsert[{upsert.position}]": upsert for upsert in upserts.values()}
    with Refresh(engine, clock=clock, problems=ProblemList(), covered=None) as refresh:
        refresh.staging.open_source(source_id)
        for place, upsert in places.items():
            refresh.staging.add(upsert.record, place)
        refresh.staging.flush()
        with refresh.changing() as connection:
            answer = _earlier_answer(connection, source_id, push)
            if answer is not None:
                # It was applied meanwhile.
                return answer
            removals = set(map(_record_key, push.removals))
            changed_keys = _compute_changes(connection, source_id, upserts, removals)
            changes = refresh.write_records(connection)
            rows = total(changes)
            counts = _count(rows, changed_keys, upserts=len(upserts), removals=len(removals))
            store_pushed_keys(connection, source_id, {*upserts, *removals}, only_pushed=only_pushed)
            pushes = _store_push(connection, source_id, push, rows, epoch_ms(clock()), only_pushed=only_pushed)
            if audit_hook is not None:
                audit_hook(connection, counts, pushes)
            revision = refresh.merge(connection, changes).revision
            reasons = replaced | _left_out(connection, places)
    answer = {
        "revision": revision,
        "sequence": push.sequence,
        "counts": counts,
        "leftOut": [{"index": index, "reason": reason} for index, reason in sorted(reasons.items())],
    }
    _store_answer(engine, source_id, push.sequence, answer)
    return answer


def _left_out(connection: Connection, places: Mapping[str, _Upsert]) -> dict[int, str]:
    """Position → why the staged record has no effect. ``places``: the place of each staged record."""
    kinds = {upsert.record.kind for upsert in places.values()}
    samples = staged_problems(connection, kinds, few=True, limit=_MAX_RECORDS).values()
    return {places[problem.place].position: problem.reason for sample in samples for problem in sample.first}


def _earlier_answer(connection: Connection, source_id: int, push: NumberedPush) -> dict[str, Any] | None:
    return answer_to_repetition(
        connection, source_id, push.sequence, push.digest, previous_sequence=push.previous_sequence
    )


def _compute_changes(
    connection: Connection, source_id: int, upserts: Collection[_RecordKey], removals: Collection[_RecordKey]
) -> _ChangedKeys:
    """Fills ``source_delta``."""
    kinds = {kind for kind, _ in (*upserts, *removals)}
    of_push = [tables for tables in REFRESH_TABLES if tables.kind in kinds]
    # A partial read adds and updates what was staged, and removes nothing.
    compute_source_changes(connection, [StagedRead(source_id=source_id, name="", verdict=PARTIAL)], of=of_push)
    removed = over_objects = 0
    for tables in of_push:
        keys = sorted(ids for kind, ids in removals if kind == tables.kind)
        if keys:
            # All rows of the removed keys.
            tables.run(connection, _REMOVE, {"keys": json_lists(keys), "source_id": source_id})
        removed += tables.run(connection, _REMOVED_KEYS).scalar_one()
        over_objects += tables.run(connection, _ADDED_OVER_OBJECTS).scalar_one()
    return _ChangedKeys(removed, over_objects)


def _count(rows: ChangeCounts, keys: _ChangedKeys, *, upserts: int, removals: int) -> dict[str, int]:
    """The counts of the answer. ``upserts`` and ``removals``: the numbers of keys in the push."""
    added, updated = rows.added - keys.over_objects, rows.updated + keys.over_objects
    return {
        "added": added,
        "updated": updated,
        "unchanged": upserts - added - updated,
        "removed": keys.removed,
        "absent": removals - keys.removed,
    }


def _store_push(
    connection: Connection, source_id: int, push: NumberedPush, rows: ChangeCounts, now_ms: int, *, only_pushed: bool
) -> int:
    """Stores the push and the state of its source. Returns the number of pushes so far."""
    values: dict[str, Any] = {"records": SOURCE.c.records + rows.added - rows.removed}
    if only_pushed:
        values |= {"last_verdict": COMPLETE, "last_reason": ""}
        values |= dict.fromkeys(("last_read_at", "last_good_at", "last_complete_at"), now_ms)
    connection.execute(update(SOURCE).where(SOURCE.c.source_id == source_id).values(values))
    return store_push(connection, source_id, push.sequence, push.digest, by=push.by, now_ms=now_ms)


def _store_answer(engine: Engine, source_id: int, sequence: int, answer: Mapping[str, object]) -> None:
    """Stores the answer, unless a later push was applied meanwhile."""
    with writing(engine) as connection:
        of_push = PUSH.c.source_id == source_id, PUSH.c.sequence == sequence
        connection.execute(update(PUSH).where(*of_push).values(answer=json.dumps(answer, ensure_ascii=False)))


def _drop_replaced(records: Sequence[Record]) -> tuple[dict[_RecordKey, _Upsert], dict[int, str]]:
    """Key → its last record, and index → why the record is replaced, of the others."""
    last: dict[_RecordKey, _Upsert] = {}
    replaced: dict[int, str] = {}
    for index, record in enumerate(records):
        key = _record_key(record)
        if key in last:
            replaced[last[key].position] = f"is replaced by upsert[{index}], which has the same key"
        last[key] = _Upsert(index, record)
    return last, replaced


def _record_key(record: Record) -> _RecordKey:
    """The kind, and the values of the columns that identify the record in its table."""
    values = VALUES_FROM_RECORD[record.kind](record)
    return record.kind, tuple(str(values[position]) for position in _KEY_POSITIONS[record.kind])
