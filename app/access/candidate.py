"""A candidate: the database as it would be after another read of the directory, for one process alone.

The rules: ``app/sync/runs/README.md``, "Dry runs and candidates".

A dry run must not change the answers to permission calls. So it reads into temporary tables of one connection, which
have the names of the lasting tables that it would change. On that connection, they shadow the lasting tables.
Everything that reads and plans works on a candidate as on the database itself. The candidate ends with its connection.
Tables without a shadow are those of the database, so a plan that is made from a candidate is stored like any other.

Only tables that would change are copied, each before its first row is written.
"""

# ruff: noqa: S608 - these texts contain only names of our own tables

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, RowMapping, Table, delete, event, insert, select, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from app.access.refresh.sources import SOURCE, STATE
from app.access.revisions import REVISION, current_revision
from app.foundation.database.engine import is_sqlite, open_engine, snapshot

_RECENT_MS = 10 * 60 * 1000
"""A database that changed within this time may change again while a plan is made."""


class DatabaseState(NamedTuple):
    """A state of the directory in the database. Each read that changes anything leads to another one."""

    changes: int
    """The number of changes of the sources' records."""
    revision: int
    """The revision of the access model."""


class CandidateLostError(Exception):
    """Another process has added a source with the id of one that exists only in the candidate."""


@contextmanager
def open_candidate(engine: Engine) -> Iterator[Engine]:
    """An engine with a single connection, which sees the database and the shadows in front of it.

    Do not open two connections of it at the same time. A connection that breaks is not replaced, because the
    next one would see the database as it is. Raises ``OperationalError`` then.
    """
    single = open_engine(engine.url.render_as_string(hide_password=False), single=True)
    connected: list[bool] = []

    @event.listens_for(single, "connect")
    def _set_up(connection: Any, _entry: object) -> None:
        if connected:
            raise OperationalError("", None, Exception("the connection that held the candidate was lost"))
        connected.append(True)
        if is_sqlite(single):
            connection.execute("PRAGMA temp.cache_size=-32768").close()
        else:
            # A server may be configured to search temporary tables last.
            connection.execute("SELECT set_config('search_path', 'pg_temp, ' || current_setting('search_path'), false)")
            connection.commit()

    try:
        # The tables that every refresh writes.
        shadow_tables(single, (SOURCE, STATE, REVISION))
        yield single
    finally:
        single.dispose()


def shadow_tables(engine: Engine, tables: Iterable[Table]) -> None:
    """Shadows further tables of a candidate, such as those that a verify would change."""
    with snapshot(engine) as connection:
        for table in tables:
            shadow(connection, table)


def shadow(connection: Connection, table: Table) -> None:
    """Puts a temporary copy of the table in front of it, unless there is one."""
    if _is_shadowed(connection, table):
        return
    lasting = lasting_name(connection, table)
    definition = str(CreateTable(table).compile(dialect=connection.dialect)).strip()
    connection.exec_driver_sql(definition.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
    names = ", ".join(column.name for column in table.columns)
    ordered = ", ".join(column.name for column in table.primary_key)
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {lasting} ORDER BY {ordered}")
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        connection.execute(CreateIndex(index))
    if not is_sqlite(connection):
        _continue_sequence(connection, table)
        connection.exec_driver_sql(f"ANALYZE {table.name}")


def catch_up(connection: Connection) -> None:
    """Brings the shadows of the tables that every refresh writes in line with the database, in the open transaction.

    Raises ``CandidateLostError``.
    """
    if state_behind(connection) == database_state(connection):
        return
    for table in (STATE, REVISION):
        names = ", ".join(column.name for column in table.columns)
        connection.execute(delete(table))
        connection.exec_driver_sql(
            f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {lasting_name(connection, table)}"
        )
    sources = {row.source_id: row for row in connection.execute(select(SOURCE))}
    for row in connection.execute(text(f"SELECT * FROM {lasting_name(connection, SOURCE)}")).mappings().all():
        _catch_up_source(connection, sources.pop(row["source_id"], None), row)
    # Another process has removed sources that had records. Sources without records may exist only in the candidate.
    removed = [source_id for source_id, own in sources.items() if own.records]
    connection.execute(delete(SOURCE).where(SOURCE.c.source_id.in_(removed)))


def _catch_up_source(connection: Connection, own: Row[Any] | None, row: RowMapping) -> None:
    """Brings the candidate's row of a source in line with the database's ``row``. ``own`` is None if there is none."""
    if own is None:
        connection.execute(insert(SOURCE).values(dict(row)))
        return
    if own.name != row["name"]:
        raise CandidateLostError
    values = {name: value for name, value in row.items() if name != "reads_begun"}
    if own.read_in_force < row["read_in_force"] and row["read_in_force"] >= own.reads_begun:
        # A read that began later has already finished. The candidate and the database number reads independently, so
        # this number makes the guard reject the candidate's own read as overtaken (``app.access.refresh.guard``).
        values["read_in_force"] = own.reads_begun + 1
    connection.execute(update(SOURCE).where(SOURCE.c.source_id == row["source_id"]).values(values))


def state_behind(connection: Connection) -> DatabaseState:
    """The state of the database behind the candidate."""
    changes = connection.execute(text(f"SELECT changes FROM {lasting_name(connection, STATE)}")).scalar()
    revision = connection.execute(text(f"SELECT MAX(revision) FROM {lasting_name(connection, REVISION)}")).scalar()
    return DatabaseState(changes or 0, revision or 0)


def has_changed_recently(connection: Connection, now_ms: int) -> bool:
    """Whether the access model of the database behind the candidate changed in the last minutes."""
    query = f"SELECT created_at FROM {lasting_name(connection, REVISION)} ORDER BY revision DESC LIMIT 1"
    last = connection.execute(text(query)).scalar()
    return last is not None and now_ms - last < _RECENT_MS


def database_state(connection: Connection) -> DatabaseState:
    """The state of the database, or of the candidate. Each read of the directory changes it."""
    changes: int | None = connection.execute(select(STATE.c.changes)).scalar()
    return DatabaseState(changes or 0, current_revision(connection))


def lasting_name(connection: Connection, table: Table) -> str:
    """The lasting table with its schema, whether or not it is shadowed."""
    if is_sqlite(connection):
        return f"main.{table.name}"
    schema = connection.execute(
        text(
            "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relname = :name AND c.relkind = 'r' AND c.relpersistence <> 't'"
            " AND n.nspname = ANY (current_schemas(false))"
        ),
        {"name": table.name},
    )
    return f"{schema.scalar_one()}.{table.name}"


def _is_shadowed(connection: Connection, table: Table) -> bool:
    if is_sqlite(connection):
        shadows = "SELECT 1 FROM sqlite_temp_master WHERE type = 'table' AND name = :name"
    else:
        shadows = "SELECT 1 FROM pg_class WHERE oid = to_regclass(:name) AND relpersistence = 't'"
    return connection.execute(text(shadows), {"name": table.name}).first() is not None


def _continue_sequence(connection: Connection, table: Table) -> None:
    """Sets the sequence of the copy behind the ids that were copied."""
    column = table.autoincrement_column
    if column is not None:
        connection.execute(
            text(
                f"SELECT setval(sequence, (SELECT COALESCE(MAX({column.name}), 0) + 1 FROM {table.name}), false)"
                " FROM (SELECT pg_get_serial_sequence(:table, :column) AS sequence) AS found WHERE sequence IS NOT NULL"
            ),
            {"table": f"pg_temp.{table.name}", "column": column.name},
        )
