"""What was read from each source just now, and how do the sources' kept records follow it?

A complete read replaces what the source said before; a partial one adds to it and updates it; a failed one changes
nothing. Within one source the last record of a key counts. A source that held records and gives none is taken as failed
until someone says that it is meant to be empty.

The records of a source that is no longer configured go, with one exception: while another source has never been read
well, they stay. A source under a new name whose first read fails would otherwise take everybody's access with it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Select, case, exists, func, insert, literal, or_, select, update
from sqlalchemy import delete as delete_from

from app.store.directory_tables import DirectorySourceRow
from app.store.record_tables import core_table
from app.store.refresh_changes import carry_out, counted
from app.store.refresh_problems import Problem, ProblemList, ProblemSort
from app.store.refresh_tables import BENCHES, Bench, Change, described, same
from app.store.refresh_workbench import Workbench

COMPLETE, PARTIAL, FAILED = "complete", "partial", "failed"
"""Verdicts, as ``directory`` names them."""

SOURCE = core_table(DirectorySourceRow)

UNCONFIGURED_POSITION = 1_000_000
"""Sources that are kept although they are no longer configured stand behind all others."""


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


# Duplicates within a source.


def drop_duplicates(workbench: Workbench, names: Mapping[int, str], problems: ProblemList) -> None:
    """Leaves the last of all staged records of a key and source, and reports the others.

    From here on the staged tables are indexed.
    """
    with workbench.scratch() as connection:
        for bench in BENCHES:
            bench.staged_index.create(connection)
            workbench.analyze(bench.staged)
            if connection.execute(_repeated_keys(bench).limit(1)).first() is not None:
                _drop_duplicates_of_kind(connection, bench, names, problems)


def _repeated_keys(bench: Bench) -> Select[tuple[object, ...]]:
    columns = [bench.staged.c[name] for name in bench.source_keys]
    return select(*columns).group_by(*columns).having(func.count() > 1)


def _drop_duplicates_of_kind(
    connection: Connection, bench: Bench, names: Mapping[int, str], problems: ProblemList
) -> None:
    staged, later = bench.staged, bench.staged.alias("later")
    replaced = exists().where(same(staged, later, bench.source_keys), later.c.seq > staged.c.seq)
    last_place = (
        select(later.c.place)
        .where(same(staged, later, bench.source_keys))
        .order_by(later.c.seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    sampled = select(staged, last_place.label("last_place")).where(replaced).order_by(staged.c.seq).limit(problems.room)
    sample = [
        Problem(
            ProblemSort.DUPLICATE,
            names[row.source_id],
            row.place,
            f"{described(bench, row)} stands again at {row.last_place}, which replaces this record",
        )
        for row in connection.execute(sampled)
    ]
    numbers = select(staged.c.seq).where(replaced)
    count = connection.execute(delete_from(staged).where(staged.c.seq.in_(numbers))).rowcount
    problems.add_counted(ProblemSort.DUPLICATE, count, sample)


# The sources' kept records.


def begin_reads(connection: Connection, names: Sequence[str]) -> list[tuple[int, int]]:
    """Makes sure that the sources are known, and gives each its id and the number of the read that begins now."""
    begun = []
    for position, name in enumerate(names):
        found = connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == name)).scalar()
        if found is None:
            found = connection.execute(
                insert(SOURCE)
                .values(
                    name=name,
                    position=position,
                    reads_begun=0,
                    read_in_force=0,
                    records=0,
                    last_verdict="",
                    last_reason="",
                )
                .returning(SOURCE.c.source_id)
            ).scalar_one()
        number = connection.execute(
            update(SOURCE)
            .where(SOURCE.c.source_id == found)
            .values(reads_begun=SOURCE.c.reads_begun + 1)
            .returning(SOURCE.c.reads_begun)
        ).scalar_one()
        begun.append((int(found), int(number)))
    return begun


def judge(connection: Connection, reads: Sequence[StagedRead], accept_empty: Collection[str]) -> list[StagedRead]:
    """The reads, with those failed that must not be used."""
    kept = {row.source_id: row for row in connection.execute(select(SOURCE))}
    judged = []
    for read in reads:
        row = kept.get(read.source_id)
        if row is None or row.read_in_force > read.number:
            judged.append(replace(read, verdict=FAILED, reason="another refresh that began later has been faster"))
        elif read.verdict == COMPLETE and read.records == 0 and row.records > 0 and read.name not in accept_empty:
            reason = (
                f"is empty, but gave {row.records:,} record(s) before; if that is meant, "
                f"confirm it once with --accept-empty {read.name}"
            )
            judged.append(replace(read, verdict=FAILED, reason=reason))
        else:
            judged.append(read)
    return judged


def sources_to_forget(connection: Connection, reads: Sequence[StagedRead]) -> list[int]:
    """The sources that are known, but no longer configured, and whose records may go."""
    configured = {read.source_id: read for read in reads}
    rows = connection.execute(select(SOURCE.c.source_id, SOURCE.c.read_in_force)).all()
    for row in rows:
        read = configured.get(row.source_id)
        if read is not None and row.read_in_force == 0 and read.verdict == FAILED:
            return []
    return [row.source_id for row in rows if row.source_id not in configured]


def unconfigured_sources(connection: Connection, reads: Sequence[StagedRead]) -> tuple[str, ...]:
    """The names of the sources that are known, but were not among those read."""
    configured = [read.source_id for read in reads]
    rows = connection.execute(
        select(SOURCE.c.name).where(SOURCE.c.source_id.not_in(configured)).order_by(SOURCE.c.name)
    )
    return tuple(rows.scalars())


def compute_source_changes(connection: Connection, reads: Sequence[StagedRead], forgotten: Collection[int]) -> None:
    """Fills the deltas with what the reads change in the sources' kept records."""
    usable = [read.source_id for read in reads if read.verdict != FAILED]
    replaced = [read.source_id for read in reads if read.verdict == COMPLETE] + list(forgotten)
    for bench in BENCHES:
        staged, source, delta = bench.staged, bench.source, bench.delta
        connection.execute(delete_from(delta))
        target_columns = [*bench.source_keys, "change"]
        differs = or_(
            source.c.source_id.is_(None),
            *(staged.c[name].is_distinct_from(source.c[name]) for name in bench.compared),
        )
        changed = (
            select(
                *(staged.c[name] for name in bench.source_keys),
                case((source.c.source_id.is_(None), int(Change.ADD)), else_=int(Change.UPDATE)),
            )
            .select_from(staged.outerjoin(source, same(staged, source, bench.source_keys)))
            .where(staged.c.source_id.in_(usable), differs)
        )
        connection.execute(insert(delta).from_select(target_columns, changed))
        if replaced:
            gone = select(*(source.c[name] for name in bench.source_keys), literal(int(Change.REMOVE))).where(
                source.c.source_id.in_(replaced), ~exists().where(same(staged, source, bench.source_keys))
            )
            connection.execute(insert(delta).from_select(target_columns, gone))


def carry_out_source_changes(
    connection: Connection, reads: Sequence[StagedRead], forgotten: Collection[int], now_ms: int
) -> bool:
    """Does what the deltas say and notes how each source was read; whether anything changed that merging looks at."""
    moved = _note_positions(connection, reads, forgotten)
    difference: dict[int, int] = {}
    for bench in BENCHES:
        for source_id, counts in counted(connection, bench).items():
            difference[source_id] = difference.get(source_id, 0) + counts.added - counts.removed
            moved = True
        carry_out(connection, bench, bench.source, bench.source_keys, bench.staged)
    for read in reads:
        good = read.verdict != FAILED
        values: dict[str, object] = {
            "last_verdict": read.verdict,
            "last_reason": read.reason,
            "last_read_at": now_ms,
            "records": SOURCE.c.records + difference.get(read.source_id, 0),
        }
        if good:
            values |= {"last_good_at": now_ms, "read_in_force": read.number}
        if read.verdict == COMPLETE:
            values["last_complete_at"] = now_ms
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == read.source_id).values(values))
    if forgotten:
        connection.execute(delete_from(SOURCE).where(SOURCE.c.source_id.in_(list(forgotten))))
    return moved


def _note_positions(connection: Connection, reads: Sequence[StagedRead], forgotten: Collection[int]) -> bool:
    """Gives every source its place in the order of the configuration; whether any of them moved."""
    wanted = {read.source_id: read.position for read in reads}
    moved = False
    rows = connection.execute(select(SOURCE.c.source_id, SOURCE.c.position).order_by(SOURCE.c.name)).all()
    for index, (source_id, position) in enumerate(rows):
        due = wanted.get(source_id, UNCONFIGURED_POSITION + index)
        if due != position and source_id not in forgotten:
            connection.execute(update(SOURCE).where(SOURCE.c.source_id == source_id).values(position=due))
            moved = True
    return moved
