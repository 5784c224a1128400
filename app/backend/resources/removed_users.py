"""Removed users, who are not notified of documents on which they have no entry.

Participants of a thread are notified whether or not they were added as users. After a user was removed from the
organization, or from a folder, a document or a group of it, they are notified only of documents that they still reach:
by an entry on the organization, a folder or the document itself, or as a member of a group.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, or_, select

from app.backend.resources import user_entries
from app.backend.resources.tables import GROUP_MEMBER, REMOVED_USER, USER_ENTRY
from app.backend.scope import Scope, delete_rows, existing, within_ids
from app.backend.storage.rows import among, upsert


def mark_removed(connection: Connection, scope: Scope, user_ids: Iterable[str]) -> None:
    """Records that these users were removed from something in the organization."""
    rows = [scope.columns() | {"user_id": user_id} for user_id in dict.fromkeys(user_ids)]
    if rows:
        connection.execute(upsert(connection, REMOVED_USER).on_conflict_do_nothing(), rows)


def clear_removed(connection: Connection, scope: Scope, user_ids: Iterable[str]) -> None:
    """Records that these users were added to the organization again."""
    delete_rows(connection, scope, REMOVED_USER.c.user_id, user_ids)


def excluded_pairs(
    connection: Connection, scope: Scope, recipients: Mapping[str, Iterable[str]], now: int
) -> frozenset[tuple[str, str]]:
    """The pairs of document and user in ``recipients`` (users by document) that must not be notified."""
    user_ids = {user_id for users in recipients.values() for user_id in users}
    removed = existing(connection, scope, REMOVED_USER.c.user_id, user_ids) if user_ids else set()
    if not removed:
        return frozenset()
    entries = select(USER_ENTRY.c.user_id, USER_ENTRY.c.level, USER_ENTRY.c.container_id).where(
        within_ids(connection, scope, USER_ENTRY.c.user_id, removed),
        user_entries.not_expired(now),
        or_(USER_ENTRY.c.level != "document", among(connection, USER_ENTRY.c.container_id, recipients)),
    )
    anywhere = existing(connection, scope, GROUP_MEMBER.c.user_id, removed)
    on_document: set[tuple[str, str]] = set()
    for user_id, level, container_id in connection.execute(entries):
        if level == "document":
            on_document.add((container_id, user_id))
        else:
            anywhere.add(user_id)
    return frozenset(
        (document_id, user_id)
        for document_id, users in recipients.items()
        for user_id in removed.intersection(users) - anywhere
        if (document_id, user_id) not in on_document
    )
