"""The records of the sources, as last read, and how each source was read.

A change is computed into ``source_delta`` and carried out in the same transaction. The records of a source that is no
longer configured stay until an operator forgets it (``Refresh.forget``). A source's name is its path unless it has one,
so another path is another source: nobody may lose access because a setting was changed.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import (
    Connection,
    Table,
    and_,
    bindparam,
    case,
    exists,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy import delete as delete_from

from app.access.record_tables import core_table
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import (
    MALFORMED_OBJECT,
    REFRESH_TABLES,
    REFRESH_TABLES_OF_KIND,
    ChangeCounts,
    RefreshTables,
    RowChange,
    indexed_afterwards,
)
from app.access.source_tables import DirectorySourceRow, DirectoryStateRow
from app.access.tables import ModelUserAliasRow
from app.foundation.database.engine import execute_raw
from app.foundation.database.statements import json_list
from app.foundation.text import quoted

SOURCE: Table = core_table(DirectorySourceRow)
STATE: Table = core_table(DirectoryStateRow)
MODEL_ALIAS: Table = core_table(ModelUserAliasRow)

COMPLETE, PARTIAL, FAILED = "complete", "partial", "failed"
"""Verdicts, as in ``app.directory``."""

CHANGES, PART = "changes", "part"
"""What a read was about that was not of everything, as in ``app.directory``."""

UNCONFIGURED_POSITION = 1_000_000
"""The position of the first source that is no longer configured: these come last."""


class SourceError(ValueError):
    """A request about a source is not possible; the message is one line for operators."""


Losses = Mapping[str, tuple[int, int | None]]
"""kind → how many keys would go, and of how many (None: not counted); only kinds of which any would."""


@dataclass(frozen=True, slots=True)
class StagedRead:
    """A finished read of a source."""

    source_id: int
    name: str
    position: int
    number: int
    """Its number among the reads of this source."""
    records: int
    """How many records it provided, duplicates included."""
    verdict: str
    reason: str
    malformed: int = 0
    """How many of its records were malformed."""
    answered: str = ""
    """``CHANGES`` or ``PART``; empty: everything."""
    cursor: str = ""
    """The cursor for the next read of changes; empty: only complete reads are possible."""
    digest: str = ""
    """Of the settings under which it was read."""
    except_malformed: bool = False
    """Of a partial read: whether only malformed objects make it partial. What they provided before is kept."""
    caught_up: bool = False
    """Whether it includes what changed while everything was read."""
    seconds: float = 0
    """How long it took."""
    overtaken: bool = False
    """Whether another read, which began later, is in force already."""
    refused: str = ""
    """Why it is not used as complete although the source provided everything; empty: it is."""
    cursor_refused: str = ""
    """Why the source did not accept the first cursor; empty: it did."""
    login_refused: bool = False
    """Whether it failed because the source refused the name or the password."""
    losses: Losses = field(default_factory=dict)
    """What it removes, or would remove if it were not refused."""

    @property
    def tells_what_is_gone(self) -> bool:
        """Whether what it does not provide is gone, except what malformed objects provided before."""
        return self.verdict == COMPLETE or self.except_malformed


@dataclass(frozen=True, slots=True)
class Begun:
    """A read that begins, with the state of the source. Times are epoch milliseconds."""

    source_id: int
    number: int
    """Its number among the reads of this source; 0: it is not read."""
    cursor: str
    """The cursor for reads of changes; empty: only complete reads are possible."""
    settings_digest: str
    """Of the settings under which the cursor was stored."""
    last_full_at: int | None


# Built once: that takes longer than to execute them.
_HAS_STATE = select(STATE.c.state_id)
_NAMES = select(SOURCE.c.name)
_OF_NAME = select(SOURCE).where(SOURCE.c.name == bindparam("of_name"))
_BEGINS = update(SOURCE).where(SOURCE.c.name == bindparam("of_name")).values(reads_begun=SOURCE.c.reads_begun + 1)
_POSITIONS = select(SOURCE.c.source_id, SOURCE.c.position).order_by(SOURCE.c.name)
_ORDER = select(SOURCE.c.source_id).where(SOURCE.c.records > 0).order_by(SOURCE.c.position, SOURCE.c.source_id)
_NOT_CONFIGURED = SOURCE.c.source_id.not_in(bindparam("configured", expanding=True))
_EMPTY = select(SOURCE.c.source_id).where(_NOT_CONFIGURED, SOURCE.c.records == 0)
_RETAINED = select(SOURCE.c.name).where(_NOT_CONFIGURED, SOURCE.c.records > 0).order_by(SOURCE.c.name)
_CHANGED = update(STATE).values(changes=STATE.c.changes + 1)


def make_state(connection: Connection) -> None:
    """Adds the row of ``directory_state`` if it is missing."""
    if connection.execute(_HAS_STATE).first() is None:
        connection.execute(insert(STATE).values(state_id=1, merge_all=False, changes=0))


def note_change(connection: Connection) -> None:
    """Counts a transaction that changes records of sources, or the order of the sources."""
    connection.execute(_CHANGED)


def begin_reads(connection: Connection, names: Sequence[str], read: Collection[str]) -> list[Begun]:
    """Adds new sources, and numbers the reads that begin now, which are those of the sources to ``read``."""
    begun = []
    known = set(connection.execute(_NAMES).scalars())
    for position, name in enumerate(names):
        if name not in known:
            values = {"name": name, "position": position, "reads_begun": 0, "read_in_force": 0, "records": 0}
            connection.execute(insert(SOURCE).values(**values, last_verdict="", last_reason=""))
        if name in read:
            connection.execute(_BEGINS, {"of_name": name})
        row = connection.execute(_OF_NAME, {"of_name": name}).one()
        begun.append(
            Begun(
                source_id=row.source_id,
                number=row.reads_begun if name in read else 0,
                cursor=row.cursor,
                settings_digest=row.settings_digest,
                last_full_at=row.last_full_at,
            )
        )
    return begun


def sources_to_forget(connection: Connection, configured: Collection[int]) -> list[int]:
    """The sources that are no longer configured and have no records."""
    return list(connection.execute(_EMPTY, {"configured": list(configured)}).scalars())


def retained_source(connection: Connection, name: str) -> int:
    """The id of a source that is no longer configured. Raises ``SourceError`` if there is none of that name."""
    row = connection.execute(select(SOURCE.c.source_id, SOURCE.c.position).where(SOURCE.c.name == name)).first()
    if row is None:
        retained = connection.execute(
            select(SOURCE.c.name).where(SOURCE.c.position >= UNCONFIGURED_POSITION).order_by(SOURCE.c.name)
        ).scalars()
        others = ", ".join(retained) or "none"
        raise SourceError(f"nothing is in force of a source called {quoted(name)}; no longer configured: {others}")
    return int(row.source_id)


def unconfigured_sources(connection: Connection, configured: Collection[int]) -> tuple[str, ...]:
    """The names of the sources that have records but are not configured."""
    return tuple(connection.execute(_RETAINED, {"configured": list(configured)}).scalars())


def order_of_sources(connection: Connection) -> list[int]:
    """The sources that have records, the most authoritative first."""
    return list(connection.execute(_ORDER).scalars())


# What the reads change.

_FILLED = """
SELECT '{kind}' AS kind, EXISTS (SELECT 1 FROM {staged}) AS is_staged, EXISTS (SELECT 1 FROM {source}) AS is_stored
"""

# ``+ 0`` stops SQLite from sorting again: it distrusts the order of an index below a column that it knows to be equal.
_CHANGED_ROWS = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:t}, CASE WHEN s.source_id IS NULL THEN {add} ELSE {update} END
FROM {staged} t LEFT JOIN {source} s ON {source_keys:s=t}
WHERE t.source_id + 0 IN (@numbers(source_ids))
AND (s.source_id IS NULL OR ({source_content:t}) IS DISTINCT FROM ({source_content:s}))
ORDER BY {source_keys:t}
"""

# Each staged record is stored or added, and none is staged twice: so counting, which is fast, shows if any is missing.
_MISSING = """
SELECT (SELECT COUNT(*) FROM {source} WHERE source_id IN (@numbers(source_ids)))
  - (SELECT COUNT(*) FROM {staged} WHERE source_id IN (@numbers(source_ids)))
  + (SELECT COUNT(*) FROM {source_delta} WHERE change = {add} AND source_id IN (@numbers(source_ids)))
"""

_MISSING_ROWS = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove} FROM {source} s
WHERE s.source_id IN (@numbers(source_ids)) AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {source_keys:t=s})
AND NOT EXISTS (SELECT 1 FROM refresh_malformed_object m WHERE m.source_id = s.source_id AND m.origin = s.origin)
"""

# Objects that were read again are few; each is looked up by its source and origin.
_MISSING_ROWS_OF_REREAD_OBJECTS = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove} FROM refresh_reread_object o CROSS JOIN {source} s
WHERE o.source_id IN (@numbers(source_ids)) AND s.source_id = o.source_id AND s.origin = o.origin AND s.origin <> ''
AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {source_keys:t=s})
"""


def compute_source_changes(
    connection: Connection,
    reads: Sequence[StagedRead],
    forgotten: Collection[int],
    *,
    of: Sequence[RefreshTables] = REFRESH_TABLES,
) -> None:
    """Fills ``source_delta`` with what the reads change in the sources' records; ``of`` these kinds."""
    usable = [read for read in reads if read.verdict != FAILED]
    complete = [read for read in usable if read.tells_what_is_gone]
    malformed = [read.source_id for read in usable if read.malformed]
    staged = {"source_ids": json_list(read.source_id for read in usable)}
    replaced = [read.source_id for read in complete if not read.answered] + list(forgotten)
    reread = [read.source_id for read in complete if read.answered]
    if not of:
        return
    execute_raw(connection, [tables.text("DELETE FROM {source_delta}") for tables in of])
    if malformed:
        for tables in of:
            if tables.may_be_disabled:
                _stage_disabled(connection, tables, malformed)
    filled = " UNION ALL ".join(tables.text(_FILLED) for tables in of)
    for kind, is_staged, is_stored in connection.exec_driver_sql(filled).all():
        tables = REFRESH_TABLES_OF_KIND[kind]
        if is_staged and usable:
            tables.run(connection, _CHANGED_ROWS, staged)
        if is_stored and replaced:
            of_sources = {"source_ids": json_list(replaced)}
            if tables.run(connection, _MISSING, of_sources).scalar_one():
                tables.run(connection, _MISSING_ROWS, of_sources)
        if is_stored and reread:
            tables.run(connection, _MISSING_ROWS_OF_REREAD_OBJECTS, {"source_ids": json_list(reread)})


def _stage_disabled(connection: Connection, tables: RefreshTables, source_ids: Collection[int]) -> None:
    """Stages what disabled malformed objects provided before as disabled: their owners may have made them malformed."""
    staged, source, malformed = tables.staged, tables.source, MALFORMED_OBJECT
    columns = [literal(True).label(name) if name == "disabled" else source.c[name] for name in tables.staged_columns]
    is_staged = exists().where(*(staged.c[name] == source.c[name] for name in tables.source_keys))
    of_object = (malformed.c[name] == source.c[name] for name in ("source_id", "origin"))
    rows = (
        select(*columns)
        .select_from(source.join(malformed, and_(*of_object)))
        .where(malformed.c.source_id.in_(source_ids), malformed.c.disabled.is_(True), source.c.origin != "", ~is_staged)
    )
    connection.execute(insert(staged).from_select(list(tables.staged_columns), rows))


# Carrying out.

_COUNTS = """
SELECT '{kind}' AS kind, source_id, change, COUNT(*) AS records FROM {source_delta} GROUP BY source_id, change
"""

_REMOVE_ROWS = """
DELETE FROM {source} WHERE ({source_keys}) IN (SELECT {source_keys} FROM {source_delta} WHERE change <> {add})
"""

# An outer join stops SQLite from swapping the sides and reading all that is staged for a small delta.
_ADD_ROWS = """
INSERT INTO {source} ({source_columns})
SELECT {source_columns:t} FROM {source_delta} d LEFT JOIN {staged} t ON {source_keys:t=d}
WHERE d.change <> {remove} ORDER BY {source_keys:d}
"""

SourceCounts = Mapping[str, Mapping[int, ChangeCounts]]
"""kind → source → how many of its records change; only those of which any do."""

_ALL_COUNTS = " UNION ALL ".join(tables.text(_COUNTS) for tables in REFRESH_TABLES)


def count_source_changes(connection: Connection) -> SourceCounts:
    """Counts the rows of ``source_delta``."""
    found: dict[str, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for kind, source_id, change, records in connection.exec_driver_sql(_ALL_COUNTS):
        found[kind][source_id][change] = int(records)
    return {
        kind: {
            source_id: ChangeCounts(
                added=counts.get(RowChange.ADD, 0),
                updated=counts.get(RowChange.UPDATE, 0),
                removed=counts.get(RowChange.REMOVE, 0),
            )
            for source_id, counts in of_sources.items()
        }
        for kind, of_sources in found.items()
    }


def total(counts: SourceCounts) -> ChangeCounts:
    """The sum over all kinds and sources."""
    every = [one for of_sources in counts.values() for one in of_sources.values()]
    return ChangeCounts(
        added=sum(one.added for one in every),
        updated=sum(one.updated for one in every),
        removed=sum(one.removed for one in every),
    )


def carry_out_rows(session: RefreshSession, connection: Connection, counts: SourceCounts) -> None:
    """Brings the sources' records in line with ``source_delta``, which contains so many rows."""
    for kind in counts:
        tables = REFRESH_TABLES_OF_KIND[kind]
        of_kind = total({kind: counts[kind]})
        if of_kind.updated or of_kind.removed:
            tables.run(connection, _REMOVE_ROWS)
        if of_kind.added or of_kind.updated:
            with indexed_afterwards(connection, tables.source, of_kind.added):
                tables.run(connection, _ADD_ROWS)
        session.analyze_if_many(tables.source, of_kind.total)
    if counts:
        note_change(connection)


def note_reads(
    connection: Connection,
    reads: Sequence[StagedRead],
    forgotten: Collection[int],
    counts: SourceCounts,
    now_ms: int,
) -> None:
    """Stores how each source was read."""
    for read in reads:
        if read.overtaken and read.answered:
            # The later read knows of the same changes.
            continue
        of_source = [of_kind[read.source_id] for of_kind in counts.values() if read.source_id in of_kind]
        values = _state_after(read, now_ms)
        values["records"] = SOURCE.c.records + sum(one.added - one.removed for one in of_source)
        if read.answered == PART and of_source:
            # The cursor does not cover what this read found. If the source is restored to a state before that, only a
            # complete read notices it.
            values["cursor"] = ""
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == read.source_id).values(values))
    if forgotten:
        connection.execute(delete_from(SOURCE).where(SOURCE.c.source_id.in_(list(forgotten))))


def _state_after(read: StagedRead, now_ms: int) -> dict[str, object]:
    """The columns of a source after a read; its cursor moves only together with the records that it is about."""
    values: dict[str, object] = {
        "malformed": read.malformed,
        "last_verdict": read.verdict,
        "last_reason": read.reason,
        "last_read_at": now_ms,
        "last_read_ms": round(read.seconds * 1000),
        "last_answered": read.answered,
        "refused": read.refused,
        "login_refused": read.login_refused,
    }
    refusal = read.refused or (read.cursor_refused and f"it did not accept the cursor: {read.cursor_refused}")
    if refusal:
        values |= {"last_refusal": refusal, "last_refused_at": now_ms}
    if read.verdict != FAILED:
        values["last_good_at"] = now_ms
        # A read that caught up may have begun before another one that is in force.
        values["read_in_force"] = case(
            (SOURCE.c.read_in_force > read.number, SOURCE.c.read_in_force), else_=literal(read.number)
        )
    if read.verdict == COMPLETE:
        values["last_complete_at"] = now_ms
    if read.verdict != FAILED and read.tells_what_is_gone:
        if read.answered != PART:
            values["cursor"] = read.cursor
        if not read.answered:
            values |= {"settings_digest": read.digest, "last_full_at": now_ms}
    return values


def note_positions(connection: Connection, positions: Mapping[int, int]) -> None:
    """Stores the position of every source; those without one (source → position) come last."""
    moved = False
    for index, (source_id, position) in enumerate(connection.execute(_POSITIONS).all()):
        due = positions.get(source_id, UNCONFIGURED_POSITION + index)
        if due != position:
            connection.execute(update(SOURCE).where(SOURCE.c.source_id == source_id).values(position=due))
            moved = True
    if moved:
        note_change(connection)
