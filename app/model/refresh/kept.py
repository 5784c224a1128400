"""The sources' kept records: what each said when it was last read well, and how it was read.

The records of a source that is no longer configured stay until somebody says that they are to go (``Refresh.forget``).
A source's name is its path unless it was given one, so another path is another source: nobody may lose access because a
setting was changed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Insert,
    Table,
    bindparam,
    case,
    exists,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy import delete as delete_from

from app.database.engine import is_sqlite, run_plainly
from app.database.statements import json_list, run
from app.model.refresh.changes import ChangeCounts, carry_out, changed_kinds, counted_by_source, is_disabled_by, total
from app.model.refresh.scratch import (
    MALFORMED_OBJECT,
    REREAD_OBJECT,
    SCRATCH_TABLES,
    SCRATCH_TABLES_OF_KIND,
    RowChange,
    ScratchTables,
    same,
)
from app.model.refresh.staging import (
    COMPLETE,
    FAILED,
    PART,
    SOURCE,
    UNCONFIGURED_POSITION,
    SourceError,
    StagedRead,
)
from app.text import quoted


@dataclass(frozen=True, slots=True)
class Begun:
    """A read that begins, and what is known of the source. Times are epoch milliseconds."""

    source_id: int
    number: int
    """Its number among the reads of this source; 0: it is not to be read."""
    cursor: str
    """From where changes can be asked for; empty: only everything can be."""
    settings_digest: str
    """Of the settings under which the cursor was given."""
    last_full_at: int | None


# Put together once: that takes longer than to execute them.
_NAMES = select(SOURCE.c.name)
_OF_NAME = select(SOURCE).where(SOURCE.c.name == bindparam("of_name"))
_BEGINS = update(SOURCE).where(SOURCE.c.name == bindparam("of_name")).values(reads_begun=SOURCE.c.reads_begun + 1)
_POSITIONS = select(SOURCE.c.source_id, SOURCE.c.position).order_by(SOURCE.c.name)
_NOT_CONFIGURED = SOURCE.c.source_id.not_in(bindparam("configured", expanding=True))
_EMPTY = select(SOURCE.c.source_id).where(_NOT_CONFIGURED, SOURCE.c.records == 0)
_RETAINED = select(SOURCE.c.name).where(_NOT_CONFIGURED, SOURCE.c.records > 0).order_by(SOURCE.c.name)


def begin_reads(connection: Connection, names: Sequence[str], read: Collection[str]) -> list[Begun]:
    """Makes sure that the sources are known, and numbers the reads that begin now: of those that are to be ``read``."""
    begun = []
    known = set(connection.execute(_NAMES).scalars())
    for position, name in enumerate(names):
        if name not in known:
            connection.execute(
                insert(SOURCE).values(
                    name=name,
                    position=position,
                    reads_begun=0,
                    read_in_force=0,
                    records=0,
                    last_verdict="",
                    last_reason="",
                )
            )
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
    """The sources that are known, but no longer configured, and of which nothing is kept."""
    return list(connection.execute(_EMPTY, {"configured": list(configured)}).scalars())


def retained_source(connection: Connection, name: str) -> int:
    """The id of a source that was not among those of the last refresh. Raises ``SourceError`` where it is none."""
    row = connection.execute(select(SOURCE.c.source_id, SOURCE.c.position).where(SOURCE.c.name == name)).first()
    if row is None:
        retained = connection.execute(
            select(SOURCE.c.name).where(SOURCE.c.position >= UNCONFIGURED_POSITION).order_by(SOURCE.c.name)
        ).scalars()
        others = ", ".join(retained) or "none"
        raise SourceError(f"nothing is in force of a source called {quoted(name)}; no longer configured: {others}")
    return int(row.source_id)


def unconfigured_sources(connection: Connection, configured: Collection[int]) -> tuple[str, ...]:
    """The names of the sources of which something is in force, but that are not configured."""
    return tuple(connection.execute(_RETAINED, {"configured": list(configured)}).scalars())


def compute_source_changes(
    connection: Connection,
    reads: Sequence[StagedRead],
    forgotten: Collection[int],
    *,
    of: Sequence[ScratchTables] = SCRATCH_TABLES,
) -> None:
    """Fills the deltas with what the reads change in the sources' kept records; ``of`` these kinds."""
    usable = [read.source_id for read in reads if read.verdict != FAILED]
    complete = [read for read in reads if read.verdict != FAILED and read.tells_what_is_gone]
    replaced = [read.source_id for read in complete if not read.answered] + list(forgotten)
    told_of = [read.source_id for read in complete if read.answered]
    if not of:
        # A push that tells of nothing.
        return
    run_plainly(connection, [f"DELETE FROM {tables.delta.name}" for tables in of])  # noqa: S608 - our own tables
    if malformed := [read.source_id for read in reads if read.verdict != FAILED and read.malformed]:
        _stage_disabled(connection, malformed, of)
    for kind, is_staged, is_kept in connection.exec_driver_sql(_filled(tuple(tables.kind for tables in of))).all():
        if is_staged and usable:
            rows = _changed_rows if is_kept else _new_rows
            connection.execute(rows(kind, in_order=is_sqlite(connection)), {"source_ids": usable})
        if is_kept and replaced and _any_not_given(connection, SCRATCH_TABLES_OF_KIND[kind], replaced):
            connection.execute(_rows_not_given(kind), {"source_ids": replaced})
        if is_kept and told_of:
            connection.execute(_rows_of_reread_objects(kind), {"source_ids": told_of})


def _stage_disabled(connection: Connection, source_ids: Collection[int], of: Sequence[ScratchTables]) -> None:
    """Stages what malformed objects provided before as disabled, if the object is. Its owner may have spoilt it."""
    found = connection.execute(_DISABLED_MALFORMED, {"source_ids": list(source_ids)}).scalars().all()
    if not found:
        return
    for tables in of:
        if is_disabled_by(tables):
            connection.execute(_disabled_rows(tables.kind), {"source_ids": list(found)})


@cache
def _disabled_rows(kind: str) -> Insert:
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged, source = tables.staged, tables.source
    columns = [literal(True).label(name) if name == "disabled" else source.c[name] for name in tables.staged_columns]
    rows = (
        select(*columns)
        .select_from(source.join(MALFORMED_OBJECT, same(MALFORMED_OBJECT, source, ("source_id", "origin"))))
        .where(
            source.c.source_id.in_(_ASKED),
            MALFORMED_OBJECT.c.disabled.is_(True),
            ~exists().where(same(staged, source, tables.source_keys)),
        )
    )
    return insert(staged).from_select(list(tables.staged_columns), rows)


def _any_not_given(connection: Connection, tables: ScratchTables, source_ids: Collection[int]) -> bool:
    """Whether the sources, which were read as a whole and compared, keep records that they did not give.

    Counting takes a fraction of looking all of them up.
    """
    return bool(
        run(
            connection,
            _NOT_GIVEN,
            {"source_ids": json_list(source_ids)},
            source=tables.source.name,
            staged=tables.staged.name,
            delta=tables.delta.name,
            add=str(int(RowChange.ADD)),
        ).scalar_one()
    )


# Each staged record is kept already or added: none of a source stands there twice.
_NOT_GIVEN = """
SELECT (SELECT COUNT(*) FROM {source} WHERE source_id IN (@numbers(source_ids)))
  - (SELECT COUNT(*) FROM {staged} WHERE source_id IN (@numbers(source_ids)))
  + (SELECT COUNT(*) FROM {delta} WHERE change = {add} AND source_id IN (@numbers(source_ids)))
"""

# Put together once: that takes longer than to execute them for a few rows.


@cache
def _filled(kinds: tuple[str, ...]) -> str:
    """A query for which of the kinds anything is staged, and kept."""
    return " UNION ALL ".join(
        f"SELECT '{tables.kind}', EXISTS (SELECT 1 FROM {tables.staged.name}),"  # noqa: S608 - our own names
        f" EXISTS (SELECT 1 FROM {tables.source.name})"
        for tables in map(SCRATCH_TABLES_OF_KIND.__getitem__, kinds)
    )


_ASKED: BindParameter[int] = bindparam("source_ids", expanding=True)

_DISABLED_MALFORMED = (
    select(MALFORMED_OBJECT.c.source_id)
    .where(MALFORMED_OBJECT.c.source_id.in_(_ASKED), MALFORMED_OBJECT.c.disabled.is_(True))
    .distinct()
)


def _is_asked(staged: Table, *, in_order: bool) -> ColumnElement[bool]:
    # As an expression: SQLite sorts anew by what stands behind a column in an index that it knows to have one value.
    return (staged.c.source_id + 0 if in_order else staged.c.source_id).in_(_ASKED)


@cache
def _changed_rows(kind: str, *, in_order: bool) -> Insert:
    """``in_order``: by their keys, in which both tables are read then, and the third is filled."""
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged, source = tables.staged, tables.source
    missing = source.c.source_id.is_(None)
    differs = or_(missing, *(staged.c[name].is_distinct_from(source.c[name]) for name in tables.compared))
    changed = (
        select(
            *(staged.c[name] for name in tables.source_keys),
            case((missing, int(RowChange.ADD)), else_=int(RowChange.UPDATE)),
        )
        .select_from(staged.outerjoin(source, same(staged, source, tables.source_keys)))
        .where(_is_asked(staged, in_order=in_order), differs)
    )
    if in_order:
        changed = changed.order_by(*(staged.c[name] for name in tables.source_keys))
    return insert(tables.delta).from_select([*tables.source_keys, "change"], changed)


@cache
def _new_rows(kind: str, *, in_order: bool) -> Insert:
    """The same where none of the kind is kept: there is nothing to compare them with."""
    tables = SCRATCH_TABLES_OF_KIND[kind]
    keys = [tables.staged.c[name] for name in tables.source_keys]
    new = select(*keys, literal(int(RowChange.ADD))).where(_is_asked(tables.staged, in_order=in_order))
    return insert(tables.delta).from_select([*tables.source_keys, "change"], new.order_by(*keys) if in_order else new)


@cache
def _rows_not_given(kind: str) -> Insert:
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged, source = tables.staged, tables.source
    gone = select(*(source.c[name] for name in tables.source_keys), literal(int(RowChange.REMOVE))).where(
        source.c.source_id.in_(_ASKED),
        ~exists().where(same(staged, source, tables.source_keys)),
        ~exists().where(same(MALFORMED_OBJECT, source, ("source_id", "origin"))),
    )
    return insert(tables.delta).from_select([*tables.source_keys, "change"], gone)


@cache
def _rows_of_reread_objects(kind: str) -> Insert:
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged, source = tables.staged, tables.source
    # Objects that were read anew are few; each is looked up by its source and origin.
    gone = (
        select(*(source.c[name] for name in tables.source_keys), literal(int(RowChange.REMOVE)))
        .select_from(REREAD_OBJECT.join(source, same(source, REREAD_OBJECT, ("source_id", "origin"))))
        .where(REREAD_OBJECT.c.source_id.in_(_ASKED), ~exists().where(same(staged, source, tables.source_keys)))
    )
    return insert(tables.delta).from_select([*tables.source_keys, "change"], gone)


def carry_out_source_changes(
    connection: Connection,
    reads: Sequence[StagedRead],
    forgotten: Collection[int],
    positions: Mapping[int, int],
    now_ms: int,
) -> bool:
    """Does what the deltas say and notes how each source was read; whether anything changed that merging looks at.

    ``positions``: source → its position in the configuration; empty where nothing is known of which are configured.
    """
    moved = _note_positions(connection, positions, forgotten) if positions else False
    difference: dict[int, int] = {}
    changed = changed_kinds(connection)
    for tables in SCRATCH_TABLES:
        if tables.kind not in changed:
            continue
        by_source = counted_by_source(connection, tables)
        for source_id, counts in by_source.items():
            difference[source_id] = difference.get(source_id, 0) + counts.added - counts.removed
            moved = True
        carry_out_kept(connection, tables, total(by_source.values()))
    for read in reads:
        if read.overtaken and read.answered:
            # The later one knows of the same changes: nothing is wrong.
            continue
        values = _state_after(read, now_ms)
        values["records"] = SOURCE.c.records + difference.get(read.source_id, 0)
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == read.source_id).values(values))
    if forgotten:
        connection.execute(delete_from(SOURCE).where(SOURCE.c.source_id.in_(list(forgotten))))
    return moved


def carry_out_kept(connection: Connection, tables: ScratchTables, counts: ChangeCounts) -> None:
    """Brings the sources' kept records of a kind in line with its delta, which holds so many."""
    keys = tables.source_keys
    carry_out(connection, tables, tables.source, keys, tables.staged, by=keys, counts=counts)


def _state_after(read: StagedRead, now_ms: int) -> dict[str, object]:
    """What is remembered of a source after a read of it; its cursor moves only with the records that it is about."""
    values: dict[str, object] = {
        "malformed": read.malformed,
        "last_verdict": read.verdict,
        "last_reason": read.reason,
        "last_read_at": now_ms,
        "last_read_ms": round(read.seconds * 1000),
        "last_answered": read.answered,
        "refused": read.refused,
    }
    refusal = read.refused or (read.cursor_refused and f"it did not accept the cursor: {read.cursor_refused}")
    if refusal:
        values |= {"last_refusal": refusal, "last_refused_at": now_ms}
    if read.verdict != FAILED:
        values["last_good_at"] = now_ms
        # One that caught up may have begun before another one that is in force.
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


def _note_positions(connection: Connection, wanted: Mapping[int, int], forgotten: Collection[int]) -> bool:
    """Gives every source its position in the configuration; whether any of them moved."""
    moved = False
    rows = connection.execute(_POSITIONS).all()
    for index, (source_id, position) in enumerate(rows):
        due = wanted.get(source_id, UNCONFIGURED_POSITION + index)
        if due != position and source_id not in forgotten:
            connection.execute(update(SOURCE).where(SOURCE.c.source_id == source_id).values(position=due))
            moved = True
    return moved
