"""Writes the statistics with which SQLite chooses indexes.

Without statistics, SQLite assumes that an organization has a handful of rows, and reads all of it instead of using the
index on the user. ANALYZE is of no use while tables are empty or small. So the server writes statistics of a large
organization: plans that are fast there are fast in a small one. PostgreSQL collects its own.
"""

from sqlalchemy import Connection, Engine, MetaData, Table, text

from app.foundation.database.engine import is_sqlite, reading, writing

_ROWS = 1_000_000
_FEW = {"api_key_id": 2, "organization_id": 2, "level": 3, "embedding_type": 2, "feature_type": 5, "action_type": 10}
"""The number of distinct values of these columns."""
_MANY = 1000
"""The number of distinct values of every other column."""


def ensure_statistics(engine: Engine, metadata: MetaData) -> None:
    """Writes the statistics of a SQLite database, and again after it got new tables or indexes. Connections read them
    when they open."""
    if not is_sqlite(engine):
        return
    names = {name for table in metadata.tables.values() for name, _, _ in _indexes(table)}
    with reading(engine) as connection:
        # SQLite would prefer an index without statistics, because it assumes that this one finds fewer rows.
        is_complete = connection.scalar(text("SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_stat1'")) and (
            names <= set(connection.scalars(text("SELECT idx FROM sqlite_stat1")))
        )
    if not is_complete:
        with writing(engine) as connection:
            _write(connection, metadata)


def _write(connection: Connection, metadata: MetaData) -> None:
    # Creates the table of statistics, without analyzing any table.
    connection.execute(text("ANALYZE sqlite_schema"))
    for table in metadata.tables.values():
        connection.execute(text("DELETE FROM sqlite_stat1 WHERE tbl = :table"), {"table": table.name})
        connection.execute(
            text("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (:table, :index, :stat)"),
            [
                {"table": table.name, "index": name, "stat": _statistics(columns, is_unique=is_unique)}
                for name, columns, is_unique in _indexes(table)
            ],
        )
    # Makes this connection read them.
    connection.execute(text("ANALYZE sqlite_schema"))


def _indexes(table: Table) -> list[tuple[str, list[str], bool]]:
    is_clustered = table.dialect_options["sqlite"]["with_rowid"] is False
    primary = table.name if is_clustered else f"sqlite_autoindex_{table.name}_1"
    return [
        (primary, [column.name for column in table.primary_key], True),
        *((str(index.name), [column.name for column in index.columns], bool(index.unique)) for index in table.indexes),
    ]


def _statistics(columns: list[str], *, is_unique: bool) -> str:
    """The number of rows, then of those with equal first column, equal first two columns, and so on."""
    shares = [_ROWS]
    for column in columns:
        shares.append(max(1, shares[-1] // _FEW.get(column, _MANY)))
    if is_unique:
        shares[-1] = 1
    return " ".join(map(str, shares))
