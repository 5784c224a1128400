"""Handler of Get All User Data.

Each page has a part of every kind of data. The page token contains the position of each kind.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Column, Connection, Row, Select, literal, null, select, union, union_all

from app.backend.collaboration import comments, notifications, threads
from app.backend.collaboration.tables import COMMENT, NOTIFICATION, NOTIFICATION_USER, REACTION, RECORDING, THREAD_USER
from app.backend.http.call import Call, Reply
from app.backend.resources.tables import GROUP_MEMBER, USER_ENTRY
from app.backend.resources.user_entries import not_expired
from app.backend.scope import within
from app.backend.storage import json_columns
from app.backend.storage.paging import Page, cut
from app.contract import limits
from app.contract.base import wire_name
from app.contract.users import GetAllUserDataRequest
from app.foundation.database.engine import is_sqlite

Position = list[str]
"""The key of the last item on a page."""
_FINISHED = ""
_SIZE = limits.USER_DATA_PAGE

_UserDataCall = Call[GetAllUserDataRequest]


class DataPage(NamedTuple):
    """A page of one kind of data. ``items`` are as in the response, ``end`` is None on the last page."""

    items: list[dict[str, object]]
    end: Position | None


def get_all_user_data(call: _UserDataCall, connection: Connection) -> Reply:
    """Returns the next page of each kind of data. The token contains the position in each."""
    positions = call.position(call.request.page_token)
    data: dict[str, list[dict[str, object]]] = {}
    ends: list[str] = []
    for number, (name, read) in enumerate(_READERS.items()):
        if positions is not None and positions[number] == _FINISHED:
            page = DataPage([], None)
        else:
            page = read(call, connection, None if positions is None else orjson.loads(positions[number]))
        data[name] = page.items
        ends.append(_FINISHED if page.end is None else orjson.dumps(page.end).decode())
    token = call.token_after(ends) if any(ends) else None
    return Reply("User data retrieved successfully.", data, token)


def _memberships(call: _UserDataCall, connection: Connection, after: Position | None) -> DataPage:
    """The user's entries (``level``: organization, folder, document or group), with the profile of each, and
    ``expiresAt`` in epoch seconds."""
    user_id = call.request.user_id
    entries = select(
        USER_ENTRY.c.level,
        USER_ENTRY.c.container_id,
        USER_ENTRY.c.access_role,
        USER_ENTRY.c.expires_at,
        USER_ENTRY.c.payload,
    ).where(within(USER_ENTRY, call.scope), USER_ENTRY.c.user_id == user_id, not_expired(call.now))
    groups = select(literal("group"), GROUP_MEMBER.c.group_id, null(), null(), literal("{}")).where(
        within(GROUP_MEMBER, call.scope), GROUP_MEMBER.c.user_id == user_id
    )
    memberships = union_all(entries, groups).subquery()

    def item(row: Row[Any]) -> dict[str, object]:
        wire: dict[str, object] = {**json_columns.load_object(row.payload), "level": row.level}
        if row.container_id:
            wire["id"] = row.container_id
        if row.access_role is not None:
            wire["accessRole"] = row.access_role
        if row.expires_at is not None:
            wire["expiresAt"] = row.expires_at // 1000
        return wire

    page = Page((memberships.c.level, memberships.c.container_id), after, _SIZE)
    return _data_page(page, connection.execute(page.of(select(memberships))).all(), item)


def _comments(call: _UserDataCall, connection: Connection, after: Position | None) -> DataPage:
    """The comments of all threads in which the user participates."""
    page = Page((COMMENT.c.annotation_id, *comments.COMMENT_ORDER), after, _SIZE)
    rows: list[Row[Any]] = []
    if after is not None:
        # The rest of the thread in which the last page ended.
        thread = comments.stored_comments(call.scope).where(COMMENT.c.annotation_id == after[0])
        rows.extend(connection.execute(Page(comments.COMMENT_ORDER, after[1:], _SIZE).of(thread)))
    if len(rows) <= _SIZE:
        rows.extend(_comments_of_threads(call, connection, None if after is None else after[0]))
    rows = rows[: _SIZE + 1]
    by_id = threads.load_threads(connection, call.scope, dict.fromkeys(row.annotation_id for row in rows))

    def item(row: Row[Any]) -> dict[str, object]:
        place = {"annotationId": row.annotation_id, "documentId": by_id[row.annotation_id].document_id}
        return comments.comment_of(row).to_wire() | place

    return _data_page(page, rows, item)


def _comments_of_threads(call: _UserDataCall, connection: Connection, after: str | None) -> Sequence[Row[Any]]:
    """The comments of the user's threads after this one, in the order of threads, up to one more than a page."""
    participation = within(THREAD_USER, call.scope) & (THREAD_USER.c.user_id == call.request.user_id)
    if after is not None:
        participation &= THREAD_USER.c.annotation_id > after
    of_thread = comments.stored_comments(call.scope).where(COMMENT.c.annotation_id == THREAD_USER.c.annotation_id)
    if is_sqlite(connection):
        # The nested loops of SQLite produce this order without a sort.
        query = of_thread.where(participation).order_by(THREAD_USER.c.annotation_id, *comments.COMMENT_ORDER)
        return connection.execute(query.limit(_SIZE + 1)).all()
    # At most one page of each thread, so that PostgreSQL does not sort all of a long one.
    of_page = of_thread.correlate(THREAD_USER).order_by(*comments.COMMENT_ORDER).limit(_SIZE + 1).lateral()
    keys = [of_page.c[key.name] for key in comments.COMMENT_ORDER]
    query = select(of_page).select_from(THREAD_USER).join(of_page, literal(value=True)).where(participation)
    return connection.execute(query.order_by(THREAD_USER.c.annotation_id, *keys).limit(_SIZE + 1)).all()


def _own_rows(
    key: Column[Any], optional: Sequence[str], call: _UserDataCall, connection: Connection, after: Position | None
) -> DataPage:
    """The user's rows of the table with this key. An item has the ``optional`` ids that are not empty."""
    table = key.table
    query = select(table).where(within(table, call.scope), table.c.user_id == call.request.user_id)

    def item(row: Row[Any]) -> dict[str, object]:
        ids = {name: getattr(row, name) for name in (key.name, "document_id", *optional)}
        wire = {wire_name(name): value for name, value in ids.items() if value}
        return json_columns.load_object(row.payload) | wire | {"createdAt": row.created_at}

    page = Page((table.c.created_at, key), after, _SIZE)
    return _data_page(page, connection.execute(page.of(query)).all(), item)


def _notifications(call: _UserDataCall, connection: Connection, after: Position | None) -> DataPage:
    """The notifications for the user or about their actions, with their read mark."""
    query = _notifications_query(call, after)

    def item(row: Row[Any]) -> dict[str, object]:
        return notifications.to_wire(row, () if row.user_id is None else (row,))

    page = Page((NOTIFICATION.c.created_at, NOTIFICATION.c.notification_id), after, _SIZE)
    return _data_page(page, connection.execute(query).all(), item)


def _notifications_query(call: _UserDataCall, after: Position | None) -> Select[Any]:
    """A page of notifications. ``user_id`` and ``persists`` are null if the user has not read it."""
    user_id, table = call.request.user_id, NOTIFICATION_USER.c
    addressed = select(table.created_at, table.notification_id).where(
        within(NOTIFICATION_USER, call.scope), table.user_id == user_id
    )
    caused = select(NOTIFICATION.c.created_at, NOTIFICATION.c.notification_id).where(
        within(NOTIFICATION, call.scope), NOTIFICATION.c.action_user_id == user_id
    )
    branches = [
        select(Page(tuple(query.selected_columns), after, _SIZE).of(query).subquery()) for query in (addressed, caused)
    ]
    # Without duplicates, because a user may be addressed by a notification about their own action.
    ids = union(*branches).subquery()
    same = (NOTIFICATION.c.notification_id == ids.c.notification_id) & within(NOTIFICATION, call.scope)
    has_read = (
        (table.notification_id == NOTIFICATION.c.notification_id)
        & within(NOTIFICATION_USER, call.scope)
        & (table.user_id == user_id)
        & table.read_at.is_not(None)
    )
    query = select(*notifications.COLUMNS, table.user_id, table.persists).select_from(
        ids.join(NOTIFICATION, same).outerjoin(NOTIFICATION_USER, has_read)
    )
    return Page((ids.c.created_at, ids.c.notification_id), None, _SIZE).of(query)


def _data_page(page: Page, rows: Sequence[Row[Any]], item: Callable[[Row[Any]], dict[str, object]]) -> DataPage:
    page_rows, more = cut(rows, _SIZE)
    return DataPage([item(row) for row in page_rows], page.position(page_rows[-1]) if more else None)


_READERS: Mapping[str, Callable[[_UserDataCall, Connection, Position | None], DataPage]] = MappingProxyType(
    {
        "memberships": _memberships,
        "comments": _comments,
        "reactions": partial(_own_rows, REACTION.c.reaction_id, ("annotation_id", "comment_id")),
        "recordings": partial(_own_rows, RECORDING.c.recording_id, ()),
        "notifications": _notifications,
    }
)
"""The reader of each kind of data, by its name in the response."""
