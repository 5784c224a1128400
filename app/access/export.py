"""Counts the records of the access model, and exports the effective ones."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from sqlalchemy import Connection, func, select

from app.access.effective import ALL_FOLDERS, cause
from app.access.record_tables import KIND_TABLES, TABLES_OF_KIND, record_of
from app.access.records import Record, User
from app.access.refresh.sources import MODEL_ALIAS
from app.foundation.database.engine import is_sqlite
from app.foundation.database.statements import statement

_BATCH_ROWS = 1_000

_EFFECTIVE = "WITH RECURSIVE {folders} SELECT m.* FROM {table} m WHERE {cause} = '' ORDER BY {keys}"


def model_counts(connection: Connection) -> dict[str, int]:
    """kind → the number of its records in the access model, for every kind."""
    return {
        kind_table.kind: int(connection.execute(select(func.count()).select_from(kind_table.table)).scalar_one())
        for kind_table in KIND_TABLES
    }


def export_records(connection: Connection) -> Iterator[Record]:
    """Every effective record of the access model, referred-to kinds first, each kind in the order of its key.

    Rows are streamed; keep the transaction open until the end.
    """
    if not is_sqlite(connection):
        # With the default of 4 MB, PostgreSQL does not hash the effective folders, but reads all of them for each row.
        connection.exec_driver_sql("SET LOCAL work_mem = '256MB'")
    for kind_table in KIND_TABLES:
        if kind_table.kind == User.kind:
            yield from _users(connection)
            continue
        text = statement(
            connection,
            _EFFECTIVE,
            folders=ALL_FOLDERS,
            table=kind_table.table.name,
            cause=cause(kind_table.kind, "m"),
            keys=", ".join(f"m.{name}" for name in kind_table.keys),
        )
        streaming = {"stream_results": True, "max_row_buffer": _BATCH_ROWS}
        yield from map(kind_table.record_from_row, connection.execute(text, execution_options=streaming))


def _users(connection: Connection) -> Iterator[User]:
    table = TABLES_OF_KIND[User.kind].table
    with_alias = table.outerjoin(MODEL_ALIAS, MODEL_ALIAS.c.user_id == table.c.user_id)
    query = select(table, MODEL_ALIAS.c.alias).select_from(with_alias).order_by(table.c.user_id, MODEL_ALIAS.c.alias)
    rows = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS})
    for _, same_user in groupby(rows, key=lambda row: row.user_id):
        first, *others = same_user
        yield replace(
            record_of(User, first), aliases=tuple(row.alias for row in (first, *others) if row.alias is not None)
        )
