"""SQLite statistics, by which it knows which index leads to few rows.

Without statistics it takes one API key, and one organization, for a handful of rows: it then reads all of an
organization where an index on the user would find ten. Its own ANALYZE tells the truth only about the moment at which
it runs, and nothing about tables that are still empty. So the statistics are written by hand, for a large organization:
what is fast there is fast in a small one. (PostgreSQL gathers its own, all the time.)
"""

from sqlalchemy import Connection, Engine, MetaData, Table, text

from app.foundation.database.engine import is_sqlite, reading, writing

_ROWS = 1_000_000
_FEW = {"api_key_id": 2, "organization_id": 2, "level": 3, "embedding_type": 2, "feature_type": 5, "action_type": 10}
"""How many values such a column has; every other has so many that a thousandth of the rows is left."""
_MANY = 1000


def ensure_statistics(engine: Engine, metadata: MetaData) -> None:
    """Writes the statistics of all tables, once for a SQLite database and again when it got new ones. To be called
    before connections are at work: they read statistics when they open.
    """
    if not is_sqlite(engine):
        return
    with reading(engine) as connection:
        is_taught = connection.scalar(text("SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_stat1'")) and (
            {name for (name,) in connection.execute(text("SELECT DISTINCT tbl FROM sqlite_stat1"))}
            >= set(metadata.tables)
        )
    if not is_taught:
        with writing(engine) as connection:
            _write(connection, metadata)


def _write(connection: Connection, metadata: MetaData) -> None:
    # Nothing is analyzed here: this makes the table of statistics.
    connection.execute(text("ANALYZE sqlite_schema"))
    there = set(connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'")))
    for table in metadata.tables.values():
        if table.name not in there:
            continue
        connection.execute(text("DELETE FROM sqlite_stat1 WHERE tbl = :table"), {"table": table.name})
        connection.execute(
            text("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (:table, :index, :stat)"),
            [
                {"table": table.name, "index": name, "stat": _statistics(columns, is_unique=is_unique)}
                for name, columns, is_unique in _indexes(table)
            ],
        )
    # Makes this connection read them; others do when they open.
    connection.execute(text("ANALYZE sqlite_schema"))


def _indexes(table: Table) -> list[tuple[str, list[str], bool]]:
    is_clustered = table.dialect_options["sqlite"]["with_rowid"] is False
    primary = table.name if is_clustered else f"sqlite_autoindex_{table.name}_1"
    return [
        (primary, [column.name for column in table.primary_key], True),
        *((str(index.name), [column.name for column in index.columns], bool(index.unique)) for index in table.indexes),
    ]


def _statistics(columns: list[str], *, is_unique: bool) -> str:
    """All rows, then how many share the first column, the first two, and so on."""
    left = _ROWS
    shares = [left]
    for column in columns:
        left = max(1, left // _FEW.get(column, _MANY))
        shares.append(left)
    if is_unique:
        shares[-1] = 1
    return " ".join(map(str, shares))
