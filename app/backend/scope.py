"""One organization of one API key, which nearly every statement is limited to."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, bindparam, delete, select

from app.backend.storage import json_sets
from app.backend.storage.rows import Writable


@dataclass(frozen=True, slots=True)
class Scope:
    """An organization of an API key."""

    api_key_id: str
    organization_id: str

    def columns(self) -> dict[str, Any]:
        """The columns of a row in this scope, and the parameters of a statement with ``within_bound``."""
        return {"api_key_id": self.api_key_id, "organization_id": self.organization_id}

    def row(self, item: Any) -> Writable:
        """A dataclass with a ``payload``, whose fields are named as columns, as a row in this scope."""
        values = {field.name: getattr(item, field.name) for field in fields(item)}
        return self.columns() | values | {"payload": json_sets.dump(dict(item.payload))}


def within(table: Table, scope: Scope) -> ColumnElement[bool]:
    """The rows of ``table`` that belong to this organization of this API key."""
    return and_(table.c.api_key_id == scope.api_key_id, table.c.organization_id == scope.organization_id)


def within_bound(table: Table) -> ColumnElement[bool]:
    """The same with parameters, for a statement that is built once: ``Scope.columns`` are its values."""
    return and_(table.c.api_key_id == bindparam("api_key_id"), table.c.organization_id == bindparam("organization_id"))


def own_columns(table: Table) -> list[Column[Any]]:
    """The columns of ``table`` besides those of the scope."""
    return [column for column in table.columns if column.name not in {"api_key_id", "organization_id"}]


def existing(connection: Connection, scope: Scope, column: Column[Any], ids: Iterable[str]) -> set[str]:
    """Those of the ids that a row in this scope has in ``column``."""
    found = select(column).where(within(column.table, scope), column.in_(json_sets.texts(connection, ids)))
    return set(connection.scalars(found))


def delete_within(connection: Connection, table: Table, api_key_id: str, organization_ids: Iterable[str]) -> None:
    """Deletes the rows of these organizations of an API key."""
    where = (table.c.api_key_id == api_key_id) & json_sets.among(connection, table.c.organization_id, organization_ids)
    connection.execute(delete(table).where(where))
