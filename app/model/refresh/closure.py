"""What a change touches: the keys of its records, of what refers to them, and the folders below.

The rules: ``app/model/README.md``, "The merge by key".

A record that comes or goes may bring to life, or leave dangling, whatever refers to it; one that only says something
else of itself touches nobody. So the kinds are gone through in the order of their references, each when it is known
what became of those before it. A folder that comes, goes or is moved touches all folders below it. An alias that
changes hands touches what names it, under the keys of whoever had it and has it.

Keys are those of what is given: an alias stands in them only as long as nobody knows whose it is.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Insert,
    Select,
    and_,
    case,
    exists,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
)

from app.database.statements import run
from app.model.refresh.aliases import holder, known
from app.model.refresh.merge import owned_elsewhere
from app.model.refresh.scope import TOUCHED, MergeScope
from app.model.refresh.scratch import (
    FORMER_ALIAS,
    SCRATCH_TABLES,
    TABLES_OF_KIND,
    LeftOutCause,
    ModelTables,
    RowChange,
    ScratchTables,
    same,
)
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import SOURCE
from app.store.record_tables import Reference

Before = Mapping[tuple[int, LeftOutCause], int]
"""(source, cause) → how many records did not count before a change."""

_TOUCH = """
INSERT INTO {touched} ({keys}, late)
SELECT DISTINCT {keys}, {late} FROM ({found}) AS found
WHERE NOT EXISTS (SELECT 1 FROM {touched} t WHERE {same}) LIMIT {room}
"""

_GIVEN = """
SELECT {others},
  COALESCE(holder, user_id) AS user_id, CASE WHEN holder IS NULL THEN user_alias ELSE '' END AS user_alias
FROM (SELECT {read}, w.user_id, w.user_alias, {holder} AS holder FROM {written}) AS named
"""

_WRITTEN = "SELECT {keys} FROM {written}"

# Of the few a temporary table has, PostgreSQL knows nothing: it might read all of the many for them.
_LOOKED_UP = {
    "sqlite": "{few} CROSS JOIN {many} w WHERE {condition}",
    "postgresql": "{few} CROSS JOIN LATERAL (SELECT * FROM {many} w WHERE {condition} OFFSET 0) w",
}

# Cross joins keep SQLite from reading the source's table to look its rows up.
_NAMED = """
SELECT {read}, {user_id} AS user_id, {user_alias} AS user_alias
FROM refresh_former_alias a CROSS JOIN {source} s WHERE s.user_alias = a.alias AND s.user_alias <> '' AND {which}
"""


def note_changed(session: RefreshSession, connection: Connection, room: int, *, asked: bool) -> dict[str, int]:
    """Touches what the deltas, which are those of the sources' records, are about to change; kind → how many keys, of
    each at most ``room``.

    ``asked``: staged rows that change nothing are looked at as well.
    """
    session.run_all(f"DELETE FROM {table.name}" for table in _EMPTIED)  # noqa: S608 - our own tables
    found = {}
    for kind, deltas, staged in session.rows(_filled(asked=asked)):
        tables = next(one for one in SCRATCH_TABLES if one.kind == kind)
        written = [table.name for table, rows in ((tables.delta, deltas), (tables.staged, staged)) if rows]
        if written:
            found[tables.kind] = _touch(
                connection, tables, [_keys(tables, f"{one} w") for one in written], room, late=0
            )
    return found


def touch_referring(connection: Connection, tables: ModelTables, references: Sequence[Reference], room: int) -> int:
    """Touches the records that refer to something that comes or goes; how many, at most ``room``."""
    looked_up = _LOOKED_UP[connection.dialect.name]
    found = [_referring(tables, one, looked_up) for one in references if one.kind != tables.kind]
    return _touch(connection, tables, found, room) if found else 0


def touch_renamed(connection: Connection, tables: ModelTables, room: int) -> int:
    """Touches what names an alias that has changed hands: as it stands where it is nobody's, as that of whoever had it,
    and of whoever has it; how many, at most ``room``."""
    others = [name for name in tables.owned_keys if name not in {"user_id", "user_alias"}]
    read = ", ".join(f"s.{name}" for name in others)
    arms = (
        ("''", "s.user_alias", f"(a.user_id IS NULL OR {holder('a.alias')} IS NULL)"),
        ("a.user_id", "''", "a.user_id IS NOT NULL"),
        (holder("a.alias"), "''", f"{holder('a.alias')} IS NOT NULL"),
    )
    found = [
        _NAMED.format(read=read, user_id=user_id, user_alias=user_alias, source=tables.source.name, which=which)
        for user_id, user_alias, which in arms
    ]
    return _touch(connection, tables, found, room)


def touch_below(connection: Connection, tables: ModelTables, room: int) -> int:
    """Touches the folders below those that come, go or are moved; how many, at most ``room``."""
    before = TOUCHED.run(connection, _how_many, tables).scalar_one()
    TOUCHED.run(connection, _below, tables, room)
    # SQLite's driver does not count the rows of a statement that begins with WITH.
    return int(TOUCHED.run(connection, _how_many, tables).scalar_one() - before)


def left_out_before(connection: Connection, tables: ModelTables, *, renamed: bool = False) -> Before:
    """How many rows of ``combined`` did not count.

    ``combined`` holds what was given before; to be asked while the access model is as it was before, but for aliases
    that have changed hands meanwhile (``renamed``).
    """
    rows = TOUCHED.run(connection, _left_out_before, tables, renamed).all()
    return {(row.source_id, LeftOutCause(row.cause)): row.records for row in rows}


def rows_left_out_before(
    connection: Connection, tables: ModelTables, *, renamed: bool = False
) -> CursorResult[tuple[Any, ...]]:
    """These rows, each with its key, source and place."""
    return TOUCHED.run(connection, _rows_left_out_before, tables, renamed)


_EMPTIED = [*(tables.touched for tables in SCRATCH_TABLES), FORMER_ALIAS]


def _filled(*, asked: bool) -> str:
    staged = "EXISTS (SELECT 1 FROM {0})" if asked else "false"
    return " UNION ALL ".join(
        f"SELECT '{tables.kind}', EXISTS (SELECT 1 FROM {tables.delta.name}), {staged.format(tables.staged.name)}"  # noqa: S608 - as above
        for tables in SCRATCH_TABLES
    )


def _touch(connection: Connection, tables: ScratchTables, found: Collection[str], room: int, *, late: int = 1) -> int:
    """Touches the keys that the queries yield, each in the order of ``owned_keys``; how many were not touched."""
    return run(
        connection,
        _TOUCH.replace("{found}", " UNION ALL ".join(found)),
        touched=tables.touched.name,
        keys=", ".join(tables.owned_keys),
        same=" AND ".join(f"t.{name} = found.{name}" for name in tables.owned_keys),
        late=str(late),
        room=str(room),
    ).rowcount


def _keys(tables: ScratchTables, written: str) -> str:
    """A query for the keys of rows ``w`` that are written as the sources' records are."""
    if not isinstance(tables, ModelTables) or not tables.record_kind.names_user:
        return _WRITTEN.format(keys=", ".join(f"w.{name}" for name in tables.owned_keys), written=written)
    others = [name for name in tables.owned_keys if name not in {"user_id", "user_alias"}]
    return _GIVEN.format(
        others=", ".join(others),
        read=", ".join(f"w.{name}" for name in others),
        holder=holder("w.user_alias"),
        written=written,
    )


def _referring(tables: ModelTables, reference: Reference, looked_up: str) -> str:
    target = TABLES_OF_KIND[reference.kind]
    # Where one of several fields is given, the others are empty, which may be the beginning of the key.
    empty = [
        f"w.{other.attribute} = ''"
        for group in tables.record_kind.alternatives
        if reference.columns[-1] in {one.attribute for one in group}
        for other in group
        if other.attribute in tables.keys and other.attribute != reference.columns[-1]
    ]
    same = [f"w.{own} = d.{key}" for own, key in zip(reference.columns, target.keys, strict=True)]
    condition = " AND ".join([*same, *empty, f"w.{reference.columns[-1]} <> ''"])
    few = f"(SELECT * FROM {target.delta.name} WHERE change <> {int(RowChange.UPDATE)}) d"  # noqa: S608 - our own names
    return _keys(tables, looked_up.format(few=few, many=tables.source.name, condition=condition))


def _how_many(tables: ModelTables, _scope: MergeScope) -> Select[int]:
    return select(func.count()).select_from(tables.touched)


def _below(tables: ModelTables, _scope: MergeScope, room: int) -> Insert:
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
        select(*(below.c[name] for name in tables.keys), literal(1))
        .where(~exists().where(same(touched, below, tables.keys)))
        .limit(room)
    )
    return insert(touched).from_select([*tables.keys, "late"], new)


def _left_out_before(tables: ModelTables, scope: MergeScope, renamed: bool) -> Select[tuple[int, int, int]]:
    found = _rows_left_out_before(tables, scope, renamed).subquery()
    return select(found.c.source_id, found.c.cause, func.count().label("records")).group_by(
        found.c.source_id, found.c.cause
    )


def _rows_left_out_before(tables: ModelTables, scope: MergeScope, renamed: bool) -> Select[Any]:
    given = scope.given(tables)
    mine = SOURCE.alias("mine")
    elsewhere = owned_elsewhere(tables, given, mine)
    counted = exists().where(same(tables.access, given, tables.keys))
    causes = [(elsewhere, int(LeftOutCause.OWNED_ELSEWHERE))]
    if tables.record_kind.names_user:
        is_shared: ColumnElement[bool] = literal_column(known(f"{given.name}.user_alias", former=renamed))
        causes.append((and_(given.c.user_alias != "", is_shared), int(LeftOutCause.AMBIGUOUS)))
    cause = case(*causes, else_=int(LeftOutCause.DANGLING)).label("cause")
    return (
        select(*(given.c[name] for name in tables.given_keys), given.c.place, cause)
        .select_from(given.join(mine, mine.c.source_id == given.c.source_id))
        .where(or_(elsewhere, ~counted))
    )
