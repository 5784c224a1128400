"""What a change touches: the keys of its records, of what refers to them, and the folders below.

The rules: ``app/model/README.md``, "The merge by key".

A record that comes or goes may bring to life, or leave dangling, whatever refers to it; one that only says something
else of itself touches nobody. So the kinds are gone through in the order of their references, each when it is known
what became of those before it. A folder that comes, goes or is moved touches all folders below it.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Select, and_, case, exists, func, insert, literal, or_, select, tuple_

from app.model.refresh.scope import TOUCHED, Scope
from app.model.refresh.scratch import MODEL_TABLES, TABLES_OF_KIND, ModelTables, RowChange, same
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import SOURCE
from app.store.record_tables import Reference


def note_changed(session: RefreshSession, connection: Connection, *, asked: bool) -> dict[str, int]:
    """Remembers what the deltas, which are those of the sources' records, are about to change; kind → how many rows.

    ``asked``: staged rows that change nothing are looked at as well.
    """
    emptied = [table for tables in MODEL_TABLES for table in (tables.changed, tables.touched)]
    session.run_all(f"DELETE FROM {table.name}" for table in emptied)  # noqa: S608 - our own tables
    found = {}
    for kind, deltas, staged in session.rows(_filled(asked=asked)):
        if not deltas and not staged:
            continue
        tables = TABLES_OF_KIND[str(kind)]
        rows = TOUCHED.run(connection, _changed, tables).rowcount
        if staged:
            rows += TOUCHED.run(connection, _asked, tables).rowcount
        TOUCHED.run(connection, _touched_itself, tables)
        found[tables.kind] = rows
    return found


def touch_referring(connection: Connection, tables: ModelTables, references: Sequence[Reference], room: int) -> int:
    """Touches the records that refer to something that comes or goes; how many, at most ``room`` for each reference."""
    return sum(
        TOUCHED.run(connection, _referring, tables, reference, room).rowcount
        for reference in references
        if reference.kind != tables.kind
    )


def touch_below(connection: Connection, tables: ModelTables, room: int) -> int:
    """Touches the folders below those that come, go or are moved; how many, at most ``room``."""
    before = TOUCHED.run(connection, _how_many, tables).scalar_one()
    TOUCHED.run(connection, _below, tables, room)
    # SQLite's driver does not count the rows of a statement that begins with WITH.
    return int(TOUCHED.run(connection, _how_many, tables).scalar_one() - before)


def left_out_before(connection: Connection, tables: ModelTables, *, itself: bool) -> dict[tuple[int, bool], int]:
    """(source, whether the key belongs to another) → how many of its records under touched keys did not count.

    ``itself``: of those keys whose records are about to be changed; otherwise of the others, whose records stay. To be
    asked while the access model is as it was before.
    """
    rows = TOUCHED.run(connection, _left_out_before, tables, itself).all()
    return {(row.source_id, bool(row.owned_elsewhere)): row.records for row in rows}


def _filled(*, asked: bool) -> str:
    staged = "EXISTS (SELECT 1 FROM {0})" if asked else "false"
    return " UNION ALL ".join(
        f"SELECT '{tables.kind}', EXISTS (SELECT 1 FROM {tables.delta.name}), {staged.format(tables.staged.name)}"  # noqa: S608 - as above
        for tables in MODEL_TABLES
    )


def _how_many(tables: ModelTables, _scope: Scope) -> Select[Any]:
    return select(func.count()).select_from(tables.touched)


def _changed(tables: ModelTables, _scope: Scope) -> Insert:
    names = [*tables.source_keys, "change"]
    return insert(tables.changed).from_select(names, select(*(tables.delta.c[name] for name in names)))


def _asked(tables: ModelTables, _scope: Scope) -> Insert:
    staged = tables.staged
    unchanged = (
        select(*(staged.c[name] for name in tables.source_keys), literal(int(RowChange.NONE)))
        .where(~exists().where(same(tables.delta, staged, tables.source_keys)))
        .distinct()
    )
    return insert(tables.changed).from_select([*tables.source_keys, "change"], unchanged)


def _touched_itself(tables: ModelTables, _scope: Scope) -> Insert:
    keys = select(*(tables.changed.c[name] for name in tables.keys)).distinct()
    return insert(tables.touched).from_select(list(tables.keys), keys)


def _referring(tables: ModelTables, _scope: Scope, reference: Reference, room: int) -> Insert:
    source, target = tables.source, TABLES_OF_KIND[reference.kind]
    columns = [source.c[name] for name in reference.columns]
    flipped = select(*(target.delta.c[name] for name in target.keys)).where(target.delta.c.change != RowChange.UPDATE)
    refers = columns[0].in_(flipped) if len(columns) == 1 else tuple_(*columns).in_(flipped)
    # Where one of several fields is given, the others are empty, which may be the beginning of the key.
    empty = [
        source.c[other.attribute] == ""
        for group in tables.record_kind.alternatives
        if reference.columns[-1] in {one.attribute for one in group}
        for other in group
        if other.attribute in tables.keys and other.attribute != reference.columns[-1]
    ]
    referring = (
        select(*(source.c[name] for name in tables.keys))
        .where(refers, columns[-1] != "", *empty, ~exists().where(same(tables.touched, source, tables.keys)))
        .distinct()
        .limit(room)
    )
    return insert(tables.touched).from_select(list(tables.keys), referring)


def _below(tables: ModelTables, _scope: Scope, room: int) -> Insert:
    source, access, touched = tables.source, tables.access, tables.touched
    elsewhere = source.alias("elsewhere")
    stays = exists().where(
        same(access, touched, tables.keys),
        exists().where(same(source, access, tables.keys)),
        ~exists().where(
            same(elsewhere, access, tables.keys), elsewhere.c.parent_folder_id != access.c.parent_folder_id
        ),
    )
    below = select(*(touched.c[name] for name in tables.keys)).where(~stays).cte("below", recursive=True)
    below = below.union(
        select(source.c.organization_id, source.c.folder_id).select_from(
            below.join(
                source,
                and_(
                    source.c.organization_id == below.c.organization_id,
                    source.c.parent_folder_id == below.c.folder_id,
                ),
            )
        )
    )
    new = (
        select(*(below.c[name] for name in tables.keys))
        .where(~exists().where(same(touched, below, tables.keys)))
        .limit(room)
    )
    return insert(touched).from_select(list(tables.keys), new)


def _left_out_before(tables: ModelTables, scope: Scope, itself: bool) -> Select[tuple[int, bool, int]]:
    source, other = tables.source, tables.source.alias("other")
    mine, theirs = SOURCE.alias("mine"), SOURCE.alias("theirs")
    owned_elsewhere = exists(
        select(other.c.source_id)
        .select_from(other.join(theirs, theirs.c.source_id == other.c.source_id))
        .where(same(other, source, tables.keys), theirs.c.position < mine.c.position)
    )
    rows = (
        select(source.c.source_id, case((owned_elsewhere, 1), else_=0).label("owned_elsewhere"))
        .select_from(source.join(mine, mine.c.source_id == source.c.source_id))
        .where(
            scope.within(tables, source),
            or_(owned_elsewhere, ~exists().where(same(tables.access, source, tables.keys))),
        )
    )
    if not itself:
        rows = rows.where(~exists().where(same(tables.changed, source, tables.keys)))
    found = rows.subquery()
    return select(found.c.source_id, found.c.owned_elsewhere, func.count().label("records")).group_by(
        found.c.source_id, found.c.owned_elsewhere
    )
