"""Users who were taken out of something: they hear only of what happens where they still are.

Whoever wrote in a thread stays part of it, and hears of what comes, whether or not somebody ever added them as a user.
Once they are taken out of the organization, or of a folder, a document or a group of it, that is over: then they hear
of events on documents on which they still have an entry, and of no others.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, delete, or_, select

from app.backend.resources import user_entries
from app.backend.resources.tables import GROUP_MEMBER, REMOVED_USER, USER_ENTRY
from app.backend.scope import Scope, within
from app.backend.storage import json_sets
from app.backend.storage.rows import upsert


def note_removed(connection: Connection, scope: Scope, user_ids: Iterable[str]) -> None:
    """These users were taken out of something in the organization."""
    rows = [scope.columns() | {"user_id": user_id} for user_id in dict.fromkeys(user_ids)]
    if rows:
        connection.execute(upsert(connection, REMOVED_USER).on_conflict_do_nothing(), rows)


def welcome(connection: Connection, scope: Scope, user_ids: Iterable[str]) -> None:
    """These users belong to the organization itself again."""
    whose = REMOVED_USER.c.user_id.in_(json_sets.texts(connection, user_ids))
    connection.execute(delete(REMOVED_USER).where(within(REMOVED_USER, scope), whose))


def excluded_pairs(
    connection: Connection, scope: Scope, told: Mapping[str, Iterable[str]], now: int
) -> frozenset[tuple[str, str]]:
    """The pairs of document and user, of those in ``told``, that are not to be told to each other."""
    wanted = {user_id for users in told.values() for user_id in users}
    if not wanted:
        return frozenset()
    whose = REMOVED_USER.c.user_id.in_(json_sets.texts(connection, wanted))
    removed = set(connection.scalars(select(REMOVED_USER.c.user_id).where(within(REMOVED_USER, scope), whose)))
    if not removed:
        return frozenset()
    ids = json_sets.texts(connection, removed)
    entries = select(USER_ENTRY.c.user_id, USER_ENTRY.c.level, USER_ENTRY.c.container_id).where(
        within(USER_ENTRY, scope),
        USER_ENTRY.c.user_id.in_(ids),
        user_entries.in_force(now),
        or_(USER_ENTRY.c.level != "document", USER_ENTRY.c.container_id.in_(json_sets.texts(connection, told))),
    )
    anywhere = set(
        connection.scalars(
            select(GROUP_MEMBER.c.user_id).where(within(GROUP_MEMBER, scope), GROUP_MEMBER.c.user_id.in_(ids))
        )
    )
    on_document: set[tuple[str, str]] = set()
    for user_id, level, container_id in connection.execute(entries):
        if level == "document":
            on_document.add((container_id, user_id))
        else:
            anywhere.add(user_id)
    return frozenset(
        (document_id, user_id)
        for document_id, users in told.items()
        for user_id in users
        if user_id in removed and user_id not in anywhere and (document_id, user_id) not in on_document
    )
