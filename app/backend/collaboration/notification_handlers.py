"""Handlers of notifications: update, add, get."""

from typing import Any

from sqlalchemy import Connection, Row, select

from app.backend.collaboration import notifications
from app.backend.collaboration.notifications import stored_notifications
from app.backend.collaboration.tables import NOTIFICATION, NOTIFICATION_USER
from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, done
from app.backend.ids import new_id
from app.backend.permissions.access_check import users_with_access
from app.backend.resources import user_entries
from app.backend.resources.containers import require_document
from app.backend.resources.tables import USER_ENTRY
from app.backend.scope import existing, within
from app.backend.storage import json_columns
from app.backend.storage.rows import insert_rows, update_rows, where_given
from app.contract.errors import AlreadyExists
from app.contract.notifications import AddNotificationsRequest, GetNotificationsRequest, UpdateNotificationsRequest
from app.foundation.database.engine import reading


def update_notifications(call: Call[UpdateNotificationsRequest], connection: Connection) -> Reply:
    """Applies updates with the same id in order. A read mark is never removed."""
    scope = call.scope
    stored = _requested(call, connection)
    results: Results = {}
    payloads: dict[str, dict[str, object]] = {}
    readers: dict[tuple[str, str], bool | None] = {}
    for item in call.request.notifications:
        if item.id not in stored:
            results[item.id] = {"success": False, "message": "Failed to update notification."}
            continue
        results[item.id] = {"success": True, "message": "Notification updated."}
        if fields := notifications.payload_of(item):
            payloads.setdefault(item.id, json_columns.load_object(stored[item.id].payload)).update(fields)
        for user_id in item.read_by_user_ids or ():
            if item.persist_read_for_users is not None or (item.id, user_id) not in readers:
                readers[item.id, user_id] = item.persist_read_for_users
    rows = [
        notifications.notification_row(scope, notification_id, payload, call.now)
        for notification_id, payload in sorted(payloads.items())
    ]
    update_rows(connection, NOTIFICATION, ("payload", "action_user_id", "updated_at"), rows)
    notifications.mark_read(connection, scope, stored, readers, call.now)
    return Reply("Notification(s) updated successfully.", results)


def add_notifications(call: Call[AddNotificationsRequest]) -> Reply:
    """Adds one notification. It does not address the acting user, unless ``notifyUsers`` contains them."""
    request, scope = call.request, call.scope
    requested_ids = [user.user_id for user in request.notify_users or ()]
    permitted: frozenset[str] | None = None
    if request.verify_user_permissions:
        with reading(call.backend.engine) as connection:
            require_document(connection, scope, request.document_id)
            candidates = [*requested_ids, *_users_of_document(call, connection)]
        # Outside the write transaction, because it may call the provider.
        permitted = users_with_access(call.backend, scope, request.document_id, candidates, call.now)
    notification_id = request.notification_id or new_id(call.backend.entropy)
    with call.exclusive_write() as connection:
        require_document(connection, scope, request.document_id)
        if existing(connection, scope, NOTIFICATION.c.notification_id, [notification_id]):
            raise AlreadyExists("data.notificationId: Notification already exists.")
        candidates = [*requested_ids, *_users_of_document(call, connection)]
        users = [user_id for user_id in dict.fromkeys(candidates) if permitted is None or user_id in permitted]
        place = {"document_id": request.document_id, "location_id": request.location_id or ""}
        row = notifications.notification_row(
            scope, notification_id, notifications.payload_of(request), call.now, **place
        )
        insert_rows(connection, NOTIFICATION, [row])
        insert_rows(connection, NOTIFICATION_USER, [notifications.user_row(row, user_id) for user_id in users])
    result = {**done(notification_id, "Notification added."), "notifiedUsers": len(users)}
    return Reply("Notification added.", {notification_id: result})


def get_notifications(call: Call[GetNotificationsRequest], connection: Connection) -> Reply:
    """With ``userId``, returns the user's notifications, and ``readByUserIds`` contains no other users."""
    request, scope = call.request, call.scope
    if request.user_id is not None:
        query, table = notifications.notifications_of_user(scope, request.user_id), NOTIFICATION_USER
    else:
        query, table = stored_notifications(scope), NOTIFICATION
    query = where_given(
        connection,
        query,
        (table.c.document_id, request.document_id),
        (NOTIFICATION.c.location_id, request.location_id),
        (table.c.notification_id, request.notification_ids),
    )
    keys = (table.c.created_at, table.c.notification_id)
    rows, token = call.page(connection, query, keys, order=request.order or "desc", length=notifications.weight)
    readers = notifications.readers_of(connection, scope, [row.notification_id for row in rows], request.user_id)
    data = [notifications.to_wire(row, readers.get(row.notification_id, ())) for row in rows]
    return Reply("Notification(s) retrieved successfully.", data, token)


def _requested(call: Call[UpdateNotificationsRequest], connection: Connection) -> dict[str, Row[Any]]:
    """The stored notifications of the request by id, if they match its document, location and user."""
    request, scope = call.request, call.scope
    ids = dict.fromkeys(item.id for item in request.notifications)
    query = where_given(
        connection,
        stored_notifications(scope),
        (NOTIFICATION.c.notification_id, ids),
        (NOTIFICATION.c.document_id, request.document_id),
        (NOTIFICATION.c.location_id, request.location_id),
    )
    if request.user_id is not None:
        of_user = select(NOTIFICATION_USER.c.user_id).where(
            within(NOTIFICATION_USER, scope),
            NOTIFICATION_USER.c.notification_id == NOTIFICATION.c.notification_id,
            NOTIFICATION_USER.c.user_id == request.user_id,
        )
        query = query.where(of_user.exists())
    return {row.notification_id: row for row in connection.execute(query)}


def _users_of_document(call: Call[AddNotificationsRequest], connection: Connection) -> list[str]:
    """The users with an entry on the document, without the acting user. Empty if ``notifyAll`` is false."""
    if call.request.notify_all is False:
        return []
    query = select(USER_ENTRY.c.user_id).where(
        within(USER_ENTRY, call.scope),
        USER_ENTRY.c.level == "document",
        USER_ENTRY.c.container_id == call.request.document_id,
        user_entries.not_expired(call.now),
        USER_ENTRY.c.user_id != call.request.action_user.user_id,
    )
    return list(connection.scalars(query))
