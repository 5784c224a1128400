"""The connection on which a refresh works, with its temporary tables and transactions.

The temporary tables of a refresh belong to its connection. There are three kinds of transaction: one for the temporary
tables alone, which locks nothing; a snapshot of the lasting tables; and a short one that writes.

Creating these tables takes longer than applying a small change. So a session with few rows empties them and returns the
connection to the pool. A larger session closes the connection.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.schema import CreateIndex, CreateTable

from app.access.record_tables import Values
from app.access.refresh.sources import lock_refreshes
from app.access.refresh.tables import (
    OTHER_TABLES,
    REFRESH_TABLES,
    REFRESH_TABLES_OF_KIND,
    TABLES_BY_KIND,
    TEMPORARY_TABLES,
)
from app.foundation.database.engine import WRITE_LOCK, execute_raw, is_sqlite
from app.foundation.database.response_timeout import allow_long_statements
from app.foundation.database.statements import insert_on_sqlite, prefer_indexes

_TOTAL_ROWS = "usher_refresh_rows"
"""The key in ``Connection.info`` of the number of rows that ever went through the connection's temporary tables."""

_FEW_ROWS = 5_000
"""The most rows of a session whose temporary tables are reused."""

_MAX_TOTAL_ROWS = 50_000
"""The most rows in total: deleted rows stay in PostgreSQL's files, so the tables are created again after that."""

_MAX_PREPARED = 500
"""The number of statements that PostgreSQL prepares on a connection, which is more than a change executes."""

_ANALYZE_FROM = 1_000
"""The number of changed rows from which a table is analyzed on PostgreSQL."""


@cache
def _definitions(dialect: str) -> Sequence[str]:
    """The statements that create the temporary tables. Compiling them takes longer than executing them."""
    compiler = import_module(f"sqlalchemy.dialects.{dialect}").dialect()
    return [
        *(str(CreateTable(table).compile(dialect=compiler)) for table in TABLES_BY_KIND),
        *(str(CreateIndex(tables.staged_index)) for tables in REFRESH_TABLES),
        *(f"CREATE TEMPORARY TABLE {name} ({columns})" for name, columns in OTHER_TABLES.items()),
    ]


class RefreshSession:
    """A connection with the temporary tables of one refresh. Use it in a ``with`` statement.

    On a candidate (``app.access.candidate``) nothing lasting is written, so nothing is locked, and the connection
    stays open.
    """

    def __init__(self, engine: Engine, *, on_candidate: bool = False) -> None:
        self.on_candidate = on_candidate
        self._connection = engine.connect()
        allow_long_statements(self._connection, None)
        self._sqlite = is_sqlite(engine)
        self._rows = 0
        """The number of rows written to the tables in this session."""
        self.kinds_staged: set[str] = set()
        """The kinds of which records were staged, including dropped records."""
        self._is_staged_indexed = True

    @property
    def has_few_rows(self) -> bool:
        """Whether few rows went through the tables so far."""
        return self._rows <= _FEW_ROWS

    def __enter__(self) -> Self:
        try:
            if _TOTAL_ROWS not in self._connection.info:
                with self.scratch() as connection:
                    if self._sqlite:
                        connection.exec_driver_sql("PRAGMA temp.cache_size=-32768")
                    else:
                        self._driver_connection.prepared_max = _MAX_PREPARED
                    self.run_all(_definitions(connection.dialect.name))
                    connection.info[_TOTAL_ROWS] = 0
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        is_reusable = kind is None and self.has_few_rows and not self.on_candidate
        if is_reusable and self._connection.info[_TOTAL_ROWS] < _MAX_TOTAL_ROWS:
            self._return_to_pool()
        else:
            self._close()

    def _return_to_pool(self) -> None:
        try:
            with self.scratch():
                self.run_all(f"DELETE FROM {name}" for name in TEMPORARY_TABLES)  # noqa: S608 - our own tables
        except BaseException:
            self._close()
            raise
        self._connection.close()

    def _close(self) -> None:
        if self._connection.invalidated or self._connection.closed:
            self._connection.close()
            return
        if self.on_candidate:
            self._connection.rollback()
            with self.scratch():
                self.run_all(f"DROP TABLE IF EXISTS {name}" for name in TEMPORARY_TABLES)
            self._connection.info.pop(_TOTAL_ROWS, None)
        else:
            # Do not return it to the pool: the temporary tables must not outlive the refresh.
            self._connection.detach()
        self._connection.close()

    def scratch(self) -> AbstractContextManager[Connection]:
        """A transaction on the temporary tables."""
        return self._transaction(write=False)

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A transaction that sees the lasting tables as they are at its beginning, and writes temporary ones."""
        return self._transaction(write=False, isolation_level="REPEATABLE READ")

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """A transaction that writes. Only one refresh at a time is in it."""
        if self.on_candidate:
            with self.snapshot() as connection:
                yield connection
            return
        with self._transaction(write=True) as connection:
            lock_refreshes(connection)
            yield connection

    @contextmanager
    def _transaction(self, *, write: bool, isolation_level: str = "READ COMMITTED") -> Iterator[Connection]:
        if self._connection.in_transaction():
            # A change stages records, too.
            yield self._connection
            return
        options = {} if self._sqlite else {"isolation_level": isolation_level}
        self._connection.execution_options(**{WRITE_LOCK: write}, **options)
        with self._connection.begin():
            yield self._connection

    def count_rows(self, rows: int) -> None:
        """Counts rows that go through the temporary tables."""
        self._rows += rows
        self._connection.info[_TOTAL_ROWS] += rows

    def stage(self, rows: Mapping[str, list[Values]]) -> None:
        """Adds rows (kind → values in the order of ``RefreshTables.source_columns``) to the staged tables."""
        with self.scratch():
            for kind, values in rows.items():
                if values:
                    tables = REFRESH_TABLES_OF_KIND[kind]
                    self.fill(tables.staged.name, tables.source_columns, values)
                    self.count_rows(len(values))
                    self.kinds_staged.add(kind)
            if self._is_staged_indexed and not self.has_few_rows:
                # To index many rows together takes a fraction of the time.
                self.run_all(f"DROP INDEX {tables.staged_index.name}" for tables in REFRESH_TABLES)
                self._is_staged_indexed = False

    def index_staged(self) -> None:
        """Indexes the staged tables after many rows were added, in the open transaction."""
        if not self._is_staged_indexed:
            self.run_all(str(CreateIndex(tables.staged_index)) for tables in REFRESH_TABLES)
            self._is_staged_indexed = True
        for kind in sorted(self.kinds_staged):
            self.analyze_if_many(REFRESH_TABLES_OF_KIND[kind].staged, self._rows)

    def fill(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Adds rows to a table, in the open transaction."""
        names = ", ".join(columns)
        if self._sqlite:
            # FAIL, because otherwise SQLite writes the pages of the table to a file first, to roll back the statement.
            insert_on_sqlite(self._connection, f"INSERT OR FAIL INTO {table} ({names})", rows)
            return
        with self._driver_connection.cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def analyze_if_many(self, table: Table | str, rows: int) -> None:
        """Updates the statistics of PostgreSQL's planner after many rows changed."""
        if rows > _ANALYZE_FROM and not self._sqlite:
            self.run_all([f"ANALYZE {table}"])

    def run_all(self, statements: Iterable[str]) -> None:
        """Executes texts without parameters, in the open transaction."""
        execute_raw(self._connection, statements)

    def look_up_rows(self) -> None:
        """Makes PostgreSQL look up rows by index until the end of the transaction.

        Its planner does not know how few rows a temporary table has, and would read large tables from end to end.
        """
        prefer_indexes(self._connection)

    @property
    def _driver_connection(self) -> Any:
        return self._connection.connection.driver_connection
