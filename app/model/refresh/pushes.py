"""A push: changes that an application tells of, brought into the access model at once.

The rules: ``app/ingest/README.md``.

Everything is one transaction under the lock of refreshes: the sequence is compared, the source's kept records follow
the push, what was pushed is marked so that a read that is under way does not undo it, what has to be synced is noted,
the records are merged, and the answer is remembered. A push that was applied before changes nothing and is answered as
it was then.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Select,
    Table,
    bindparam,
    delete,
    insert,
    literal_column,
    select,
    text,
    update,
)

from app.access.records import Record
from app.clock import Clock, epoch_ms
from app.database.engine import is_sqlite, reading, writing
from app.database.statements import json_list, run
from app.model.refresh.changes import counted, total
from app.model.refresh.kept import carry_out_kept, compute_source_changes
from app.model.refresh.marks import PUSH, Key, mark, pushed_keys
from app.model.refresh.problems import ProblemList
from app.model.refresh.refresh import Refresh
from app.model.refresh.replace import STATE
from app.model.refresh.scratch import SCRATCH_TABLES, RowChange, ScratchTables
from app.model.refresh.staging import COMPLETE, PARTIAL, SOURCE, UNCONFIGURED_POSITION, StagedRead
from app.store.record_tables import VALUES_FROM_RECORD

_KEY_POSITIONS = {
    tables.kind: [tables.staged_columns.index(name) for name in pushed_keys(tables)] for tables in SCRATCH_TABLES
}
"""kind → where the values of a record's key stand among those of its row."""

# A cross join keeps SQLite from reading the source's table to look its rows up in the list.
_REMOVE = """
INSERT INTO {delta} ({columns}, change)
SELECT {found}, {remove}
FROM (@list(keys)) AS asked CROSS JOIN {source} s
WHERE {same} AND s.source_id = :source_id AND {which}
"""


PushWitness = Callable[[Connection, Mapping[str, int], int], None]
"""Writes down, in the transaction that applies a push, what it does: its counts, and how many with it there were to
its source."""


class SequenceConflictError(Exception):
    """Another push came before than the one that this one names."""

    def __init__(self, last: int) -> None:
        super().__init__(last)
        self.last = last
        """The sequence of the last push that was applied; 0: none was."""


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


@dataclass(frozen=True, slots=True)
class PushState:
    """How far the pushes to a source have come. Times are epoch milliseconds."""

    sequence: int
    """0: nothing was ever pushed."""
    pushed_at: int | None
    pushed_by: str
    """The fingerprint of the token that was shown."""
    pushes: int
    """How many were applied, ever."""


NEVER_PUSHED = PushState(0, None, "", 0)
"""What holds for a source to which nothing was ever pushed."""


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
    with reading(engine) as connection:
        # Repetitions wait for nobody.
        source_id = _configured_source(connection, pushed.source)
        answer = None if source_id is None else _former_answer(connection, source_id, pushed)
    if answer is not None:
        return answer
    if source_id is None:
        with writing(engine) as connection:
            source_id = _make_known(connection, pushed.source, configured)
    return _Applying(engine, pushed, source_id, only_pushed=only_pushed, clock=clock, witness=witness).apply()


def go_on_from(engine: Engine, source: str, sequence: int, *, by: str, clock: Clock) -> None:
    """What comes next is numbered from here on: after everything that a source says, told at once."""
    answer = json.dumps({"sequence": sequence})
    with writing(engine) as connection:
        source_id = connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == source)).scalar_one()
        _note_push(connection, source_id, sequence=sequence, answer=answer, by=by, now_ms=epoch_ms(clock()))


def note_still_in_force(engine: Engine, names: Collection[str], *, clock: Clock) -> None:
    """Notes of sources that are not read that what was pushed to them holds: it does not grow old."""
    now = epoch_ms(clock())
    with writing(engine) as connection:
        known = SOURCE.c.name.in_(list(names))
        connection.execute(update(SOURCE).where(known).values(last_verdict=COMPLETE, last_reason="", last_read_at=now))
        pushed_to = known, SOURCE.c.last_good_at.is_not(None)
        connection.execute(update(SOURCE).where(*pushed_to).values(last_good_at=now, last_complete_at=now))


def push_states(connection: Connection) -> dict[str, PushState]:
    """Source → how far the pushes to it have come, of those to which something was pushed."""
    query = select(SOURCE.c.name, PUSH).select_from(PUSH.join(SOURCE, SOURCE.c.source_id == PUSH.c.source_id))
    return {
        row.name: PushState(row.sequence, row.pushed_at, row.pushed_by, row.pushes) for row in connection.execute(query)
    }


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
        self._upserts, self._replaced = _last_of_each(pushed.upserts)
        self._removed = {(record.kind, _ids(record)) for record in pushed.removals}
        told = {kind for kind, _ in (*self._upserts, *self._removed)}
        self._kinds = [tables for tables in SCRATCH_TABLES if tables.kind in told]
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
            # A later push may have overtaken this one by now: then its answer is the one to remember.
            connection.execute(
                update(PUSH)
                .where(PUSH.c.source_id == self._source_id, PUSH.c.sequence == self._pushed.sequence)
                .values(answer=json.dumps(answer, ensure_ascii=False))
            )
        return answer

    def _place(self, index: int) -> str:
        return f"push {self._pushed.sequence}, upsert[{index}]"

    def _compare(self, connection: Connection) -> "_Away | None":
        """Fills the deltas, and says what goes; None: the push was applied before."""
        self._answer = _former_answer(connection, self._source_id, self._pushed)
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
        replaced = removed = 0
        for tables in self._kinds:
            made = [ids for kind, ids in self._upserts if kind == tables.kind]
            if made and connection.execute(_from_objects(tables.source), {"source_id": self._source_id}).first():
                # What a read made of the same key goes: what was pushed stands for it.
                replaced += self._remove(connection, tables, made, "s.origin <> ''")
            gone = [ids for kind, ids in self._removed if kind == tables.kind]
            removed += self._remove(connection, tables, gone, "1 = 1")
        return _Away(replaced, removed)

    def _remove(self, connection: Connection, tables: ScratchTables, keys: Sequence[Key], which: str) -> int:
        """Adds to the delta that records with these keys go; how many."""
        if not keys:
            return 0
        return run(
            connection,
            _REMOVE,
            {
                "keys": json_list(json.dumps(ids, ensure_ascii=False) for ids in sorted(keys)),
                "source_id": self._source_id,
            },
            delta=tables.delta.name,
            source=tables.source.name,
            columns=", ".join(tables.source_keys),
            found=", ".join(f"s.{name}" for name in tables.source_keys),
            remove=str(int(RowChange.REMOVE)),
            same=" AND ".join(
                f"s.{name} = @part(asked.value, {number})" for number, name in enumerate(pushed_keys(tables))
            ),
            which=which,
        ).rowcount

    def _keep(self, connection: Connection, away: "_Away") -> dict[str, int]:
        """Carries the deltas out, and writes down how far the source's pushes have come."""
        pushed, now = self._pushed, epoch_ms(self._clock())
        changes = []
        for tables in self._kinds:
            changes.append(counted(connection, tables))
            carry_out_kept(connection, tables, changes[-1])
        every = total(changes)
        added, updated = every.added - away.replaced, every.updated + away.replaced
        counts = {
            "added": added,
            "updated": updated,
            "unchanged": len(self._upserts) - added - updated,
            "removed": away.removed,
            "absent": len(self._removed) - away.removed,
        }
        mark(connection, self._source_id, {*self._upserts, *self._removed})
        values: dict[str, Any] = {"records": SOURCE.c.records + counts["added"] - counts["removed"]}
        if self._only_pushed:
            values |= {"last_verdict": COMPLETE, "last_reason": ""}
            values |= dict.fromkeys(("last_read_at", "last_good_at", "last_complete_at"), now)
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == self._source_id).values(values))
        number = _note_push(connection, self._source_id, sequence=pushed.sequence, answer="", by=pushed.by, now_ms=now)
        if self._witness is not None:
            self._witness(connection, counts, number)
        return counts


@dataclass(frozen=True, slots=True)
class _Away:
    """How many of the source's kept records go."""

    replaced: int
    """Those that a read made, and that were pushed now."""
    removed: int


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


def _note_push(connection: Connection, source_id: int, *, sequence: int, answer: str, by: str, now_ms: int) -> int:
    """Remembers a push as the last one; how many there were with it."""
    former = connection.execute(select(PUSH.c.pushes).where(PUSH.c.source_id == source_id)).scalar()
    connection.execute(delete(PUSH).where(PUSH.c.source_id == source_id))
    connection.execute(
        insert(PUSH).values(
            source_id=source_id,
            sequence=sequence,
            answer=answer,
            pushed_at=now_ms,
            pushed_by=by,
            pushes=(former or 0) + 1,
        )
    )
    return (former or 0) + 1


def _former_answer(connection: Connection, source_id: int, pushed: Pushed) -> dict[str, Any] | None:
    """What a push is answered that was applied before; None: it is to be applied. Raises ``SequenceConflictError``."""
    last = connection.execute(select(PUSH).where(PUSH.c.source_id == source_id)).first()
    sequence = 0 if last is None else last.sequence
    if last is not None and pushed.sequence <= sequence and (last.answer or pushed.sequence < sequence):
        answer: dict[str, Any] = json.loads(last.answer or "{}")
        return answer or {"sequence": sequence}
    if pushed.sequence > sequence and pushed.previous_sequence not in {None, sequence}:
        raise SequenceConflictError(sequence)
    # One whose process died between applying and answering is applied once more, which changes nothing.
    return None


def _configured_source(connection: Connection, name: str) -> int | None:
    query = select(SOURCE.c.source_id).where(SOURCE.c.name == name, SOURCE.c.position < UNCONFIGURED_POSITION)
    return connection.execute(query).scalar()


def _make_known(connection: Connection, name: str, configured: Sequence[str]) -> int:
    """Gives a source that was never read, or not for long, its position among the others; its id."""
    if not is_sqlite(connection):
        connection.execute(text("LOCK TABLE directory_state IN EXCLUSIVE MODE"))
    known = {row.name: row for row in connection.execute(select(SOURCE.c.name, SOURCE.c.source_id, SOURCE.c.position))}
    moved = False
    for position, other in enumerate(configured):
        if other in known and known[other].position != position:
            connection.execute(update(SOURCE).where(SOURCE.c.name == other).values(position=position))
            moved = True
    if moved:
        # Which records belong to which source is to be worked out anew.
        connection.execute(update(STATE).values(generation=STATE.c.generation + 1))
    if name in known:
        return int(known[name].source_id)
    values = {"name": name, "position": configured.index(name), "reads_begun": 0, "read_in_force": 0, "records": 0}
    made = insert(SOURCE).values(**values, last_verdict="", last_reason="").returning(SOURCE.c.source_id)
    return int(connection.execute(made).scalar_one())
