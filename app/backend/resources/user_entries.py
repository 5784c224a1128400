"""Reads and writes users' entries on organizations, folders and documents.

A user may have an entry on the organization, on each folder and on each document. Entries are independent: each has
its own metadata and role.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import BindParameter, ColumnElement, Connection, Row, and_, delete, or_, select

from app.backend.resources.tables import USER_ENTRY
from app.backend.scope import Scope, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import Writable, among, update_rows

EntryLevel = Literal["organization", "folder", "document"]


@dataclass(frozen=True, slots=True)
class EntryContainer:
    """The organization (with an empty ``container_id``), a folder or a document."""

    level: EntryLevel
    container_id: str


THE_ORGANIZATION = EntryContainer("organization", "")


@dataclass(slots=True)
class Entry:
    """A loaded or new entry."""

    user_id: str
    access_role: str
    expires_at: int | None
    payload: dict[str, object] = field(default_factory=dict)


def at(scope: Scope, container: EntryContainer) -> ColumnElement[bool]:
    """The entries in this container."""
    return and_(
        within(USER_ENTRY, scope),
        USER_ENTRY.c.level == container.level,
        USER_ENTRY.c.container_id == container.container_id,
    )


def of_users(
    connection: Connection, scope: Scope, container: EntryContainer, user_ids: Iterable[str]
) -> ColumnElement[bool]:
    """The entries of these users in this container."""
    return and_(at(scope, container), among(connection, USER_ENTRY.c.user_id, user_ids))


def not_expired(now: int | BindParameter[int]) -> ColumnElement[bool]:
    """The entries that have not expired at ``now`` (epoch milliseconds)."""
    return or_(USER_ENTRY.c.expires_at.is_(None), USER_ENTRY.c.expires_at > now)


def drop_expired(
    connection: Connection, scope: Scope, container: EntryContainer, now: int, user_ids: Iterable[str] | None = None
) -> None:
    """Deletes the expired entries in this container, of all users or of these."""
    entries = at(scope, container) if user_ids is None else of_users(connection, scope, container, user_ids)
    connection.execute(delete(USER_ENTRY).where(entries, USER_ENTRY.c.expires_at <= now))


def delete_entries(connection: Connection, scope: Scope, level: EntryLevel, container_ids: Iterable[str]) -> None:
    """Deletes the entries on these folders or documents."""
    in_containers = within_ids(connection, scope, USER_ENTRY.c.container_id, container_ids)
    connection.execute(delete(USER_ENTRY).where(in_containers, USER_ENTRY.c.level == level))


def existing(connection: Connection, scope: Scope, container: EntryContainer, user_ids: Iterable[str]) -> set[str]:
    """The users who have an entry in this container."""
    query = select(USER_ENTRY.c.user_id).where(of_users(connection, scope, container, user_ids))
    return set(connection.scalars(query))


def load(
    connection: Connection, scope: Scope, container: EntryContainer, user_ids: Iterable[str], now: int
) -> dict[str, Entry]:
    """The users' entries in this container that have not expired, by user."""
    query = select(USER_ENTRY.c.user_id, USER_ENTRY.c.access_role, USER_ENTRY.c.expires_at, USER_ENTRY.c.payload).where(
        of_users(connection, scope, container, user_ids), not_expired(now)
    )
    return {
        row.user_id: Entry(row.user_id, row.access_role, row.expires_at, json_columns.load_object(row.payload))
        for row in connection.execute(query)
    }


def row(scope: Scope, container: EntryContainer, entry: Entry, now: int) -> Writable:
    """The row of a new entry."""
    place = {"level": container.level, "container_id": container.container_id}
    return scope.row(entry) | place | {"created_at": now, "updated_at": now}


def save(connection: Connection, rows: list[Writable]) -> None:
    """Updates role, expiry and payload of existing entries."""
    update_rows(connection, USER_ENTRY, ("access_role", "expires_at", "payload", "updated_at"), rows)


def to_wire(
    user_id: str, access_role: str | None, expires_at: int | None, payload: Mapping[str, object]
) -> dict[str, object]:
    """An entry in the result of Get Users: metadata, id, role and, if access ends, ``expiresAt`` in epoch seconds."""
    end = None if expires_at is None else expires_at // 1000
    return {**payload, "userId": user_id} | json_columns.without_none(accessRole=access_role, expiresAt=end)


def row_to_wire(row: Row[str, str, str, int | None, str]) -> dict[str, object]:
    """A row with the columns of an entry, in the result of Get Users."""
    return to_wire(row.user_id, row.access_role, row.expires_at, json_columns.load_object(row.payload))
