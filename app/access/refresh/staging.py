"""The records that a refresh reads, in temporary tables, and how each of its sources was read.

A complete read replaces what the source provided before; a partial one adds and updates; a failed one changes nothing.
A read of changes, or of a part, does so for the objects that it is about. Within one source the last record of a key
wins.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType, TracebackType
from typing import Self

from sqlalchemy import Connection, func, select
from sqlalchemy import delete as delete_from

from app.access.problems import PROBLEMS_KEPT, Problem, ProblemCause, ProblemList, ProblemSort
from app.access.record_tables import VALUES_FROM_RECORD, Values
from app.access.records import Record
from app.access.refresh.guard import Guard
from app.access.refresh.objects import aliases_of, objects_of
from app.access.refresh.push_state import About, is_marked
from app.access.refresh.session import RefreshSession
from app.access.refresh.sources import FAILED, Begun, StagedRead, begin_reads, make_state
from app.access.refresh.tables import REFRESH_TABLES, REPLACED, RefreshTables
from app.foundation.database.statements import json_list, run

_BATCH_ROWS = 5_000
_BATCH_CHARACTERS = 4 * 1024 * 1024
"""Records are written to the database when there are so many, or their payloads are so long."""

_OBJECTS_AT_A_TIME = 500
"""The same for objects that are gone or malformed."""

NO_GUARDS: Mapping[str, Guard] = MappingProxyType({})
"""No source has a guard of its own."""

NOTHING_LEFT_OUT: Mapping[str, About] = MappingProxyType({})
"""Every source is read completely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowRead:
    """Details of a finished read; the fields of ``StagedRead``."""

    answered: str = ""
    cursor: str = ""
    digest: str = ""
    except_malformed: bool = False
    caught_up: bool = False
    """Whether ``Refresh.caught_up`` has added what changed meanwhile."""
    seconds: float = 0
    cursor_refused: str = ""
    login_refused: bool = False


AS_A_WHOLE = HowRead()
"""A complete read of a source that has no cursors."""


class Intake:
    """The reads of one refresh; use it in a ``with`` statement."""

    def __init__(self, session: RefreshSession) -> None:
        self._session = session
        self._waiting: dict[str, list[Values]] = {tables.kind: [] for tables in REFRESH_TABLES}
        self._waiting_rows = 0
        self._waiting_characters = 0
        self._begun: dict[int, Begun] = {}
        self._gone: dict[int, set[str]] = {}
        """Position → objects that are gone, until they are written."""
        self._malformed: dict[int, dict[str, bool]] = {}
        """Position → malformed objects, and whether they are disabled, until they are written."""
        self._follows: dict[int, Mapping[str, int]] = {}
        """Position → the last numbers of the staged records when changes began to follow."""
        self._open: dict[int, StagedRead] = {}
        """Position in the configuration → the read of that source."""
        self._ended: dict[int, StagedRead] = {}
        self._guard: Guard | None = None
        self._guards: dict[int, Guard] = {}
        self._abouts: dict[int, About] = {}
        self._positions: dict[int, int] = {}
        """Source → its position in the configuration, read or not."""

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.__exit__(kind, error, trace)

    def begin(
        self,
        names: Sequence[str],
        *,
        only: Collection[str] | None = None,
        guard: Guard | None = None,
        guards: Mapping[str, Guard] = NO_GUARDS,
        abouts: Mapping[str, About] = NOTHING_LEFT_OUT,
    ) -> None:
        """Sets the sources, in the order of the configuration; names are unique. All of them will be read, or ``only``
        some: the others stay as they are.

        ``guard`` guards them, alone and together, except those that have one in ``guards``. The reads of sources in
        ``abouts`` are about that alone.
        """
        with self._session.change() as connection:
            make_state(connection)
            begun = begin_reads(connection, names, names if only is None else only)
        self._begun = dict(enumerate(begun))
        self._positions = {one.source_id: position for position, one in self._begun.items()}
        self._open = {
            position: StagedRead(
                source_id=begun.source_id,
                name=names[position],
                position=position,
                number=begun.number,
                records=0,
                verdict=FAILED,
                reason="",
            )
            for position, begun in self._begun.items()
            if begun.number
        }
        self._guard = guard
        self._abouts = {read.source_id: abouts[read.name] for read in self._open.values() if read.name in abouts}
        self._guards = {read.source_id: guards[read.name] for read in self._open.values() if read.name in guards}

    def begun(self, position: int) -> Begun:
        """The state of the source at that position when its read began."""
        return self._begun[position]

    def objects_of(
        self, position: int, organization_ids: Collection[str], user_ids: Collection[str]
    ) -> Sequence[tuple[str, str]] | None:
        """The objects of the source at that position that provided records of these; None: they are unknown."""
        source_id = self._begun[position].source_id
        with self._session.snapshot() as connection:
            # It is not known to which objects the pushed records belong.
            if is_marked(connection, source_id):
                return None
            return objects_of(connection, source_id, organization_ids, user_ids)

    def aliases_of(self, user_ids: Collection[str]) -> Sequence[str]:
        """The aliases of these users in the access model."""
        with self._session.snapshot() as connection:
            return aliases_of(connection, user_ids)

    def open_source(self, source_id: int) -> None:
        """Stages what is added from here on for this source without a read. For ``apply_changes``."""
        self._open = {0: StagedRead(source_id, name="", position=0, number=0, records=0, verdict=FAILED, reason="")}

    def add(self, record: Record, place: str, *, origin: str = "", rule: str = "", position: int | None = None) -> None:
        """Stages a record of the source at that position; None: of the first that has not ended yet.

        ``origin``: the object that it was made from (``app.access.source_tables.origin_text``), ``rule``: the rule
        that made it; both are empty if the source has no objects.
        """
        if position is None:
            position = next(iter(self._open))
        if self._gone and origin in self._gone.get(position, ()):
            self._flush()
        kind = record.kind
        values = VALUES_FROM_RECORD[kind](record)
        self._waiting[kind].append((*values, self._open[position].source_id, origin, rule, place))
        self._waiting_rows += 1
        # Payloads are the only long values of a row; they are next to last.
        payload = values[-2]
        if isinstance(payload, str):
            self._waiting_characters += len(payload)
        if self._waiting_rows >= _BATCH_ROWS or self._waiting_characters >= _BATCH_CHARACTERS:
            self._flush()

    def gone(self, origin: str, *, position: int | None = None) -> None:
        """Removes an object in a read of changes, with what was added of it before."""
        gone = self._gone.setdefault(self._read_at(position).position, set())
        gone.add(origin)
        if len(gone) >= _OBJECTS_AT_A_TIME:
            self._flush()

    def malformed(self, origin: str, *, disabled: bool, position: int | None = None) -> None:
        """Keeps what a malformed object provided before, ``disabled`` if the object is."""
        malformed = self._malformed.setdefault(self._read_at(position).position, {})
        malformed[origin] = malformed.get(origin, False) or disabled
        if len(malformed) >= _OBJECTS_AT_A_TIME:
            self._flush()

    def again(self, position: int) -> None:
        """Drops what was added of the source at that position: it is read again from the beginning."""
        self._flush()
        self._follows.pop(position, None)
        with self._session.scratch() as connection:
            drop_staged(connection, self._open[position].source_id)

    def follow(self, position: int) -> None:
        """All of the source was added; what is added of it from here on are changes since."""
        self._flush()
        with self._session.scratch() as connection:
            self._follows[position] = _last_staged(connection)

    def caught_up(self, position: int, *, usable: bool) -> None:
        """The changes that ``follow`` announced were added as well; unless they are ``usable``, they are dropped."""
        self._flush()
        source_id, before = self._open[position].source_id, self._follows.pop(position)
        with self._session.scratch() as connection:
            if usable:
                _note_reread_objects(connection, source_id, before)
                _supersede(connection, source_id, before)
            else:
                drop_staged(connection, source_id, after=before)

    def end(
        self,
        *,
        records: int,
        verdict: str,
        reason: str,
        malformed: int = 0,
        position: int | None = None,
        how: HowRead = AS_A_WHOLE,
    ) -> None:
        """Ends the read of the source at that position, as ``add``; the records of a failed read are dropped."""
        self._flush()
        details = {one.name: getattr(how, one.name) for one in fields(how)}
        read = replace(
            self._read_at(position), records=records, malformed=malformed, verdict=verdict, reason=reason, **details
        )
        del self._open[read.position]
        self._ended[read.position] = read
        with self._session.scratch() as connection:
            if verdict == FAILED:
                drop_staged(connection, read.source_id)
            elif how.answered:
                _note_reread_objects(connection, read.source_id, NOTHING_STAGED)
                run(connection, _KEEP_MALFORMED, {"source_id": read.source_id})

    def _read_at(self, position: int | None) -> StagedRead:
        return self._open[next(iter(self._open)) if position is None else position]

    def _reads(self) -> list[StagedRead]:
        """The finished reads, in the order of the configuration."""
        return [read for _, read in sorted(self._ended.items())]

    def _flush(self) -> None:
        if self._waiting_rows:
            self._session.stage(self._waiting)
            for values in self._waiting.values():
                values.clear()
            self._waiting_rows = self._waiting_characters = 0
        for position, gone in self._gone.items():
            with self._session.scratch() as connection:
                _note_gone(connection, self._open[position].source_id, gone, self._follows.get(position))
        self._gone.clear()
        for position, malformed in self._malformed.items():
            source_id = self._open[position].source_id
            rows = [{"source_id": source_id, "origin": one, "disabled": off} for one, off in sorted(malformed.items())]
            with self._session.scratch() as connection:
                run(connection, _NOTE_MALFORMED, rows)
        self._malformed.clear()


# Single objects of a read.

NOTHING_STAGED: Mapping[str, int] = MappingProxyType({})
"""Nothing was staged before."""

_NOTE_REREAD = """
INSERT INTO refresh_reread_object (source_id, origin)
SELECT DISTINCT source_id, origin FROM {staged} WHERE source_id = :source_id AND seq > :after
ON CONFLICT DO NOTHING
"""

_NOTE_GONE = """
INSERT INTO refresh_reread_object (source_id, origin)
SELECT CAST(:source_id AS INTEGER), value FROM (@list(origins)) AS gone WHERE true
ON CONFLICT DO NOTHING
"""

_NOTE_MALFORMED = """
INSERT INTO refresh_malformed_object (source_id, origin, disabled) VALUES (:source_id, :origin, :disabled)
ON CONFLICT (source_id, origin) DO UPDATE SET disabled = refresh_malformed_object.disabled OR excluded.disabled
"""

# A read of changes does not replace malformed objects: what else they provided before is kept.
_KEEP_MALFORMED = """
DELETE FROM refresh_reread_object WHERE source_id = :source_id
AND origin IN (SELECT origin FROM refresh_malformed_object WHERE source_id = :source_id)
"""

_DROP = "DELETE FROM {staged} WHERE source_id = :source_id AND seq > :after"

_DROP_OF_OBJECTS = f"{_DROP} AND origin IN (@list(origins))"

_DROP_REREAD = """
DELETE FROM {staged} WHERE source_id = :source_id AND seq <= :before
AND origin IN (SELECT origin FROM refresh_reread_object WHERE source_id = :source_id)
"""

_FORGET_REREAD = "DELETE FROM refresh_reread_object WHERE source_id = :source_id"

_FORGET_MALFORMED = "DELETE FROM refresh_malformed_object WHERE source_id = :source_id"


def drop_staged(connection: Connection, source_id: int, *, after: Mapping[str, int] = NOTHING_STAGED) -> None:
    """Drops what was staged for a source; ``after``: kind → only records behind this number."""
    for tables in REFRESH_TABLES:
        tables.run(connection, _DROP, {"source_id": source_id, "after": after.get(tables.kind, 0)})
    run(connection, _FORGET_REREAD, {"source_id": source_id})
    if not after:
        run(connection, _FORGET_MALFORMED, {"source_id": source_id})


def _note_reread_objects(connection: Connection, source_id: int, after: Mapping[str, int]) -> None:
    """Stores the objects whose records were staged; ``after``: kind → only records behind this number."""
    for tables in REFRESH_TABLES:
        tables.run(connection, _NOTE_REREAD, {"source_id": source_id, "after": after.get(tables.kind, 0)})


def _note_gone(
    connection: Connection, source_id: int, origins: Collection[str], after: Mapping[str, int] | None
) -> None:
    """Stores objects that are gone, and drops what was staged of them before, behind these numbers."""
    gone = {"source_id": source_id, "origins": json_list(sorted(origins))}
    for tables in REFRESH_TABLES:
        tables.run(connection, _DROP_OF_OBJECTS, {**gone, "after": (after or {}).get(tables.kind, 0)})
    run(connection, _NOTE_GONE, gone)


def _supersede(connection: Connection, source_id: int, before: Mapping[str, int]) -> None:
    """Drops, of what was staged for a source up to these numbers, the objects that were read again behind them."""
    for tables in REFRESH_TABLES:
        tables.run(connection, _DROP_REREAD, {"source_id": source_id, "before": before.get(tables.kind, 0)})
    # The rest is a complete read.
    run(connection, _FORGET_REREAD, {"source_id": source_id})


def _last_staged(connection: Connection) -> Mapping[str, int]:
    """Kind → the number of the last staged record."""
    return {
        tables.kind: connection.execute(select(func.coalesce(func.max(tables.staged.c.seq), 0))).scalar_one()
        for tables in REFRESH_TABLES
    }


# Duplicates within a source.


def drop_duplicates(session: RefreshSession, names: Mapping[int, str], problems: ProblemList) -> None:
    """Leaves the last of all staged records of a key and source, and reports the others.

    From here on the staged tables that hold anything are indexed.
    """
    with session.scratch() as connection:
        for tables in REFRESH_TABLES:
            if tables.kind not in session.kinds_staged:
                continue
            session.index_staged(tables)
            session.analyze(tables.staged)
            if tables.run(connection, _FIND_REPEATED).rowcount:
                _drop_duplicates_of_kind(connection, tables, names, problems)
                connection.execute(delete_from(REPLACED))


# The index is read once, and the records that were staged several times are looked up.
_FIND_REPEATED = """
INSERT INTO refresh_replaced (seq, last_seq)
SELECT t.seq, r.last_seq
FROM (SELECT {source_keys}, MAX(seq) AS last_seq FROM {staged} GROUP BY {source_keys} HAVING COUNT(*) > 1) r
JOIN {staged} t ON {source_keys:t=r}
WHERE t.seq < r.last_seq
"""


def _drop_duplicates_of_kind(
    connection: Connection, tables: RefreshTables, names: Mapping[int, str], problems: ProblemList
) -> None:
    staged, last = tables.staged, tables.staged.alias("last")
    replaced = REPLACED.join(staged, staged.c.seq == REPLACED.c.seq)
    # Which source's records come first when several are read side by side is chance.
    by_source = select(staged.c.source_id, func.count().label("records")).select_from(replaced)
    by_source = by_source.group_by(staged.c.source_id).order_by(staged.c.source_id)
    counts = {row.source_id: row.records for row in connection.execute(by_source)}
    sample: list[Problem] = []
    for source_id in counts:
        sampled = (
            select(staged, last.c.place.label("last_place"))
            .select_from(replaced.join(last, last.c.seq == REPLACED.c.last_seq))
            .where(staged.c.source_id == source_id)
            .order_by(staged.c.seq)
            .limit(PROBLEMS_KEPT)
        )
        sample += [
            Problem(
                ProblemSort.DUPLICATE,
                names[source_id],
                row.place,
                ProblemCause.REPLACED,
                kind=tables.kind,
                key=tuple(getattr(row, one.attribute) for one in tables.record_kind.keys),
                detail=(row.last_place,),
                origin=row.origin,
            )
            for row in connection.execute(sampled)
        ]
    connection.execute(delete_from(staged).where(staged.c.seq.in_(select(REPLACED.c.seq))))
    problems.add_counted(ProblemSort.DUPLICATE, {names[one]: count for one, count in counts.items()}, sample)
