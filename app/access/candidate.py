"""A candidate: the database as it would be after another reading of the directory, for one process alone.

The rules: ``app/sync/runs/README.md``, "Dry runs and candidates".

Whoever only wants to know what a run would do must not change what is answered meanwhile. So the reading goes into
temporary tables of one connection, under the names of the lasting tables that it would change: on that connection, and
nowhere else, they stand in front of them. Everything that reads and plans works on a candidate as it does on the
database itself, and all of it ends with the connection. What has no temporary table is the database's own, so that a
plan that is made from a candidate is stored like any other.

Only tables that would change are copied, each at the moment at which its first row would be written. While the sources
are read others may change the database: what was read is compared with what is there when that is over, in one
snapshot. Where the access model has changed in the last minutes it may do so again while a plan is made: then all of it
is copied in that snapshot, and what comes later makes no difference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, delete, event, insert, select, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from app.access.refresh.sources import SOURCE, STATE
from app.access.revisions import REVISION, revision_in_force
from app.foundation.database.engine import WRITE, is_sqlite, open_engine

World = tuple[int, int]
"""The number of changes of the sources' records, and the revision of the access model."""

_OF_REFRESHES: Sequence[Table] = (SOURCE, STATE, REVISION)
"""What every refresh writes."""

_STIRRED_MS = 10 * 60 * 1000
"""So long ago the access model may have changed for the last time where it counts as changing all the time."""


class CandidateLostError(Exception):
    """Another source has become known meanwhile, under the number of one that only the candidate knows."""


@contextmanager
def candidate_of(engine: Engine) -> Iterator[Engine]:
    """An engine whose only connection sees the database and, in front of it, what is shadowed there.

    It must not be asked for two connections at the same time. A connection that breaks is not replaced: the next one
    would see the database as it is. Raises ``OperationalError`` then.
    """
    single = open_engine(engine.url.render_as_string(hide_password=False), single=True)
    connected: list[bool] = []

    @event.listens_for(single, "connect")
    def _stand_in_front(connection: Any, _entry: object) -> None:
        if connected:
            raise OperationalError("", None, Exception("the connection that held the candidate was lost"))
        connected.append(True)
        if is_sqlite(single):
            connection.execute("PRAGMA temp.cache_size=-32768").close()
        else:
            # Whatever the path says: a server may be set up to look at temporary tables last.
            connection.execute("SELECT set_config('search_path', 'pg_temp, ' || current_setting('search_path'), false)")
            connection.commit()

    try:
        with transaction(single) as connection:
            for table in _OF_REFRESHES:
                shadow(connection, table)
        yield single
    finally:
        single.dispose()


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One that sees a single state of the database, and writes to temporary tables alone: it keeps nobody waiting."""
    options: dict[str, object] = {WRITE: False} if is_sqlite(engine) else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def shadow_tables(engine: Engine, tables: Iterable[Table]) -> None:
    """Puts temporary copies of further tables in front of them, such as those that a verify would change."""
    with transaction(engine) as connection:
        for table in tables:
            shadow(connection, table)


def shadow(connection: Connection, table: Table) -> None:
    """Puts a temporary copy of the table in front of it, unless there is one."""
    home = _home(connection, table)
    if home is None:
        return
    definition = str(CreateTable(table).compile(dialect=connection.dialect)).strip()
    connection.exec_driver_sql(definition.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
    names = ", ".join(column.name for column in table.columns)
    ordered = ", ".join(column.name for column in table.primary_key)
    connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {home}.{table.name} ORDER BY {ordered}"  # noqa: S608 - names of our own tables
    )
    for index in sorted(table.indexes, key=lambda one: str(one.name)):
        connection.execute(CreateIndex(index))
    if not is_sqlite(connection):
        _go_on_counting(connection, table)
        connection.exec_driver_sql(f"ANALYZE {table.name}")


def catch_up(connection: Connection) -> None:
    """Brings what every refresh writes in line with the database, in the transaction that goes on from there.

    Raises ``CandidateLostError``.
    """
    lasting = {table.name: f"{_lasting_home(connection, table)}.{table.name}" for table in _OF_REFRESHES}
    if _world(connection, lasting) == world(connection):
        return
    for table in (STATE, REVISION):
        names = ", ".join(column.name for column in table.columns)
        connection.execute(delete(table))
        connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {lasting[table.name]}")  # noqa: S608 - names of our own tables
    known = {row.source_id: row for row in connection.execute(select(SOURCE))}
    for row in connection.execute(text(f"SELECT * FROM {lasting[SOURCE.name]}")).mappings().all():  # noqa: S608 - as above
        mine = known.get(row["source_id"])
        if mine is None:
            connection.execute(insert(SOURCE).values(dict(row)))
            continue
        if mine.name != row["name"]:
            raise CandidateLostError
        values = {name: value for name, value in row.items() if name != "reads_begun"}
        if mine.read_in_force < row["read_in_force"] and row["read_in_force"] >= mine.reads_begun:
            # A read that began later than this one, which nobody else knows of, has been faster.
            values["read_in_force"] = mine.reads_begun + 1
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == row["source_id"]).values(values))


def lasting_world(connection: Connection) -> World:
    """The world of the database behind the candidate."""
    return _world(connection, {t.name: f"{_lasting_home(connection, t)}.{t.name}" for t in _OF_REFRESHES})


def is_stirred(connection: Connection, now_ms: int) -> bool:
    """Whether the database's access model changed a short while ago."""
    table = f"{_lasting_home(connection, REVISION)}.{REVISION.name}"
    last = connection.execute(text(f"SELECT MAX(created_at) FROM {table}")).scalar()  # noqa: S608 - as above
    return last is not None and now_ms - last < _STIRRED_MS


def world(connection: Connection) -> World:
    """What moves on when somebody reads the directory."""
    changes: int | None = connection.execute(select(STATE.c.changes)).scalar()
    return changes or 0, revision_in_force(connection)


def _world(connection: Connection, tables: Mapping[str, str]) -> World:
    changes = connection.execute(text(f"SELECT changes FROM {tables[STATE.name]}")).scalar()  # noqa: S608 - as above
    revision = connection.execute(text(f"SELECT MAX(revision) FROM {tables[REVISION.name]}")).scalar()  # noqa: S608 - as above
    return changes or 0, revision or 0


def _lasting_home(connection: Connection, table: Table) -> str:
    """The schema of the lasting table, whether or not a temporary one stands in front of it."""
    if is_sqlite(connection):
        return "main"
    found = connection.execute(
        text(
            "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relname = :name AND c.relkind = 'r' AND c.relpersistence <> 't'"
            " AND n.nspname = ANY (current_schemas(false))"
        ),
        {"name": table.name},
    )
    return str(found.scalar_one())


def _home(connection: Connection, table: Table) -> str | None:
    """The schema in which the lasting table lies; None where a temporary one stands in front of it."""
    if is_sqlite(connection):
        there = "SELECT 1 FROM sqlite_temp_master WHERE type = 'table' AND name = :name"
        return None if connection.execute(text(there), {"name": table.name}).first() else "main"
    found = connection.execute(
        text(
            "SELECT quote_ident(n.nspname) AS home, c.relpersistence FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(:name)"
        ),
        {"name": table.name},
    ).one()
    return None if found.relpersistence == "t" else str(found.home)


def _go_on_counting(connection: Connection, table: Table) -> None:
    """The copy's own numbers go on after those that were copied."""
    column = table.autoincrement_column
    if column is not None:
        connection.execute(
            text(
                f"SELECT setval(sequence, (SELECT COALESCE(MAX({column.name}), 0) + 1 FROM {table.name}), false)"  # noqa: S608 - as above
                " FROM (SELECT pg_get_serial_sequence(:table, :column) AS sequence) AS found WHERE sequence IS NOT NULL"
            ),
            {"table": f"pg_temp.{table.name}", "column": column.name},
        )
