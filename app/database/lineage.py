"""Databases that were made between releases, and how they are brought back to the line of revisions.

The first revision was changed, and changed back, after it had been out: the name of a revision alone does not tell what
a database holds. So what it does hold is compared, by tables, columns and indexes, with what its revision
makes. What a later revision makes and is there already is not made again; what is known to have been left out once is
made; anything else is refused.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, Table, create_engine, inspect
from sqlalchemy.engine.interfaces import ReflectedIndex
from sqlalchemy.pool import StaticPool

from app.database.programs import SchemaError


class SchemaUnknownError(SchemaError):
    """The database does not hold what its revision makes."""


Part = tuple[str, ...]
"""A table, or a table and one of its columns or indexes. An index is told by its columns: PostgreSQL shortens names."""


@dataclass(frozen=True, slots=True)
class Line:
    """The revisions of a program."""

    scripts: ScriptDirectory
    upgrade_to: Callable[[Connection, str], None]
    """Brings a database to a revision."""
    once_left_out: Collection[str]
    """Tables that the first revision did not make when it was first out."""
    new_database: str
    """How one names another database."""


def bring_in_line(connection: Connection, context: MigrationContext, line: Line) -> None:
    """Makes what a database holds and the revision that it carries fit together; nothing where they do.

    Raises ``SchemaUnknownError``.
    """
    heads = context.get_current_heads()
    if len(heads) != 1:
        return
    revision = heads[0]
    later = [script.revision for script in line.scripts.iterate_revisions("head", revision)][::-1]
    with create_engine("sqlite://", poolclass=StaticPool).connect() as model:
        line.upgrade_to(model, revision)
        made = _parts(model)
        _make_left_out(connection, model, line.once_left_out)
        held = _parts(connection)
        if lacking := made - held:
            raise SchemaUnknownError(
                f"the database lacks {_named(min(lacking))}, which its revision {revision} makes: {_advice(line)}"
            )
        is_next = True
        for revision in later:
            line.upgrade_to(model, revision)
            before, made = made, _parts(model)
            added = made - before
            is_next = is_next and bool(added) and added <= held
            if is_next:
                context.stamp(line.scripts, revision)
            elif early := added & held:
                raise SchemaUnknownError(
                    f"the database has {_named(min(early))} already, which revision {revision} makes: {_advice(line)}"
                )


def _advice(line: Line) -> str:
    return (
        f"it was changed by hand, or restored in part; restore a whole backup, or use a new one ({line.new_database})"
    )


def _make_left_out(connection: Connection, model: Connection, tables: Collection[str]) -> None:
    there = set(inspect(connection).get_table_names())
    for name in set(tables) & set(inspect(model).get_table_names()) - there:
        Table(name, MetaData(), autoload_with=model).create(connection)


def _parts(connection: Connection) -> set[Part]:
    inspector = inspect(connection)
    parts: set[Part] = set()
    for table in inspector.get_table_names():
        parts.add((table,))
        parts.update((table, "column", column["name"]) for column in inspector.get_columns(table))
        parts.update((table, "index on", _columns(index)) for index in inspector.get_indexes(table))
    return parts


def _columns(index: ReflectedIndex) -> str:
    return ", ".join(str(name) for name in index["column_names"])


def _named(part: Part) -> str:
    table, *inner = part
    return f"the {' '.join(inner)} of table {table}" if inner else f"the table {table}"
