"""Loads and stores the configurations of an API key that contain a secret, such as the permission provider's token.

The secret is encrypted in the table's column ``…_sealed``, which is empty without a secret.
"""

from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select

from app.backend.security.vault import Vault


def load_config(connection: Connection, vault: Vault, table: Table, api_key_id: str) -> tuple[Row[Any] | None, str]:
    """The row of the API key, if there is one, and its secret."""
    row = connection.execute(select(table).where(table.c.api_key_id == api_key_id)).one_or_none()
    sealed = "" if row is None else getattr(row, _sealed_column(table))
    return row, vault.stored.open(sealed, _context(table, api_key_id)) if sealed else ""


def store_config(
    connection: Connection, vault: Vault, table: Table, api_key_id: str, secret: str, **columns: object
) -> None:
    """Replaces the row of the API key."""
    sealed = vault.stored.close(secret, _context(table, api_key_id)) if secret else ""
    connection.execute(delete(table).where(table.c.api_key_id == api_key_id))
    row = {"api_key_id": api_key_id, _sealed_column(table): sealed, **columns}
    connection.execute(insert(table).values(row))


def _sealed_column(table: Table) -> str:
    return next(column.name for column in table.columns if column.name.endswith("_sealed"))


def _context(table: Table, api_key_id: str) -> str:
    return f"{table.name} {api_key_id}"
