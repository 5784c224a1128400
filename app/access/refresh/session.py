"""The refresh session: the connection on which a refresh works, and its transactions.

It needs one connection from beginning to end, because its temporary tables live there, and three kinds of transaction
on it: one for the temporary tables alone, which locks nothing; a snapshot of the lasting tables; and a short one that
writes.

To make the tables takes longer than a small change does. So a session through which few rows went leaves them, empty,
with the connection, which goes back to the pool; those of a larger one are gone with it.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, text
from sqlalchemy.schema import CreateIndex, CreateTable

from app.access.record_tables import Values
from app.access.refresh.tables import REFRESH_TABLES, TEMPORARY, RefreshTables
from app.foundation.database.engine import WRITE, execute_raw, is_sqlite
from app.foundation.database.statements import insert_on_sqlite

_FAILED = 3
"""libpq's state of a transaction in which a statement has failed."""

_PLANS_FOR_MANY = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")

_TABLES = "usher_refresh_tables"
"""Where a pooled connection that has the temporary tables says so."""

_FEW_ROWS = 5_000
"""The most that may go through the tables in one session that is not small, for them to be left."""

_MOST_ROWS_STAGED = 50_000
"""After so many the tables are not kept: what was deleted stays in PostgreSQL's files."""

_STATEMENTS_PREPARED = 500
"""So many PostgreSQL remembers for one connection: more than one change takes."""


_DELTA_INDEXES = {
    f"ix_{tables.source_delta.name}": (tables.source_delta.name, tables.source_keys) for tables in REFRESH_TABLES
}
"""Name → table and columns of the indexes of deltas on PostgreSQL; on SQLite the tables are clustered by their keys."""

_WORTH_ANALYZING = 1_000
"""The number of changed rows from which PostgreSQL's planner is informed at once."""


@dataclass(slots=True)
class _Tables:
    """What is known of the temporary tables of a connection."""

    rows: int = 0
    """How many were ever staged or worked out there."""
    staged_indexes: set[str] = field(default_factory=set)
    """The kinds whose staged tables are indexed."""
    has_delta_indexes: bool = False


@cache
def _made_by(dialect: str) -> tuple[str, ...]:
    """The texts that create the temporary tables; to compile them takes longer than to execute them."""
    spelling = import_module(f"sqlalchemy.dialects.{dialect}").dialect()
    return tuple(str(CreateTable(table).compile(dialect=spelling)) for table in TEMPORARY.sorted_tables)


class RefreshSession:
    """A connection with the temporary tables of one refresh; use it in a ``with`` statement.

    On a candidate (``app.access.candidate``) nothing lasting is written, so nothing is locked, and the connection
    stays.

    ``is_small``: few rows will stand in the tables. Those that are staged are indexed from the beginning.
    """

    def __init__(self, engine: Engine, *, on_candidate: bool = False, is_small: bool = False) -> None:
        self._connection = engine.connect()
        self._on_candidate = on_candidate
        self._is_small = is_small
        self._is_looking_up = False
        self._sqlite = is_sqlite(engine)
        self._tables = _Tables()
        self._rows = 0
        """How many rows went through the tables in this session."""
        self._kinds_staged: set[str] = set()
        self._inserts = {
            tables.kind: self._insert_text(tables.staged, tables.staged_columns) for tables in REFRESH_TABLES
        }

    @property
    def on_candidate(self) -> bool:
        return self._on_candidate

    @property
    def is_small(self) -> bool:
        return self._is_small

    @property
    def kinds_staged(self) -> Collection[str]:
        """The kinds of which records were staged, dropped ones included: of the others there are none."""
        return self._kinds_staged

    @property
    def has_few_rows(self) -> bool:
        """Whether few rows went through the tables so far."""
        return self._rows <= _FEW_ROWS

    def __enter__(self) -> Self:
        try:
            with self.scratch() as connection:
                if _TABLES not in connection.info:
                    self._make()
                self._tables = connection.info[_TABLES]
                if self._is_small:
                    self._index_all()
        except BaseException:
            self._close()
            raise
        return self

    def _make(self) -> None:
        if self._sqlite:
            self._connection.exec_driver_sql("PRAGMA temp.cache_size=-32768")
        self.run_all(_made_by(self._connection.dialect.name))
        # On SQLite deltas are clustered by their keys.
        self._connection.info[_TABLES] = _Tables(has_delta_indexes=self._sqlite)

    def _index_all(self) -> None:
        if not self._sqlite:
            self._driver_connection.prepared_max = _STATEMENTS_PREPARED
        missing = [tables for tables in REFRESH_TABLES if tables.kind not in self._tables.staged_indexes]
        if missing:
            self.run_all(str(CreateIndex(tables.staged_index)) for tables in missing)
            self._tables.staged_indexes.update(tables.kind for tables in missing)
        self._index_deltas()

    def index_staged(self, tables: RefreshTables) -> None:
        """Makes the index of a kind's staged table, in the transaction that is open, where it is not there."""
        if tables.kind not in self._tables.staged_indexes:
            self.run_all([str(CreateIndex(tables.staged_index))])
            self._tables.staged_indexes.add(tables.kind)

    def _index_deltas(self) -> None:
        if not self._tables.has_delta_indexes:
            self.run_all(
                f"CREATE INDEX {name} ON {table} ({', '.join(columns)})"
                for name, (table, columns) in _DELTA_INDEXES.items()
            )
            self._tables.has_delta_indexes = True

    def _make_room(self) -> None:
        """Takes away what smaller sessions have left: many rows are indexed when they are there, and their plans are
        others."""
        staged = (tables for tables in REFRESH_TABLES if tables.kind in self._tables.staged_indexes)
        indexes = [str(tables.staged_index.name) for tables in staged]
        self._tables.staged_indexes.clear()
        if not self._sqlite and self._tables.has_delta_indexes:
            indexes += list(_DELTA_INDEXES)
            self._tables.has_delta_indexes = False
        if indexes:
            self.run_all(f"DROP INDEX {name}" for name in indexes)
            if not self._sqlite:
                self.run_all(["DISCARD PLANS"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        few = self._is_small or (self.has_few_rows and not self._on_candidate)
        if kind is None and few and self._tables.rows < _MOST_ROWS_STAGED:
            self._leave_empty()
        else:
            self._close()

    def _leave_empty(self) -> None:
        try:
            with self.scratch():
                self.run_all(f"DELETE FROM {table.name}" for table in TEMPORARY.sorted_tables)  # noqa: S608 - our own tables
        except BaseException:
            self._close()
            raise
        self._connection.close()

    def _close(self) -> None:
        if self._connection.invalidated or self._connection.closed:
            self._connection.close()
            return
        if self._on_candidate:
            self._connection.rollback()
            with self.scratch():
                self.run_all(f"DROP TABLE IF EXISTS {table.name}" for table in TEMPORARY.sorted_tables)
            self._connection.info.pop(_TABLES, None)
            self._connection.close()
            return
        # Closed for good instead of going back to the pool: the temporary tables must not outlive the refresh.
        self._connection.detach()
        self._connection.close()

    @contextmanager
    def scratch(self) -> Iterator[Connection]:
        """A transaction on the temporary tables."""
        self._connection.execution_options(**self._options(write=False))
        with self._connection.begin():
            yield self._connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A transaction that sees the lasting tables as they are at its beginning, and writes temporary ones."""
        self._connection.execution_options(**self._options(write=False, isolation_level="REPEATABLE READ"))
        with self._connection.begin():
            yield self._connection

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """A transaction that writes; only one refresh at a time is in it."""
        if self._on_candidate:
            with self.snapshot() as connection:
                yield connection
            return
        self._connection.execution_options(**self._options(write=True, isolation_level="READ COMMITTED"))
        with self._connection.begin():
            if not self._sqlite:
                self._connection.execute(text("LOCK TABLE directory_state IN EXCLUSIVE MODE"))
            yield self._connection

    def went_through(self, rows: int) -> None:
        """So many rows more go through the tables: staged ones, or those that are worked out."""
        self._rows += rows
        self._tables.rows += rows

    def stage(self, rows: dict[str, list[Values]]) -> None:
        """Adds rows (kind → values in the order of ``RefreshTables.staged_columns``) to the staged tables."""
        with self.scratch():
            before = self._rows
            self.went_through(sum(map(len, rows.values())))
            if not self._is_small and before <= _FEW_ROWS < self._rows:
                self._make_room()
            for kind, values in rows.items():
                if not values:
                    continue
                self._kinds_staged.add(kind)
                self._insert(self._inserts[kind], values)

    def fill(self, table: Table, rows: list[Values]) -> None:
        """Adds rows (values in the order of the columns) to a table, in the transaction that is open."""
        self._insert(self._insert_text(table, tuple(column.name for column in table.columns)), rows)

    def analyze(self, table: Table) -> None:
        """Tells PostgreSQL's planner how large a table has become, in the transaction that is open.

        It would notice by itself after a while, and of temporary tables never.
        """
        if not self._sqlite:
            self._connection.execute(text(f"ANALYZE {table.name}"))

    def analyze_if_many(self, table: Table, rows: int) -> None:
        """The same if so many of its rows have changed."""
        if rows > _WORTH_ANALYZING:
            self.analyze(table)

    def run_all(self, statements: Iterable[str]) -> None:
        """Executes texts without parameters, in the transaction that is open."""
        execute_raw(self._connection, statements)

    @contextmanager
    def looking_up(self) -> Iterator[None]:
        """For statements that look a few rows up in large tables: PostgreSQL's planner, which knows nothing of how few
        there are in a temporary table, is kept from reading the large ones instead."""
        if self._sqlite or self._is_looking_up:
            yield
            return
        self._index_deltas()
        self.run_all(f"SET LOCAL {setting} = off" for setting in _PLANS_FOR_MANY)
        self._is_looking_up = True
        try:
            yield
        finally:
            self._is_looking_up = False
            # Where a statement has failed, none is taken any more, and the settings end with the transaction.
            if self._driver_connection.info.transaction_status != _FAILED:
                self.run_all(f"SET LOCAL {setting} TO DEFAULT" for setting in _PLANS_FOR_MANY)

    @property
    def _driver_connection(self) -> Any:
        return self._connection.connection.driver_connection

    def _insert(self, statement: str, values: list[Values]) -> None:
        if self._sqlite:
            insert_on_sqlite(self._connection, statement, values)
            return
        with self._driver_connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in values:
                copy.write_row(row)

    def _options(self, *, write: bool, isolation_level: str = "READ COMMITTED") -> dict[str, Any]:
        return {WRITE: write} if self._sqlite else {WRITE: write, "isolation_level": isolation_level}

    def _insert_text(self, table: Table, columns: tuple[str, ...]) -> str:
        names = ", ".join(columns)
        if self._sqlite:
            # A row that fails ends the transaction. Of a statement that could be taken back alone SQLite would write
            # pages to a file as they were before.
            return f"INSERT OR FAIL INTO {table.name} ({names})"
        return f"COPY {table.name} ({names}) FROM STDIN"
