"""What was read from each source just now, and the sources' kept records, which follow it.

The rules: ``app/model/README.md``, "Verdicts".

A complete read replaces what the source said before; a partial one adds to it and updates it; a failed one changes
nothing. A read of changes, or of a part, does so for the objects that it tells of, and for nothing else. Within one
source the last record of a key counts. A source that held records and gives none is taken as failed until someone says
that it is meant to be empty. So is one that was never read before and gives none while others hold some: it may be the
wrong file.

The records of a source that is no longer configured stay until somebody says that they are to go (``Refresh.forget``).
A source's name is its path unless it was given one, so another path is another source: nobody may lose access because a
setting was changed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

from sqlalchemy import (
    BindParameter,
    Connection,
    Insert,
    Select,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy import delete as delete_from

from app.database.engine import is_sqlite
from app.model.refresh.changes import ChangeCounts, carry_out, counted, total
from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scratch import (
    REPLACED,
    SCRATCH_TABLES,
    SCRATCH_TABLES_OF_KIND,
    TOLD_OBJECT,
    RowChange,
    ScratchTables,
    described,
    same,
)
from app.model.refresh.session import RefreshSession
from app.store.directory_tables import DirectorySourceRow
from app.store.record_tables import core_table
from app.text import quoted

COMPLETE, PARTIAL, FAILED = "complete", "partial", "failed"
"""Verdicts, as ``directory`` names them."""

CHANGES, PART = "changes", "part"
"""What a read was about that did not read everything, as ``directory`` names it."""

SOURCE = core_table(DirectorySourceRow)

NOTHING_STAGED: Mapping[str, int] = MappingProxyType({})
"""Nothing was staged before."""

UNCONFIGURED_POSITION = 1_000_000
"""Sources that are kept although they are no longer configured stand behind all others."""

RETAINED = select(SOURCE.c.source_id).where(SOURCE.c.position >= UNCONFIGURED_POSITION)
"""Those sources."""


class SourceError(ValueError):
    """What was asked of a source cannot be; the text is one line for whoever asked."""


Losses = Mapping[str, tuple[int, int | None]]
"""kind → how many keys would go, and of how many (None: these were not counted); kinds of which any would."""


@dataclass(frozen=True, slots=True)
class StagedRead:
    """One read of one source that has come to its end."""

    source_id: int
    name: str
    position: int
    number: int
    """Its number among the reads of this source."""
    records: int
    """How many records it gave, duplicates included."""
    verdict: str
    reason: str
    malformed: int = 0
    """How many of its records could not be understood."""
    answered: str = ""
    """``CHANGES`` or ``PART``; empty: everything."""
    cursor: str = ""
    """From where changes can be asked for next; empty: only everything can be."""
    digest: str = ""
    """Of the settings under which it was read."""
    caught_up: bool = False
    """Whether what changed while everything was read was asked for afterwards, and is part of it."""
    seconds: float = 0
    """How long it took."""
    overtaken: bool = False
    """Whether another read, which began later, is in force already."""
    refused: str = ""
    """Why it failed although the source gave all that it was asked for; empty: it did not."""
    cursor_refused: str = ""
    """Why the source did not accept the cursor that it was asked with at first; empty: it did."""
    losses: Losses = field(default_factory=dict)
    """What it takes away, or would, were it not refused."""


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


# Duplicates within a source.


def drop_duplicates(session: RefreshSession, names: Mapping[int, str], problems: ProblemList) -> None:
    """Leaves the last of all staged records of a key and source, and reports the others.

    From here on the staged tables are indexed.
    """
    with session.scratch() as connection:
        for tables in SCRATCH_TABLES:
            tables.staged_index.create(connection)
            session.analyze(tables.staged)
            if connection.execute(_find_repeated(tables.kind)).rowcount:
                _drop_duplicates_of_kind(connection, tables, names, problems)
                connection.execute(delete_from(REPLACED))


@cache
def _find_repeated(kind: str) -> Insert:
    """Notes the records that are replaced: the index is read once, and what was staged several times looked up."""
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged = tables.staged
    columns = [staged.c[name] for name in tables.source_keys]
    last = func.max(staged.c.seq).label("last_seq")
    repeated = select(*columns, last).group_by(*columns).having(func.count() > 1).subquery()
    replaced = (
        select(staged.c.seq, repeated.c.last_seq)
        .select_from(repeated.join(staged, same(staged, repeated, tables.source_keys)))
        .where(staged.c.seq < repeated.c.last_seq)
    )
    return insert(REPLACED).from_select(["seq", "last_seq"], replaced)


def _drop_duplicates_of_kind(
    connection: Connection, tables: ScratchTables, names: Mapping[int, str], problems: ProblemList
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
            .limit(problems.of_each)
        )
        sample += [
            Problem(
                ProblemSort.DUPLICATE,
                names[source_id],
                row.place,
                f"{described(tables, row)} stands again at {row.last_place}, which replaces this record",
            )
            for row in connection.execute(sampled)
        ]
    connection.execute(delete_from(staged).where(staged.c.seq.in_(select(REPLACED.c.seq))))
    problems.add_counted(ProblemSort.DUPLICATE, {names[one]: count for one, count in counts.items()}, sample)


# The sources' kept records.


def begin_reads(connection: Connection, names: Sequence[str], read: Collection[str]) -> list[Begun]:
    """Makes sure that the sources are known, and numbers the reads that begin now: of those that are to be ``read``."""
    begun = []
    for position, name in enumerate(names):
        if connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == name)).first() is None:
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
            begins = update(SOURCE).where(SOURCE.c.name == name).values(reads_begun=SOURCE.c.reads_begun + 1)
            connection.execute(begins)
        row = connection.execute(select(SOURCE).where(SOURCE.c.name == name)).one()
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


# What a read tells of single objects.


def tell_objects(connection: Connection, source_id: int, after: Mapping[str, int]) -> None:
    """Notes the objects whose records were staged for a source; ``after``: kind → only those behind this number."""
    for tables in SCRATCH_TABLES:
        staged = tables.staged
        origins = (
            select(staged.c.source_id, staged.c.origin)
            .where(staged.c.source_id == source_id, staged.c.seq > after.get(tables.kind, 0))
            .distinct()
        )
        tell(connection, origins)


def tell(connection: Connection, objects: Select[tuple[int, str]]) -> None:
    """Notes objects, whether they are noted or not."""
    told = objects.subquery()
    new = select(told).where(
        ~exists().where(TOLD_OBJECT.c.source_id == told.c.source_id, TOLD_OBJECT.c.origin == told.c.origin)
    )
    connection.execute(insert(TOLD_OBJECT).from_select(["source_id", "origin"], new))


def tell_gone(
    connection: Connection, source_id: int, origins: Collection[str], *, after: Mapping[str, int] = NOTHING_STAGED
) -> None:
    """Notes objects of which nothing is left, and drops what was staged of them before, behind these numbers; a few
    hundred at a time."""
    for tables in SCRATCH_TABLES:
        staged = tables.staged
        connection.execute(
            delete_from(staged).where(
                staged.c.source_id == source_id,
                staged.c.seq > after.get(tables.kind, 0),
                staged.c.origin.in_(list(origins)),
            )
        )
    noted = select(TOLD_OBJECT.c.origin).where(
        TOLD_OBJECT.c.source_id == source_id, TOLD_OBJECT.c.origin.in_(list(origins))
    )
    new = set(origins) - set(connection.execute(noted).scalars())
    if new:
        rows = [{"source_id": source_id, "origin": origin} for origin in sorted(new)]
        connection.execute(insert(TOLD_OBJECT), rows)


def drop_staged(connection: Connection, source_id: int, *, after: Mapping[str, int] = NOTHING_STAGED) -> None:
    """Drops what was staged for a source; ``after``: kind → only what stands behind this number."""
    for tables in SCRATCH_TABLES:
        staged = tables.staged
        behind = staged.c.seq > after.get(tables.kind, 0)
        connection.execute(delete_from(staged).where(staged.c.source_id == source_id, behind))
    connection.execute(delete_from(TOLD_OBJECT).where(TOLD_OBJECT.c.source_id == source_id))


def supersede_staged(connection: Connection, source_id: int, before: Mapping[str, int]) -> None:
    """Drops, of what was staged for a source up to these numbers, what was told anew behind them."""
    told = select(TOLD_OBJECT.c.origin).where(TOLD_OBJECT.c.source_id == source_id)
    if connection.execute(told.limit(1)).first() is not None:
        for tables in SCRATCH_TABLES:
            staged = tables.staged
            connection.execute(
                delete_from(staged).where(
                    staged.c.source_id == source_id,
                    staged.c.seq <= before.get(tables.kind, 0),
                    staged.c.origin.in_(told),
                )
            )
    # What remains is all that there is: nothing more is to be said of single objects.
    connection.execute(delete_from(TOLD_OBJECT).where(TOLD_OBJECT.c.source_id == source_id))


def last_staged(connection: Connection) -> dict[str, int]:
    """Kind → the number of the last record that was staged."""
    return {
        tables.kind: connection.execute(select(func.coalesce(func.max(tables.staged.c.seq), 0))).scalar_one()
        for tables in SCRATCH_TABLES
    }


def judge(connection: Connection, reads: Sequence[StagedRead], accept_empty: Collection[str]) -> list[StagedRead]:
    """The reads, with those failed that must not be used."""
    kept = {row.source_id: row for row in connection.execute(select(SOURCE))}
    in_force = sum(row.records for row in kept.values())
    judged = []
    for read in reads:
        row = kept.get(read.source_id)
        is_whole = read.verdict == COMPLETE and not read.answered
        if row is None or (row.read_in_force > read.number and not read.caught_up):
            reason = "another refresh that began later has been faster"
            judged.append(replace(read, verdict=FAILED, reason=reason, overtaken=True))
        elif is_whole and read.records == 0 and row.records > 0 and read.name not in accept_empty:
            reason = (
                f"is empty, but gave {row.records:,} record(s) before; if that is meant, "
                f"confirm it once with --accept-empty {read.name}"
            )
            judged.append(refuse(read, reason))
        elif is_whole and read.records == 0 and in_force and row.read_in_force == 0 and read.name not in accept_empty:
            reason = (
                f"is read for the first time and is empty, while {in_force:,} record(s) of other sources are in force; "
                f"if that is meant, confirm it once with --accept-empty {read.name}"
            )
            judged.append(refuse(read, reason))
        else:
            judged.append(read)
    return judged


def refuse(read: StagedRead, reason: str) -> StagedRead:
    """A read that is not taken although the source gave all that it was asked for."""
    return replace(read, verdict=FAILED, reason=reason, refused=reason)


def sources_to_forget(connection: Connection, configured: Collection[int]) -> list[int]:
    """The sources that are known, but no longer configured, and of which nothing is kept."""
    empty = select(SOURCE.c.source_id).where(SOURCE.c.source_id.not_in(list(configured)), SOURCE.c.records == 0)
    return list(connection.execute(empty).scalars())


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
    retained = SOURCE.c.source_id.not_in(list(configured)), SOURCE.c.records > 0
    rows = connection.execute(select(SOURCE.c.name).where(*retained).order_by(SOURCE.c.name))
    return tuple(rows.scalars())


def compute_source_changes(
    connection: Connection,
    reads: Sequence[StagedRead],
    forgotten: Collection[int],
    *,
    of: Sequence[ScratchTables] = SCRATCH_TABLES,
) -> None:
    """Fills the deltas with what the reads change in the sources' kept records; ``of`` these kinds."""
    usable = [read.source_id for read in reads if read.verdict != FAILED]
    complete = [read for read in reads if read.verdict == COMPLETE]
    replaced = [read.source_id for read in complete if not read.answered] + list(forgotten)
    told_of = [read.source_id for read in complete if read.answered]
    for tables in of:
        connection.execute(delete_from(tables.delta))
        if usable:
            connection.execute(_changed_rows(tables.kind, in_order=is_sqlite(connection)), {"source_ids": usable})
        if replaced:
            connection.execute(_rows_not_given(tables.kind), {"source_ids": replaced})
        if told_of:
            connection.execute(_rows_of_told_objects(tables.kind), {"source_ids": told_of})


# Put together once: that takes longer than to execute them for a few rows.

_ASKED: BindParameter[int] = bindparam("source_ids", expanding=True)


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
        .where(staged.c.source_id.in_(_ASKED), differs)
    )
    if in_order:
        changed = changed.order_by(*(staged.c[name] for name in tables.source_keys))
    return insert(tables.delta).from_select([*tables.source_keys, "change"], changed)


@cache
def _rows_not_given(kind: str) -> Insert:
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged, source = tables.staged, tables.source
    gone = select(*(source.c[name] for name in tables.source_keys), literal(int(RowChange.REMOVE))).where(
        source.c.source_id.in_(_ASKED), ~exists().where(same(staged, source, tables.source_keys))
    )
    return insert(tables.delta).from_select([*tables.source_keys, "change"], gone)


@cache
def _rows_of_told_objects(kind: str) -> Insert:
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged, source = tables.staged, tables.source
    # Told objects are few; each is looked up by its source and origin.
    gone = (
        select(*(source.c[name] for name in tables.source_keys), literal(int(RowChange.REMOVE)))
        .select_from(TOLD_OBJECT.join(source, same(source, TOLD_OBJECT, ("source_id", "origin"))))
        .where(TOLD_OBJECT.c.source_id.in_(_ASKED), ~exists().where(same(staged, source, tables.source_keys)))
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

    ``positions``: source → its place in the configuration; empty where nothing is known of which are configured.
    """
    moved = _note_positions(connection, positions, forgotten) if positions else False
    difference: dict[int, int] = {}
    for tables in SCRATCH_TABLES:
        by_source = counted(connection, tables)
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
        if read.answered != PART:
            values["cursor"] = read.cursor
        if not read.answered:
            values |= {"settings_digest": read.digest, "last_full_at": now_ms}
    return values


def _note_positions(connection: Connection, wanted: Mapping[int, int], forgotten: Collection[int]) -> bool:
    """Gives every source its place in the order of the configuration; whether any of them moved."""
    moved = False
    rows = connection.execute(select(SOURCE.c.source_id, SOURCE.c.position).order_by(SOURCE.c.name)).all()
    for index, (source_id, position) in enumerate(rows):
        due = wanted.get(source_id, UNCONFIGURED_POSITION + index)
        if due != position and source_id not in forgotten:
            connection.execute(update(SOURCE).where(SOURCE.c.source_id == source_id).values(position=due))
            moved = True
    return moved
