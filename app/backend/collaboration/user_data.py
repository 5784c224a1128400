"""Get All User Data: everything of one user in one organization, each kind of it read page by page.

What a page ended with is kept for each kind on its own, so that one token leads through all of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    Row,
    Select,
    Subquery,
    bindparam,
    literal,
    null,
    select,
    union,
    union_all,
)

from app.backend.collaboration import comments, notifications, threads
from app.backend.collaboration.tables import COMMENT, NOTIFICATION, NOTIFICATION_USER, REACTION, RECORDING, THREAD_USER
from app.backend.http.call import Call, Reply
from app.backend.resources.tables import GROUP_MEMBER, USER_ENTRY
from app.backend.resources.user_entries import in_force
from app.backend.scope import Scope, within, within_bound
from app.backend.storage import json_sets
from app.backend.storage.paging import Page, cut
from app.contract import limits
from app.contract.userdata import GetAllUserDataRequest
from app.foundation.database.engine import is_sqlite

Position = list[str]
_FINISHED = ""
_SIZE = limits.USER_DATA_PAGE
_USER: BindParameter[str] = bindparam("user_id")


def get_all_user_data(call: Call[GetAllUserDataRequest], connection: Connection) -> Reply:
    """A kind of data that has been read to its end is an empty list on the pages after that."""
    request = call.request
    scope = call.scope
    reached = call.position(request.page_token)
    data: dict[str, list[dict[str, object]]] = {}
    ends: list[str] = []
    for number, (name, read) in enumerate(readers(call.now).items()):
        if reached is not None and reached[number] == _FINISHED:
            data[name] = []
            ends.append(_FINISHED)
            continue
        after = None if reached is None else orjson.loads(reached[number])
        data[name], position = read(connection, scope, request.user_id, after)
        ends.append(_FINISHED if position is None else orjson.dumps(position).decode())
    token = call.next_page_token(ends) if any(ends) else None
    return Reply("User data retrieved successfully.", data, token)


class DataPage(NamedTuple):
    """A page of one kind of data, and where it ended; None when nothing follows."""

    items: list[dict[str, object]]
    position: Position | None


Reader = Callable[[Connection, Scope, str, Position | None], DataPage]
"""Reads the page of a user's data that begins after a position."""


def _memberships() -> Subquery:
    entries = select(
        USER_ENTRY.c.level,
        USER_ENTRY.c.container_id,
        USER_ENTRY.c.access_role,
        USER_ENTRY.c.expires_at,
        USER_ENTRY.c.payload,
    ).where(within_bound(USER_ENTRY), USER_ENTRY.c.user_id == _USER, in_force(bindparam("now", type_=BigInteger)))
    groups = select(literal("group"), GROUP_MEMBER.c.group_id, null(), null(), literal("{}")).where(
        within_bound(GROUP_MEMBER), GROUP_MEMBER.c.user_id == _USER
    )
    return union_all(entries, groups).subquery()


def _notifications_page(after: Position | None) -> Select[Any]:
    """A page of them, with the columns that ``notifications.to_wire`` needs, and ``user_id`` and ``persists`` of the
    user's own row: null where they have not read it.
    """
    theirs = NOTIFICATION_USER.c
    addressed = select(theirs.created_at, theirs.notification_id).where(
        within_bound(NOTIFICATION_USER), theirs.user_id == _USER
    )
    caused = select(NOTIFICATION.c.created_at, NOTIFICATION.c.notification_id).where(
        within_bound(NOTIFICATION), NOTIFICATION.c.action_user_id == _USER
    )
    branches = [
        select(Page(tuple(query.selected_columns), after, _SIZE).of(query).subquery()) for query in (addressed, caused)
    ]
    # One that somebody is told of their own doing stands in both.
    found = union(*branches).subquery()
    same = (NOTIFICATION.c.notification_id == found.c.notification_id) & within_bound(NOTIFICATION)
    have_read = (
        (theirs.notification_id == NOTIFICATION.c.notification_id)
        & within_bound(NOTIFICATION_USER)
        & (theirs.user_id == _USER)
        & theirs.read_at.is_not(None)
    )
    query = select(*notifications.COLUMNS, theirs.user_id, theirs.persists).select_from(
        found.join(NOTIFICATION, same).outerjoin(NOTIFICATION_USER, have_read)
    )
    return Page((found.c.created_at, found.c.notification_id), None, _SIZE).of(query)


# To put these two together takes several times as long as to execute them.
_MEMBERSHIPS = _memberships()
_FIRST_NOTIFICATIONS = _notifications_page(None)


def read_memberships(connection: Connection, scope: Scope, user_id: str, after: Position | None, now: int) -> DataPage:
    """Where the user stands at ``now`` (``level``: organization, folder, document or group), and their profile
    there."""
    page = Page((_MEMBERSHIPS.c.level, _MEMBERSHIPS.c.container_id), after, _SIZE)
    whose = scope.columns() | {"user_id": user_id}
    return _part(page, connection.execute(page.of(select(_MEMBERSHIPS)), whose | {"now": now}).all(), _membership)


def read_comments(connection: Connection, scope: Scope, user_id: str, after: Position | None) -> DataPage:
    """The comments of all threads in which the user takes part: their own and those that involve them."""
    page = Page((COMMENT.c.annotation_id, *comments.KEYS), after, _SIZE)
    rows: list[Row[Any]] = []
    if after is not None:
        # What is left of the thread in which the page before ended.
        rest = Page(comments.KEYS, after[1:], _SIZE)
        rows.extend(
            connection.execute(
                rest.of(comments.stored_comments(scope).where(COMMENT.c.annotation_id == after[0]))
            ).all()
        )
    if len(rows) <= _SIZE:
        rows.extend(_comments_of_threads(connection, scope, user_id, None if after is None else after[0]))
    rows = rows[: _SIZE + 1]
    there = threads.load_threads(connection, scope, dict.fromkeys(row.annotation_id for row in rows))

    def item(row: Row[Any]) -> dict[str, object]:
        told = comments.comment_of(row).to_wire()
        return told | {"annotationId": row.annotation_id, "documentId": there[row.annotation_id].document_id}

    return _part(page, rows, item)


def read_reactions(connection: Connection, scope: Scope, user_id: str, after: Position | None) -> DataPage:
    """The reactions that the user made."""
    query = select(REACTION).where(within(REACTION, scope), REACTION.c.user_id == user_id)
    page = Page((REACTION.c.created_at, REACTION.c.reaction_id), after, _SIZE)
    return _part(page, connection.execute(page.of(query)).all(), _reaction)


def read_recordings(connection: Connection, scope: Scope, user_id: str, after: Position | None) -> DataPage:
    """The recordings that the user made."""
    query = select(RECORDING).where(within(RECORDING, scope), RECORDING.c.user_id == user_id)
    page = Page((RECORDING.c.created_at, RECORDING.c.recording_id), after, _SIZE)
    return _part(page, connection.execute(page.of(query)).all(), _recording)


def read_notifications(connection: Connection, scope: Scope, user_id: str, after: Position | None) -> DataPage:
    """The notifications that are for the user or tell of something they did, and whether they have read them."""
    query = _FIRST_NOTIFICATIONS if after is None else _notifications_page(after)
    rows = connection.execute(query, scope.columns() | {"user_id": user_id}).all()

    def item(row: Row[Any]) -> dict[str, object]:
        return notifications.to_wire(row, () if row.user_id is None else (row,))

    return _part(Page((NOTIFICATION.c.created_at, NOTIFICATION.c.notification_id), after, _SIZE), rows, item)


def readers(now: int) -> dict[str, Reader]:
    """By the name that the kind of data has in the answer. ``now`` is epoch milliseconds."""
    return {
        "memberships": partial(read_memberships, now=now),
        "comments": read_comments,
        "reactions": read_reactions,
        "recordings": read_recordings,
        "notifications": read_notifications,
    }


def _comments_of_threads(connection: Connection, scope: Scope, user_id: str, after: str | None) -> Sequence[Row[Any]]:
    """The comments of the user's threads after this one, thread by thread, one page and a row of them."""
    whose = within(THREAD_USER, scope) & (THREAD_USER.c.user_id == user_id)
    if after is not None:
        whose &= THREAD_USER.c.annotation_id > after
    of_thread = comments.stored_comments(scope).where(COMMENT.c.annotation_id == THREAD_USER.c.annotation_id)
    if is_sqlite(connection):
        # Its nested loops come out in this order by themselves.
        query = of_thread.where(whose).order_by(THREAD_USER.c.annotation_id, *comments.KEYS)
        return connection.execute(query.limit(_SIZE + 1)).all()
    # Of each thread no more than a page can take, or a long one would be sorted as a whole.
    found = of_thread.correlate(THREAD_USER).order_by(*comments.KEYS).limit(_SIZE + 1).lateral()
    keys = [found.c[key.name] for key in comments.KEYS]
    lateral = select(found).select_from(THREAD_USER).join(found, literal(value=True)).where(whose)
    return connection.execute(lateral.order_by(THREAD_USER.c.annotation_id, *keys).limit(_SIZE + 1)).all()


def _part(page: Page, rows: Sequence[Row[Any]], item: Callable[[Row[Any]], dict[str, object]]) -> DataPage:
    kept, more = cut(rows, page.size)
    return DataPage([item(row) for row in kept], page.position(kept[-1]) if more else None)


def _membership(row: Row[Any]) -> dict[str, object]:
    wire: dict[str, object] = {**json_sets.load_object(row.payload), "level": row.level}
    if row.container_id:
        wire["id"] = row.container_id
    if row.access_role is not None:
        wire["accessRole"] = row.access_role
    if row.expires_at is not None:
        wire["expiresAt"] = row.expires_at // 1000
    return wire


def _reaction(row: Row[Any]) -> dict[str, object]:
    wire: dict[str, object] = {
        **json_sets.load_object(row.payload),
        "reactionId": row.reaction_id,
        "documentId": row.document_id,
        "createdAt": row.created_at,
    }
    if row.annotation_id:
        wire["annotationId"] = row.annotation_id
    if row.comment_id:
        wire["commentId"] = row.comment_id
    return wire


def _recording(row: Row[Any]) -> dict[str, object]:
    return {
        **json_sets.load_object(row.payload),
        "recordingId": row.recording_id,
        "documentId": row.document_id,
        "createdAt": row.created_at,
    }
