"""The merging of sources: which of their records do not count.

The rules: ``app/model/README.md``, "From a read to a revision".

In this order, kind by kind, so that whatever refers to a record that is left out is left out after it:

1. records whose key belongs to a source further up;
2. records that refer to something that nobody gives, or that is left out. For folders this means those from which no
   way leads to the top: that one rule catches missing parents, cycles, and all that hangs below either.

It is all done by the database, set by set; the memory needed here does not grow with the directory.
"""

from sqlalchemy import ColumnElement, Connection, and_, exists, func, insert, literal, select
from sqlalchemy import delete as delete_from

from app.access.records import Folder
from app.model.refresh.scratch import MODEL_TABLES, REACHED_FOLDER, TABLES_OF_KIND, LeftOutCause, ModelTables, same
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import SOURCE
from app.store.record_tables import Reference


def find_left_out(session: RefreshSession, connection: Connection) -> None:
    """Fills the ``left_out`` tables from the sources' kept records, as this connection's transaction sees them."""
    several_sources = connection.execute(select(func.count()).select_from(SOURCE)).scalar_one() > 1
    for tables in MODEL_TABLES:
        connection.execute(delete_from(tables.left_out))
        if several_sources:
            _leave_out_owned_elsewhere(connection, tables)
        if tables.kind == Folder.kind:
            _leave_out_unreachable_folders(connection, tables)
        else:
            for reference in tables.kind_table.references:
                _leave_out_dangling(connection, tables, reference)
            if tables.record_kind.names_user:
                _leave_out_unresolved(connection, tables)
        session.analyze(tables.left_out)


def counts(tables: ModelTables, connection: Connection) -> ColumnElement[bool]:
    """The condition on ``tables.source`` that its record is not left out."""
    if connection.execute(select(tables.left_out.c.source_id).limit(1)).first() is None:
        return literal(True)
    return ~exists().where(same(tables.left_out, tables.source, tables.source_keys))


def dangling_by_source(connection: Connection) -> dict[int, int]:
    """Source → how many of its records refer to something that does not count, after ``find_left_out``."""
    found: dict[int, int] = {}
    for tables in MODEL_TABLES:
        left_out = tables.left_out
        query = (
            select(left_out.c.source_id, func.count().label("records"))
            .where(left_out.c.cause.in_([int(LeftOutCause.DANGLING), int(LeftOutCause.UNREACHABLE)]))
            .group_by(left_out.c.source_id)
        )
        for row in connection.execute(query):
            found[row.source_id] = found.get(row.source_id, 0) + row.records
    return found


def stands(
    connection: Connection, reference: Reference, columns: tuple[ColumnElement[str], ...]
) -> ColumnElement[bool]:
    """The condition that a record with this key counts; the columns are in the order of its key."""
    target = TABLES_OF_KIND[reference.kind]
    key = zip(target.keys, columns, strict=True)
    return exists().where(*(target.source.c[name] == column for name, column in key), counts(target, connection))


def _leave_out_owned_elsewhere(connection: Connection, tables: ModelTables) -> None:
    source, other = tables.source, tables.source.alias("other")
    mine, theirs = SOURCE.alias("mine"), SOURCE.alias("theirs")
    owned_elsewhere = exists(
        select(other.c.source_id)
        .select_from(other.join(theirs, theirs.c.source_id == other.c.source_id))
        .where(same(other, source, tables.keys), theirs.c.position < mine.c.position)
    )
    losing = (
        select(*(source.c[name] for name in tables.source_keys), literal(int(LeftOutCause.OWNED_ELSEWHERE)))
        .select_from(source.join(mine, mine.c.source_id == source.c.source_id))
        .where(owned_elsewhere)
    )
    connection.execute(insert(tables.left_out).from_select([*tables.source_keys, "cause"], losing))


def _leave_out_dangling(connection: Connection, tables: ModelTables, reference: Reference) -> None:
    source = tables.source
    dangling = select(*(source.c[name] for name in tables.source_keys), literal(int(LeftOutCause.DANGLING))).where(
        source.c[reference.columns[-1]] != "",
        counts(tables, connection),
        ~stands(connection, reference, tuple(source.c[name] for name in reference.columns)),
    )
    connection.execute(insert(tables.left_out).from_select([*tables.source_keys, "cause"], dangling))


def _leave_out_unresolved(connection: Connection, tables: ModelTables) -> None:
    source = tables.source
    unresolved = select(*(source.c[name] for name in tables.source_keys), literal(int(LeftOutCause.DANGLING))).where(
        source.c.user_alias != "", counts(tables, connection)
    )
    connection.execute(insert(tables.left_out).from_select([*tables.source_keys, "cause"], unresolved))


def _leave_out_unreachable_folders(connection: Connection, tables: ModelTables) -> None:
    source = tables.source
    count = counts(tables, connection)
    organization = tables.kind_table.references[0]
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
    unreachable = select(
        *(source.c[name] for name in tables.source_keys), literal(int(LeftOutCause.UNREACHABLE))
    ).where(count, ~exists().where(same(REACHED_FOLDER, source, ("organization_id", "folder_id"))))
    connection.execute(insert(tables.left_out).from_select([*tables.source_keys, "cause"], unreachable))
