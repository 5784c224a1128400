"""Which keys a merge looks at: all of them, or those that a change touches.

The rules of merging (``merge.py``) are statements over what the sources give. Each of them asks its scope where that
stands and which rows it is about, whether a row counts so far, and whether what it refers to stands. So the same rules
serve both merges:

* ``Everything`` looks at all rows; a thing stands when a source gives it and it was not left out.
* ``Touched`` looks at the keys in the ``touched`` tables; what is given under them stands in ``combined``. Whatever
  else there is stays as it is in the access model, so a thing stands when the access model has it and will keep it, or
  is about to get it. Whose an alias is, the access model says already.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol, Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Executable,
    Table,
    and_,
    exists,
    false,
    or_,
    select,
    true,
    tuple_,
)

from app.access.records import Folder
from app.model.refresh.scratch import (
    MODEL_TABLES,
    TABLES_OF_KIND,
    USER_ALIAS,
    ModelTables,
    RowChange,
    ScratchTables,
    dialect_of,
    same,
)
from app.store.access_tables import ModelUserAliasRow
from app.store.record_tables import Reference, core_table

Columns = tuple[ColumnElement[str], ...]

Rule = Callable[..., Executable]
"""(the kind's tables, the scope, further hashable arguments) → one statement."""


class MergeScope(Protocol):
    """What the rules of merging ask."""

    @property
    def holders(self) -> Table:
        """Who has which alias, of the users that count: ``alias`` and ``user_id``."""
        ...

    def given(self, tables: ScratchTables) -> Table:
        """Where that which the sources give stands; it has at least the rows that are looked at."""
        ...

    def within(self, tables: ModelTables, table: Table) -> ColumnElement[bool]:
        """The condition that a row of ``table``, which has the kind's key columns, is looked at."""
        ...

    def counts(self, tables: ModelTables) -> ColumnElement[bool]:
        """The condition that a row of ``tables.given`` that is looked at is not left out so far."""
        ...

    def stands(self, reference: Reference, columns: Columns) -> ColumnElement[bool]:
        """The condition that a record with this key counts; the columns are in the order of its key."""
        ...

    def holds_folder(self, columns: Columns) -> ColumnElement[bool]:
        """The condition that a folder that is not looked at counts: what hangs below it is reached from the top."""
        ...

    def may_stand(self, connection: Connection, tables: ModelTables) -> bool:
        """Whether the access model may have any row of the kind that is looked at."""
        ...

    def run(self, connection: Connection, rule: Rule, tables: ModelTables, *arguments: object) -> CursorResult[Any]:
        """Executes a rule."""
        ...

    def leave_out(self, connection: Connection, rule: Rule, tables: ModelTables, *arguments: object) -> None:
        """Executes a rule that fills the kind's ``left_out``."""
        ...


class Everything:
    """All rows of all sources, where records of these kinds were left out so far."""

    holders = USER_ALIAS

    def __init__(self, kinds_left_out: Iterable[str] = ()) -> None:
        self._kinds_left_out = set(kinds_left_out)

    @classmethod
    def as_merged(cls, connection: Connection) -> Self:
        """After the merge, in the transaction of a connection."""
        return cls(kind for kind, any_of_it in connection.exec_driver_sql(_KINDS_LEFT_OUT) if any_of_it)

    def given(self, tables: ScratchTables) -> Table:
        """A view of all of it."""
        return tables.given

    def within(self, _tables: ModelTables, _table: Table) -> ColumnElement[bool]:
        """Every row is."""
        return true()

    def counts(self, tables: ModelTables) -> ColumnElement[bool]:
        """Asked for where nothing is left out any more, it costs nothing."""
        return _is_not_left_out(tables, tables.given) if tables.kind in self._kinds_left_out else true()

    def stands(self, reference: Reference, columns: Columns) -> ColumnElement[bool]:
        """A source gives it, and it is not left out."""
        target = TABLES_OF_KIND[reference.kind]
        return exists().where(_has_key(target, target.given, columns), self.counts(target))

    def holds_folder(self, _columns: Columns) -> ColumnElement[bool]:
        """There is none that is not looked at."""
        return false()

    def may_stand(self, connection: Connection, tables: ModelTables) -> bool:
        """Whether it has any of the kind: it has none when the first directory is read."""
        return connection.exec_driver_sql(f"SELECT 1 FROM {tables.access.name} LIMIT 1").first() is not None  # noqa: S608 - our own tables

    def run(self, connection: Connection, rule: Rule, tables: ModelTables, *arguments: object) -> CursorResult[Any]:
        """Executes the text that was made of the rule when it was first needed with the same kinds left out."""
        text = _text(connection.dialect.name, rule, tables.kind, arguments, frozenset(self._kinds_left_out))
        return connection.exec_driver_sql(text)

    def leave_out(self, connection: Connection, rule: Rule, tables: ModelTables, *arguments: object) -> None:
        """The rules that come after it know whether it has left anything out."""
        if self.run(connection, rule, tables, *arguments).rowcount:
            self._kinds_left_out.add(tables.kind)


_KINDS_LEFT_OUT = " UNION ALL ".join(
    f"SELECT '{tables.kind}', EXISTS (SELECT 1 FROM {tables.left_out.name})"  # noqa: S608 - our own tables
    for tables in MODEL_TABLES
)


class Touched:
    """The keys in the ``touched`` tables. Kinds are merged in their order: the ``delta`` tables of those that a record
    refers to are filled when its own kind is looked at."""

    holders = core_table(ModelUserAliasRow)

    def given(self, tables: ScratchTables) -> Table:
        """What is given under the touched keys, and nothing else; fills as they are."""
        return tables.combined if isinstance(tables, ModelTables) else tables.given

    def within(self, tables: ModelTables, table: Table) -> ColumnElement[bool]:
        """Its key is among those that are touched."""
        return true() if table is tables.combined else _has_key_in(tables, table, tables.touched)

    def counts(self, tables: ModelTables) -> ColumnElement[bool]:
        """It is not left out."""
        return _is_not_left_out(tables, tables.combined)

    def stands(self, reference: Reference, columns: Columns) -> ColumnElement[bool]:
        """The access model is about to get it, or has it and does not lose it."""
        target = TABLES_OF_KIND[reference.kind]
        added, removed = target.delta.alias("added"), target.delta.alias("removed")
        return or_(
            exists().where(_has_key(target, added, columns), added.c.change == int(RowChange.ADD)),
            and_(
                exists().where(_has_key(target, target.access, columns)),
                ~exists().where(_has_key(target, removed, columns), removed.c.change == int(RowChange.REMOVE)),
            ),
        )

    def holds_folder(self, columns: Columns) -> ColumnElement[bool]:
        """The access model has it, and it is not touched."""
        tables = TABLES_OF_KIND[Folder.kind]
        return and_(
            exists().where(_has_key(tables, tables.access, columns)),
            ~exists().where(_has_key(tables, tables.touched, columns)),
        )

    def may_stand(self, _connection: Connection, _tables: ModelTables) -> bool:
        """What is touched mostly does."""
        return True

    def run(self, connection: Connection, rule: Rule, tables: ModelTables, *arguments: object) -> CursorResult[Any]:
        """Executes the text that was made of the rule when it was first needed: that takes longer than a look-up."""
        return connection.exec_driver_sql(_text(connection.dialect.name, rule, tables.kind, arguments, None))

    def leave_out(self, connection: Connection, rule: Rule, tables: ModelTables, *arguments: object) -> None:
        """The same: its statements always look at what was left out."""
        self.run(connection, rule, tables, *arguments)


TOUCHED = Touched()


def _has_key_in(tables: ModelTables, table: Any, keys: Any) -> ColumnElement[bool]:
    """The condition that a row has one of the keys in the other table; told so that both databases look rows up by key,
    one by one."""
    columns = [table.c[name] for name in tables.keys]
    wanted = select(*(keys.c[name] for name in tables.keys))
    return columns[0].in_(wanted) if len(columns) == 1 else tuple_(*columns).in_(wanted)


def _has_key(tables: ModelTables, table: Any, columns: Columns) -> ColumnElement[bool]:
    return and_(*(table.c[name] == column for name, column in zip(tables.keys, columns, strict=True)))


def _is_not_left_out(tables: ModelTables, given: Table) -> ColumnElement[bool]:
    return ~exists().where(same(tables.left_out, given, tables.given_keys))


@lru_cache(maxsize=1024)
def _text(
    dialect: str, rule: Rule, kind: str, arguments: tuple[object, ...], kinds_left_out: frozenset[str] | None
) -> str:
    """The rule in SQL; ``kinds_left_out``: over everything, None: over what is touched."""
    scope = TOUCHED if kinds_left_out is None else Everything(kinds_left_out)
    statement: Any = rule(TABLES_OF_KIND[kind], scope, *arguments)
    return str(statement.compile(dialect=dialect_of(dialect), compile_kwargs={"literal_binds": True}))
