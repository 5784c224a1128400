"""Users' entries: where does a user stand, and how is that stored?

A user has an entry per level: on the organization, on a folder, on a document. Entries know nothing of each other;
each carries its own metadata and role.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import BindParameter, ColumnElement, Connection, Row, and_, delete, or_, select

from app.backend.resources.tables import USER_ENTRY
from app.backend.scope import Scope, within
from app.backend.storage import json_sets
from app.backend.storage.rows import Writable, update_rows


@dataclass(frozen=True, slots=True)
class EntryContainer:
    """What entries are on: ``container_id`` names the folder or document and is empty for the organization."""

    level: str
    container_id: str


THE_ORGANIZATION = EntryContainer("organization", "")


@dataclass(slots=True)
class Entry:
    """An entry as it is loaded, to be changed and saved."""

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


def in_force(now: int | BindParameter[int]) -> ColumnElement[bool]:
    """The entries whose time is not over at ``now`` (epoch milliseconds)."""
    return or_(USER_ENTRY.c.expires_at.is_(None), USER_ENTRY.c.expires_at > now)


def drop_expired(
    connection: Connection, scope: Scope, container: EntryContainer, now: int, user_ids: Iterable[str] | None = None
) -> None:
    """Deletes the expired entries in this container; those of these users, if any are named."""
    expired = delete(USER_ENTRY).where(at(scope, container), USER_ENTRY.c.expires_at <= now)
    if user_ids is not None:
        expired = expired.where(USER_ENTRY.c.user_id.in_(json_sets.texts(connection, user_ids)))
    connection.execute(expired)


def existing(connection: Connection, scope: Scope, container: EntryContainer, user_ids: Iterable[str]) -> set[str]:
    """Those of the users who have an entry in this container."""
    whose = USER_ENTRY.c.user_id.in_(json_sets.texts(connection, user_ids))
    return set(connection.scalars(select(USER_ENTRY.c.user_id).where(at(scope, container), whose)))


def load(
    connection: Connection, scope: Scope, container: EntryContainer, user_ids: Iterable[str], now: int
) -> dict[str, Entry]:
    """The users' entries in this container whose time is not over, by user."""
    query = select(USER_ENTRY.c.user_id, USER_ENTRY.c.access_role, USER_ENTRY.c.expires_at, USER_ENTRY.c.payload).where(
        at(scope, container), in_force(now), USER_ENTRY.c.user_id.in_(json_sets.texts(connection, user_ids))
    )
    return {
        row.user_id: Entry(row.user_id, row.access_role, row.expires_at, json_sets.load_object(row.payload))
        for row in connection.execute(query)
    }


def row(scope: Scope, container: EntryContainer, entry: Entry, now: int) -> Writable:
    """A new entry as a row."""
    place = {"level": container.level, "container_id": container.container_id}
    return scope.row(entry) | place | {"created_at": now, "updated_at": now}


def save(connection: Connection, rows: list[Writable]) -> None:
    """Writes role, expiry and payload of entries that exist; ``rows`` are as ``row`` makes them."""
    update_rows(connection, USER_ENTRY, ("access_role", "expires_at", "payload", "updated_at"), rows)


def to_wire(
    user_id: str, access_role: str | None, expires_at: int | None, payload: Mapping[str, object]
) -> dict[str, object]:
    """An entry as Get Users tells it: the user's metadata as it came, the id and the role.

    ``expiresAt`` is in epoch seconds and comes only where access was given for a time.
    """
    ends = None if expires_at is None else expires_at // 1000
    return {**payload, "userId": user_id} | json_sets.without_none(accessRole=access_role, expiresAt=ends)


def row_to_wire(found: Row[str, str, str, int | None, str]) -> dict[str, object]:
    """The same for a row that has the columns of an entry."""
    return to_wire(found.user_id, found.access_role, found.expires_at, json_sets.load_object(found.payload))
