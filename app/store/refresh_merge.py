"""Which of the sources' records do not count?

In this order, kind by kind, so that whatever refers to a record that is left out is left out after it:

1. records whose key belongs to a source further up;
2. records that refer to something that nobody gives, or that is left out. For folders this means those from which no
   way leads to the top: that one rule catches missing parents, cycles, and all that hangs below either.

It is all done by the database, set by set; the memory needed here does not grow with the directory.
"""

from sqlalchemy import ColumnElement, Connection, and_, exists, func, insert, literal, select
from sqlalchemy import delete as delete_from

from app.access.records import Folder
from app.store.record_tables import Reference
from app.store.refresh_staging import SOURCE
from app.store.refresh_tables import BENCH_OF_KIND, BENCHES, REACHED_FOLDER, Bench, Cause, same
from app.store.refresh_workbench import Workbench


def find_left_out(workbench: Workbench, connection: Connection) -> None:
    """Fills the ``left_out`` tables from the sources' kept records, as this connection's transaction sees them."""
    several_sources = connection.execute(select(func.count()).select_from(SOURCE)).scalar_one() > 1
    for bench in BENCHES:
        connection.execute(delete_from(bench.left_out))
        if several_sources:
            _leave_out_owned_elsewhere(connection, bench)
        if bench.kind == Folder.kind:
            _leave_out_unreachable_folders(connection, bench)
        else:
            for reference in bench.kind_table.references:
                _leave_out_dangling(connection, bench, reference)
        workbench.analyze(bench.left_out)


def counts(bench: Bench, connection: Connection) -> ColumnElement[bool]:
    """The condition on ``bench.source`` that its record is not left out."""
    if connection.execute(select(bench.left_out.c.source_id).limit(1)).first() is None:
        return literal(True)
    return ~exists().where(same(bench.left_out, bench.source, bench.source_keys))


def stands(
    connection: Connection, reference: Reference, columns: tuple[ColumnElement[str], ...]
) -> ColumnElement[bool]:
    """The condition that a record with this key counts; the columns are in the order of its key."""
    target = BENCH_OF_KIND[reference.kind]
    key = zip(target.keys, columns, strict=True)
    return exists().where(*(target.source.c[name] == column for name, column in key), counts(target, connection))


def _leave_out_owned_elsewhere(connection: Connection, bench: Bench) -> None:
    source, other = bench.source, bench.source.alias("other")
    mine, theirs = SOURCE.alias("mine"), SOURCE.alias("theirs")
    owned_elsewhere = exists(
        select(other.c.source_id)
        .select_from(other.join(theirs, theirs.c.source_id == other.c.source_id))
        .where(same(other, source, bench.keys), theirs.c.position < mine.c.position)
    )
    losing = (
        select(*(source.c[name] for name in bench.source_keys), literal(int(Cause.OWNED_ELSEWHERE)))
        .select_from(source.join(mine, mine.c.source_id == source.c.source_id))
        .where(owned_elsewhere)
    )
    connection.execute(insert(bench.left_out).from_select([*bench.source_keys, "cause"], losing))


def _leave_out_dangling(connection: Connection, bench: Bench, reference: Reference) -> None:
    source = bench.source
    dangling = select(*(source.c[name] for name in bench.source_keys), literal(int(Cause.DANGLING))).where(
        source.c[reference.columns[-1]] != "",
        counts(bench, connection),
        ~stands(connection, reference, tuple(source.c[name] for name in reference.columns)),
    )
    connection.execute(insert(bench.left_out).from_select([*bench.source_keys, "cause"], dangling))


def _leave_out_unreachable_folders(connection: Connection, bench: Bench) -> None:
    source = bench.source
    count = counts(bench, connection)
    organization = bench.kind_table.references[0]
    reached = (
        select(source.c.organization_id, source.c.folder_id)
        .where(source.c.parent_folder_id == "", count, stands(connection, organization, (source.c.organization_id,)))
        .cte("reached", recursive=True)
    )
    below = select(source.c.organization_id, source.c.folder_id).select_from(
        reached.join(
            source,
            and_(
                source.c.organization_id == reached.c.organization_id,
                source.c.parent_folder_id == reached.c.folder_id,
                count,
            ),
        )
    )
    reached = reached.union(below)
    connection.execute(delete_from(REACHED_FOLDER))
    connection.execute(insert(REACHED_FOLDER).from_select(["organization_id", "folder_id"], select(reached)))
    unreachable = select(*(source.c[name] for name in bench.source_keys), literal(int(Cause.UNREACHABLE))).where(
        count, ~exists().where(same(REACHED_FOLDER, source, ("organization_id", "folder_id")))
    )
    connection.execute(insert(bench.left_out).from_select([*bench.source_keys, "cause"], unreachable))
