"""A push: changes that an application tells of, brought into the access model at once.

The rules: ``app/service/push/README.md``.

Everything is one transaction under the lock of refreshes: the sequence is compared, the source's kept records follow
the push, what was pushed is marked so that a read that is under way does not undo it, what has to be synced is noted,
the records are merged, and the answer is remembered. A push that was applied before changes nothing and is answered as
it was then.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import (
    Connection,
    Engine,
    Select,
    Table,
    bindparam,
    insert,
    literal_column,
    select,
    text,
    update,
)

from app.access.problems import ProblemList
from app.access.record_tables import VALUES_FROM_RECORD
from app.access.records import Record
from app.access.refresh.push_state import Key, Numbered, former_answer, mark, note_push, remember_answer
from app.access.refresh.refresh import Refresh
from app.access.refresh.sources import (
    COMPLETE,
    PARTIAL,
    SOURCE,
    STATE,
    UNCONFIGURED_POSITION,
    SourceCounts,
    StagedRead,
    compute_source_changes,
    note_change,
    order_of_sources,
    total,
)
from app.access.refresh.tables import REFRESH_TABLES, RefreshTables
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import is_sqlite, reading, writing
from app.foundation.database.statements import json_list

_KEY_POSITIONS = {
    tables.kind: [tables.staged_columns.index(name) for name in tables.pushed_keys] for tables in REFRESH_TABLES
}
"""kind → the positions of a record's key among the values of its row."""

# A cross join stops SQLite from reading all rows of the source to look them up in the list.
_REMOVE = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove}
FROM (SELECT value AS key FROM (@list(keys)) AS listed) AS asked CROSS JOIN {source} s
WHERE ({pushed_keys:s}) = ({pushed_parts:asked}) AND s.source_id = :source_id
"""

_REMOVED_KEYS = """
SELECT COUNT(*) FROM (SELECT DISTINCT {written_keys} FROM {source_delta} WHERE change = {remove}) AS gone
"""

_ADDED_OVER_OTHERS = """
SELECT COUNT(*) FROM {source_delta} d WHERE d.change = {add}
AND EXISTS (SELECT 1 FROM {source} s WHERE {written_keys:s=d} AND s.origin <> '')
"""


PushWitness = Callable[[Connection, Mapping[str, int], int], None]
"""Writes down, in the transaction that applies a push, what it does: its counts, and how many with it there were to
its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What is to be applied, and who says so."""

    source: str
    sequence: int
    previous_sequence: int | None
    upserts: Sequence[Record]
    removals: Sequence[Record]
    """Of these the key alone counts."""
    by: str
    """The fingerprint of the token that was shown."""


def apply_push(
    engine: Engine,
    pushed: Pushed,
    *,
    configured: Sequence[str],
    only_pushed: bool,
    clock: Clock,
    witness: PushWitness | None = None,
) -> dict[str, Any]:
    """Applies a push and gives its answer; one that was applied before is answered as it was then.

    ``configured`` are the names of all sources in their order; ``only_pushed``: the source is not read besides.
    Raises ``SequenceConflictError``.
    """
    number = numbered(pushed)
    with reading(engine) as connection:
        # Repetitions wait for nobody.
        source_id = _configured_source(connection, pushed.source)
        answer = None if source_id is None else former_answer(connection, source_id, number)
    if answer is not None:
        return answer
    if source_id is None:
        with writing(engine) as connection:
            source_id = _make_known(connection, pushed.source, configured)
    return _Applying(engine, pushed, source_id, only_pushed=only_pushed, clock=clock, witness=witness).apply()


def note_still_in_force(engine: Engine, names: Collection[str], *, clock: Clock) -> None:
    """Notes of sources that are not read that what was pushed to them holds: it does not grow old."""
    now = epoch_ms(clock())
    with writing(engine) as connection:
        known = SOURCE.c.name.in_(list(names))
        connection.execute(update(SOURCE).where(known).values(last_verdict=COMPLETE, last_reason="", last_read_at=now))
        pushed_to = known, SOURCE.c.last_good_at.is_not(None)
        connection.execute(update(SOURCE).where(*pushed_to).values(last_good_at=now, last_complete_at=now))


class _Applying:
    """One push on its way into the access model."""

    def __init__(
        self,
        engine: Engine,
        pushed: Pushed,
        source_id: int,
        *,
        only_pushed: bool,
        clock: Clock,
        witness: PushWitness | None,
    ) -> None:
        self._engine = engine
        self._pushed = pushed
        self._source_id = source_id
        self._only_pushed = only_pushed
        self._clock = clock
        self._witness = witness
        self._numbered = numbered(pushed)
        self._upserts, self._replaced = _last_of_each(pushed.upserts)
        self._removed = {(record.kind, _ids(record)) for record in pushed.removals}
        told = {kind for kind, _ in (*self._upserts, *self._removed)}
        self._kinds = [tables for tables in REFRESH_TABLES if tables.kind in told]
        self._answer: dict[str, Any] | None = None

    def apply(self) -> dict[str, Any]:
        with Refresh(
            self._engine, clock=self._clock, problems=ProblemList(), note_touched=True, is_small=True
        ) as refreshing:
            refreshing.open_source(self._source_id)
            for index, record in self._upserts.values():
                refreshing.add(record, self._place(index))
            applied = refreshing.apply_changes(self._compare, self._keep)
        if applied is None:
            return self._answer or {}
        places = {self._place(index): index for index, _ in self._upserts.values()}
        reasons = self._replaced | {places[one.place]: one.reason for one in applied.left_out if one.place in places}
        answer = {
            "revision": applied.replaced.revision,
            "sequence": self._pushed.sequence,
            "counts": applied.kept,
            "leftOut": [{"index": index, "reason": reason} for index, reason in sorted(reasons.items())],
        }
        with writing(self._engine) as connection:
            remember_answer(connection, self._source_id, self._numbered, answer)
        return answer

    def _place(self, index: int) -> str:
        return f"push {self._pushed.sequence}, upsert[{index}]"

    def _compare(self, connection: Connection) -> "_Found | None":
        """Fills the deltas, and counts; None: the push was applied before."""
        self._answer = former_answer(connection, self._source_id, self._numbered)
        if self._answer is not None:
            return None
        read = StagedRead(
            source_id=self._source_id,
            name=self._pushed.source,
            position=0,
            number=0,
            records=len(self._upserts),
            verdict=PARTIAL,
            reason="",
        )
        # What was staged is added and updated, and nothing else is gone: what a partial read does.
        compute_source_changes(connection, [read], [], of=self._kinds)
        over = removed = 0
        for tables in self._kinds:
            self._remove(connection, tables)
            removed += tables.run(connection, _REMOVED_KEYS).scalar_one()
            if connection.execute(_from_objects(tables.source), {"source_id": self._source_id}).first():
                over += tables.run(connection, _ADDED_OVER_OTHERS).scalar_one()
        return _Found(over, removed)

    def _remove(self, connection: Connection, tables: RefreshTables) -> None:
        """Adds to the delta that all rows of the removed keys go."""
        keys = [ids for kind, ids in self._removed if kind == tables.kind]
        if not keys:
            return
        listed = json_list(json.dumps(ids, ensure_ascii=False) for ids in sorted(keys))
        tables.run(connection, _REMOVE, {"keys": listed, "source_id": self._source_id})

    def _keep(self, connection: Connection, found: "_Found", changes: SourceCounts) -> dict[str, int]:
        """Stores the state of the source after the push."""
        now = epoch_ms(self._clock())
        every = total(changes)
        added, updated = every.added - found.over, every.updated + found.over
        counts = {
            "added": added,
            "updated": updated,
            "unchanged": len(self._upserts) - added - updated,
            "removed": found.removed,
            "absent": len(self._removed) - found.removed,
        }
        mark(connection, self._source_id, {*self._upserts, *self._removed}, only_pushed=self._only_pushed)
        values: dict[str, Any] = {"records": SOURCE.c.records + every.added - every.removed}
        if self._only_pushed:
            values |= {"last_verdict": COMPLETE, "last_reason": ""}
            values |= dict.fromkeys(("last_read_at", "last_good_at", "last_complete_at"), now)
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == self._source_id).values(values))
        number = note_push(connection, self._source_id, self._numbered, by=self._pushed.by, now_ms=now)
        if self._witness is not None:
            self._witness(connection, counts, number)
        return counts


@dataclass(frozen=True, slots=True)
class _Found:
    """What a push changes, in keys rather than rows."""

    over: int
    """How many keys are pushed for the first time that objects of the source give already."""
    removed: int


def numbered(pushed: Pushed) -> Numbered:
    """The sequence of a push, with a digest of its content."""
    said = [
        [(one.kind, VALUES_FROM_RECORD[one.kind](one)) for one in pushed.upserts],
        [(one.kind, _ids(one)) for one in pushed.removals],
    ]
    digest = blake2b(orjson.dumps(said), digest_size=16).hexdigest()
    return Numbered(pushed.sequence, pushed.previous_sequence, digest)


def _last_of_each(
    records: Sequence[Record],
) -> tuple[dict[tuple[str, Key], tuple[int, Record]], dict[int, str]]:
    """Key → the last record of it, with its index; and the indexes of those before, with what is said of them."""
    kept: dict[tuple[str, Key], tuple[int, Record]] = {}
    replaced: dict[int, str] = {}
    for index, record in enumerate(records):
        key = record.kind, _ids(record)
        if key in kept:
            replaced[kept[key][0]] = f"is replaced by upsert[{index}], which has the same key"
        kept[key] = index, record
    return kept, replaced


def _ids(record: Record) -> Key:
    """The values of the columns that identify a record in its table."""
    values = VALUES_FROM_RECORD[record.kind](record)
    return tuple(str(values[position]) for position in _KEY_POSITIONS[record.kind])


@cache
def _from_objects(source: Table) -> Select[int]:
    """Whether a source gives any records that were made from objects: what is pushed never is."""
    made = source.c.origin != literal_column("''")
    return select(source.c.source_id).where(source.c.source_id == bindparam("source_id"), made).limit(1)


def _configured_source(connection: Connection, name: str) -> int | None:
    query = select(SOURCE.c.source_id).where(SOURCE.c.name == name, SOURCE.c.position < UNCONFIGURED_POSITION)
    return connection.execute(query).scalar()


def _make_known(connection: Connection, name: str, configured: Sequence[str]) -> int:
    """Gives a source that was never read, or not for long, its position among the others; its id."""
    if not is_sqlite(connection):
        connection.execute(text("LOCK TABLE directory_state IN EXCLUSIVE MODE"))
    known = {row.name: row for row in connection.execute(select(SOURCE.c.name, SOURCE.c.source_id, SOURCE.c.position))}
    before = order_of_sources(connection)
    for position, other in enumerate(configured):
        if other in known and known[other].position != position:
            connection.execute(update(SOURCE).where(SOURCE.c.name == other).values(position=position))
            note_change(connection)
    if [source_id for source_id in order_of_sources(connection) if source_id in before] != before:
        connection.execute(update(STATE).values(merge_all=True))
    if name in known:
        return int(known[name].source_id)
    values = {"name": name, "position": configured.index(name), "reads_begun": 0, "read_in_force": 0, "records": 0}
    made = insert(SOURCE).values(**values, last_verdict="", last_reason="").returning(SOURCE.c.source_id)
    return int(connection.execute(made).scalar_one())
