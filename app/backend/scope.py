"""One organization of one API key, and the conditions, rows, reads and deletes that are limited to it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, select

from app.backend.storage import json_columns
from app.backend.storage.base import METADATA
from app.backend.storage.rows import Writable, among


@dataclass(frozen=True, slots=True)
class Scope:
    """An organization of an API key."""

    api_key_id: str
    organization_id: str

    def columns(self) -> dict[str, Any]:
        """The scope as columns of a row."""
        return {"api_key_id": self.api_key_id, "organization_id": self.organization_id}

    def payload_row(self, payload: Mapping[str, object], now: int, **columns: object) -> Writable:
        """A row with this payload that is inserted or updated at ``now`` (epoch milliseconds)."""
        return self.columns() | columns | {"payload": json_columns.dump(payload), "created_at": now, "updated_at": now}

    def row(self, item: Any) -> Writable:
        """The row of a dataclass with a ``payload``, whose fields have the names of columns."""
        values = {field.name: getattr(item, field.name) for field in fields(item)}
        return self.columns() | values | {"payload": json_columns.dump(dict(item.payload))}


def within(table: Table, scope: Scope) -> ColumnElement[bool]:
    """The rows of ``table`` in this scope."""
    return and_(table.c.api_key_id == scope.api_key_id, table.c.organization_id == scope.organization_id)


def within_ids(connection: Connection, scope: Scope, column: Column[Any], ids: Iterable[object]) -> ColumnElement[bool]:
    """The rows in this scope whose ``column`` has one of the ids."""
    return and_(within(column.table, scope), among(connection, column, ids))


def own_columns(table: Table) -> list[Column[Any]]:
    """The columns of ``table`` except those of the scope."""
    return [column for column in table.columns if column.name not in {"api_key_id", "organization_id"}]


def existing(connection: Connection, scope: Scope, column: Column[Any], ids: Iterable[str]) -> set[str]:
    """The ids that a row in this scope has in ``column``."""
    return set(connection.scalars(select(column).distinct().where(within_ids(connection, scope, column, ids))))


def delete_rows(connection: Connection, scope: Scope, column: Column[Any], ids: Iterable[str]) -> None:
    """Deletes the rows in this scope whose ``column`` has one of the ids."""
    connection.execute(delete(column.table).where(within_ids(connection, scope, column, ids)))


def delete_of_organizations(connection: Connection, api_key_id: str, organization_ids: Collection[str]) -> None:
    """Deletes the rows of these organizations from every table that has any."""
    for table in METADATA.sorted_tables:
        if {"api_key_id", "organization_id"} <= set(table.c.keys()):
            in_organizations = among(connection, table.c.organization_id, organization_ids)
            connection.execute(delete(table).where(table.c.api_key_id == api_key_id, in_organizations))
