"""Creates tables and indexes in migrations, from texts such as ``activity_id* happened_at:bigint``.

A migration always creates the same table. It cannot use the tables of the code, which change later.
"""

import re

import sqlalchemy as sa
from alembic import op

_TYPES = {
    None: sa.String,
    "text": sa.Text,
    "int": sa.Integer,
    "bigint": sa.BigInteger,
    "bool": sa.Boolean,
    "bytes": sa.LargeBinary,
}
_COLUMN = re.compile(r"(?P<name>\w+)(:(?P<type>\w+))?(?P<key>\*)?(?P<nullable>\?)?(=(?P<default>.*))?")


def create_table(table: str, columns: str, *, clustered: bool = False) -> None:
    """Creates a table. ``columns`` are separated by spaces.

    A column is ``name`` (a string) or ``name:type``. Then may follow ``*`` for a column of the primary key, ``?`` for a
    nullable column, and ``=value`` for a default in the database. ``clustered``: on SQLite the rows are stored in the
    primary key, without rowids.
    """
    described = columns_of(columns)
    keys = [column.name for column in described if column.info["key"]]
    op.create_table(
        table, *described, sa.PrimaryKeyConstraint(*keys, name=op.f(f"pk_{table}")), sqlite_with_rowid=not clustered
    )


def add_columns(table: str, columns: str) -> None:
    """Adds columns to a table, described as for ``create_table``."""
    for column in columns_of(columns):
        op.add_column(table, column)


def columns_of(columns: str) -> "list[sa.Column[object]]":
    """The columns, described as for ``create_table``."""
    return list(map(_column, columns.split()))


def create_index(index: str, table: str, columns: str, *, unique: bool = False, where: str | None = None) -> None:
    """Creates an index. ``where`` limits it to some rows."""
    rows = None if where is None else sa.text(where)
    op.create_index(op.f(index), table, columns.split(), unique=unique, sqlite_where=rows, postgresql_where=rows)


def _column(text: str) -> "sa.Column[object]":
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} does not describe a column")
    return sa.Column(
        match["name"],
        _TYPES[match["type"]](),
        nullable=match["nullable"] is not None,
        server_default=sa.false() if match["default"] == "false" else match["default"],
        info={"key": match["key"] is not None},
    )
