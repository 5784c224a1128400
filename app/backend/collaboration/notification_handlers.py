"""Notifications: update (in four scopes), add, read by page."""

from sqlalchemy import Connection, select

from app.backend.collaboration import notifications
from app.backend.collaboration.notifications import NewNotification, Reading
from app.backend.collaboration.tables import NOTIFICATION, NOTIFICATION_USER
from app.backend.http.call import Call, Reply
from app.backend.http.dispatch import exclusive_write
from app.backend.http.results import Results, done
from app.backend.ids import new_id
from app.backend.permissions.access_check import users_with_access
from app.backend.resources import user_entries
from app.backend.resources.containers import require_document
from app.backend.resources.tables import USER_ENTRY
from app.backend.scope import Scope, existing, within
from app.backend.storage import json_sets
from app.backend.storage.json_sets import among
from app.backend.storage.paging import where_equal
from app.backend.storage.rows import insert_rows, update_rows
from app.contract.errors import AlreadyExists
from app.contract.notifications import (
    AddNotificationsRequest,
    GetNotificationsRequest,
    UpdateNotificationsRequest,
)
from app.foundation.database.engine import reading

UPDATED = "Notification updated."
FAILED = "Failed to update notification."


def update_notifications(call: Call[UpdateNotificationsRequest], connection: Connection) -> Reply:
    """What comes twice in one request is updated twice, in order. A read mark is never taken back."""
    request = call.request
    scope = call.scope
    payloads = _in_scope(call, connection, scope)
    results: Results = {}
    changed: set[str] = set()
    readings: list[Reading] = []
    for item in request.notifications:
        if item.id not in payloads:
            results[item.id] = {"success": False, "message": FAILED}
            continue
        results[item.id] = {"success": True, "message": UPDATED}
        if fields := notifications.payload_of(item):
            payloads[item.id] |= fields
            changed.add(item.id)
        if item.read_by_user_ids:
            readings.append(Reading(item.id, item.read_by_user_ids, item.persist_read_for_users))
    rows = [
        scope.columns()
        | {
            "notification_id": one,
            "payload": json_sets.dump(payloads[one]),
            "action_user_id": notifications.action_user_of(payloads[one]),
            "updated_at": call.now,
        }
        for one in sorted(changed)
    ]
    update_rows(connection, NOTIFICATION, ("payload", "action_user_id", "updated_at"), rows)
    notifications.mark_read(connection, scope, readings, call.now)
    return Reply("Notification(s) updated successfully.", results)


def add_notifications(call: Call[AddNotificationsRequest]) -> Reply:
    """One notification. Whoever caused it is not told, unless they stand in ``notifyUsers`` themselves."""
    request = call.request
    scope = call.scope
    named = [user.user_id for user in request.notify_users or ()]
    let_in: frozenset[str] | None = None
    if request.verify_user_permissions:
        with reading(call.backend.engine) as connection:
            require_document(connection, scope, request.document_id)
            asked = [*named, *_of_document(call, connection, scope)]
        let_in = users_with_access(call.backend, scope, request.document_id, asked, call.now)
    notification_id = request.notification_id or new_id(call.backend.entropy)
    with exclusive_write(call) as connection:
        require_document(connection, scope, request.document_id)
        named_id = request.notification_id
        if named_id is not None and existing(connection, scope, NOTIFICATION.c.notification_id, [named_id]):
            raise AlreadyExists("data.notificationId: Notification already exists.")
        users = dict.fromkeys([*named, *_of_document(call, connection, scope)])
        told = [user_id for user_id in users if let_in is None or user_id in let_in]
        new = NewNotification(
            notification_id, request.document_id, request.location_id or "", notifications.payload_of(request), call.now
        )
        row = notifications.row(scope, new)
        insert_rows(connection, NOTIFICATION, [row])
        insert_rows(connection, NOTIFICATION_USER, [notifications.user_row(row, user_id) for user_id in told])
    result = {**done(notification_id, "Notification added."), "notifiedUsers": len(told)}
    return Reply("Notification added.", {notification_id: result})


def get_notifications(call: Call[GetNotificationsRequest], connection: Connection) -> Reply:
    """With ``userId``, those that are for that user; then ``readByUserIds`` tells of nobody else."""
    request = call.request
    scope = call.scope
    if request.user_id is not None:
        query = notifications.of_user(scope, request.user_id, request.document_id)
        table = NOTIFICATION_USER
    else:
        query = where_equal(notifications.stored(scope), (NOTIFICATION.c.document_id, request.document_id))
        table = NOTIFICATION
    query = where_equal(query, (NOTIFICATION.c.location_id, request.location_id))
    if request.notification_ids is not None:
        query = query.where(among(connection, table.c.notification_id, request.notification_ids))
    keys = (table.c.created_at, table.c.notification_id)
    rows, token = call.page(connection, query, keys, order=request.order or "desc", length=notifications.weight)
    readers = notifications.readers_of(connection, scope, [row.notification_id for row in rows], request.user_id)
    data = [notifications.to_wire(row, readers.get(row.notification_id, ())) for row in rows]
    return Reply("Notification(s) retrieved successfully.", data, token)


def _in_scope(
    call: Call[UpdateNotificationsRequest], connection: Connection, scope: Scope
) -> dict[str, dict[str, object]]:
    """The payloads of those of the request's notifications that are within its scope, by id."""
    request = call.request
    ids = dict.fromkeys(item.id for item in request.notifications)
    query = select(NOTIFICATION.c.notification_id, NOTIFICATION.c.payload).where(
        within(NOTIFICATION, scope), among(connection, NOTIFICATION.c.notification_id, ids)
    )
    query = where_equal(
        query, (NOTIFICATION.c.document_id, request.document_id), (NOTIFICATION.c.location_id, request.location_id)
    )
    if request.user_id is not None:
        theirs = select(NOTIFICATION_USER.c.user_id).where(
            within(NOTIFICATION_USER, scope),
            NOTIFICATION_USER.c.notification_id == NOTIFICATION.c.notification_id,
            NOTIFICATION_USER.c.user_id == request.user_id,
        )
        query = query.where(theirs.exists())
    return {row.notification_id: json_sets.load_object(row.payload) for row in connection.execute(query)}


def _of_document(call: Call[AddNotificationsRequest], connection: Connection, scope: Scope) -> list[str]:
    """The users who stand on the document itself, but for the one who acts; nobody when only the named are told."""
    if call.request.notify_all is False:
        return []
    query = select(USER_ENTRY.c.user_id).where(
        within(USER_ENTRY, scope),
        USER_ENTRY.c.level == "document",
        USER_ENTRY.c.container_id == call.request.document_id,
        user_entries.in_force(call.now),
        USER_ENTRY.c.user_id != call.request.action_user.user_id,
    )
    return list(connection.scalars(query))
