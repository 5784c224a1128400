"""Loads, stores and creates notifications.

A notification has one row, and a row for each user whom it addresses or who has read it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select, update

from app.backend.collaboration.tables import NOTIFICATION, NOTIFICATION_USER, THREAD_USER
from app.backend.events import Event, EventContext
from app.backend.ids import new_ids
from app.backend.resources.removed_users import excluded_pairs
from app.backend.scope import Scope, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import Writable, insert_rows, upsert, where_given
from app.contract.base import wire_value
from app.contract.notifications import NotificationContent
from app.foundation.batches import grouped

COLUMNS = (
    NOTIFICATION.c.notification_id,
    NOTIFICATION.c.document_id,
    NOTIFICATION.c.location_id,
    NOTIFICATION.c.readers,
    NOTIFICATION.c.payload,
    NOTIFICATION.c.created_at,
)
"""The columns that ``to_wire`` needs."""
_LENGTH_PER_READER = 64


def stored_notifications(scope: Scope) -> Select[Any]:
    """A query of an organization's notifications."""
    return select(*COLUMNS).where(within(NOTIFICATION, scope))


def notifications_of_user(scope: Scope, user_id: str) -> Select[Any]:
    """A query of a user's notifications, with the time and id of the user's row, by which an index sorts them."""
    columns = [column for column in COLUMNS if column.name not in {"notification_id", "created_at"}]
    same = (NOTIFICATION.c.notification_id == NOTIFICATION_USER.c.notification_id) & within(NOTIFICATION, scope)
    return (
        select(*columns, NOTIFICATION_USER.c.created_at, NOTIFICATION_USER.c.notification_id)
        .join_from(NOTIFICATION_USER, NOTIFICATION, same)
        .where(within(NOTIFICATION_USER, scope), NOTIFICATION_USER.c.user_id == user_id)
    )


def payload_of(request: NotificationContent) -> dict[str, object]:
    """The stored payload, with undeclared fields."""
    fields = json_columns.without_none(
        actionUser=request.action_user,
        displayHeadlineMessageTemplate=request.display_headline_message_template,
        displayHeadlineMessageTemplateData=request.display_headline_message_template_data,
        displayBodyMessage=request.display_body_message,
        notificationSourceData=request.notification_source_data,
    )
    return request.unknown_fields() | {name: wire_value(value) for name, value in fields.items()}


def weight(row: Row[Any]) -> int:
    """The approximate length of a notification in a response."""
    return len(row.payload) + int(row.readers) * _LENGTH_PER_READER


def notification_row(
    scope: Scope, notification_id: str, payload: Mapping[str, object], now: int, **columns: object
) -> Writable:
    """The row of a notification that is inserted or updated at ``now``."""
    user = payload.get("actionUser")
    user_id = user.get("userId") if isinstance(user, dict) else None
    action_user_id = user_id if isinstance(user_id, str) else ""
    return scope.payload_row(
        payload, now, notification_id=notification_id, action_user_id=action_user_id, readers=0, **columns
    )


def user_row(notification: Writable, user_id: str) -> Writable:
    """The row of a user who has not read the notification."""
    same = ("api_key_id", "organization_id", "notification_id", "document_id", "created_at")
    return {column: notification[column] for column in same} | {"user_id": user_id, "read_at": None, "persists": False}


def mark_read(
    connection: Connection,
    scope: Scope,
    notifications: Mapping[str, Row[Any]],
    persists_by_reader: Mapping[tuple[str, str], bool | None],
    now: int,
) -> None:
    """Marks notifications as read. ``notifications`` are their rows by id.

    ``persists_by_reader`` maps pairs of notification and user to whether it stays in the user's For You tab. None keeps
    the stored value. Adds readers whom the notification does not address. Keeps the time of the first read.
    """
    table = NOTIFICATION_USER.c
    for changes_tab in (False, True):
        rows: list[Writable] = [
            scope.columns()
            | {
                "notification_id": notification_id,
                "user_id": user_id,
                "document_id": notifications[notification_id].document_id,
                "created_at": notifications[notification_id].created_at,
                "read_at": now,
                "persists": bool(persists),
            }
            for (notification_id, user_id), persists in persists_by_reader.items()
            if (persists is not None) == changes_tab
        ]
        if rows:
            statement = upsert(connection, NOTIFICATION_USER)
            new = statement.excluded
            read = {"read_at": func.coalesce(table.read_at, new.read_at)}
            changes = read | {"persists": new.persists} if changes_tab else read
            keys = [*NOTIFICATION_USER.primary_key]
            connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), rows)
    if persists_by_reader:
        is_reader = within(NOTIFICATION_USER, scope) & table.read_at.is_not(None)
        readers = select(func.count()).where(is_reader, table.notification_id == NOTIFICATION.c.notification_id)
        ids = {notification_id for notification_id, _ in persists_by_reader}
        read_ones = within_ids(connection, scope, NOTIFICATION.c.notification_id, ids)
        connection.execute(update(NOTIFICATION).where(read_ones).values(readers=readers.scalar_subquery()))


def readers_of(
    connection: Connection, scope: Scope, notification_ids: Sequence[str], user_id: str | None
) -> dict[str, list[Any]]:
    """The readers by notification, optionally only this user. Rows have ``user_id`` and ``persists``."""
    table = NOTIFICATION_USER.c
    query = select(table.notification_id, table.user_id, table.persists).where(
        within_ids(connection, scope, table.notification_id, notification_ids), table.read_at.is_not(None)
    )
    query = where_given(connection, query, (table.user_id, user_id))
    return grouped((row.notification_id, row) for row in connection.execute(query.order_by(table.user_id)))


def to_wire(row: Row[Any], readers: Sequence[Any]) -> dict[str, object]:
    """A notification as JSON. ``row`` has the ``COLUMNS``, ``readers`` are as in ``readers_of``."""
    wire: dict[str, object] = {
        **json_columns.load_object(row.payload),
        "id": row.notification_id,
        "documentId": row.document_id,
        "timestamp": row.created_at,
        "readByUserIds": [reader.user_id for reader in readers],
        "persistReadForUserIds": [reader.user_id for reader in readers if reader.persists],
    }
    if row.location_id:
        wire["locationId"] = row.location_id
    return wire


def notify(connection: Connection, context: EventContext, events: Sequence[Event]) -> None:
    """An event sink that writes a notification for each event with recipients.

    Of several events of one kind in one thread (for reactions: about one comment) only the last is notified. Otherwise
    a request with a thousand comments would send a thousand notifications to each participant.
    """
    rows: list[Writable] = []
    user_rows: list[Writable] = []
    last = list({_subject(event): event for event in events}.values())
    ids = new_ids(context.entropy, len(last))
    for event, users, notification_id in zip(last, recipients(connection, context, last), ids, strict=True):
        if users:
            row: Writable = notification_row(
                Scope(context.api_key_id, event.organization_id),
                notification_id,
                _payload(event),
                context.now,
                document_id=event.document_id,
                location_id=event.location_id,
            )
            rows.append(row)
            user_rows.extend(user_row(row, user_id) for user_id in users)
    insert_rows(connection, NOTIFICATION, rows)
    insert_rows(connection, NOTIFICATION_USER, user_rows)


def recipients(connection: Connection, context: EventContext, events: Sequence[Event]) -> list[list[str]]:
    """The users to notify of each event of one request, without the acting user and removed users who lost the
    document."""
    scope = Scope(context.api_key_id, events[0].organization_id)
    participants = _participants(
        connection, scope, [event.target_id for event in events if event.kind.notified == "participants"]
    )
    candidates = [
        [user_id for user_id in dict.fromkeys(_candidates(event, participants)) if user_id != event.action_user_id]
        for event in events
    ]
    by_document: dict[str, set[str]] = {}
    for event, users in zip(events, candidates, strict=True):
        by_document.setdefault(event.document_id, set()).update(users)
    excluded = excluded_pairs(connection, scope, by_document, context.now)
    return [
        [user_id for user_id in users if (event.document_id, user_id) not in excluded]
        for event, users in zip(events, candidates, strict=True)
    ]


def _subject(event: Event) -> tuple[str, ...]:
    comment = event.comment if event.kind.notified == "author" else None
    return (event.target_id, event.type, "" if comment is None else str(comment["commentId"]))


def _candidates(event: Event, participants: Mapping[str, Sequence[str]]) -> Sequence[str]:
    notified = event.kind.notified
    if notified == "nobody":
        return ()
    if notified == "participants":
        return participants.get(event.target_id, ())
    user = event.annotation.get("assignedTo") if notified == "assignee" else (event.comment or {}).get("from")
    user_id = user.get("userId") if isinstance(user, dict) else None
    return (user_id,) if isinstance(user_id, str) and user_id else ()


def _participants(connection: Connection, scope: Scope, annotation_ids: Sequence[str]) -> dict[str, list[str]]:
    """The participants by thread."""
    if not annotation_ids:
        return {}
    query = select(THREAD_USER.c.annotation_id, THREAD_USER.c.user_id).where(
        within_ids(connection, scope, THREAD_USER.c.annotation_id, dict.fromkeys(annotation_ids))
    )
    return grouped((annotation_id, user_id) for annotation_id, user_id in connection.execute(query))


def _payload(event: Event) -> dict[str, object]:
    source: dict[str, object] = {"eventType": event.type, "annotationId": event.target_id}
    payload: dict[str, object] = {
        "actionUser": dict(event.action_user),
        "displayHeadlineMessageTemplate": event.kind.template,
        "displayHeadlineMessageTemplateData": {"actionUser": dict(event.action_user)},
        "notificationSourceData": source,
    }
    if event.comment is not None:
        source["commentId"] = event.comment["commentId"]
        payload["displayBodyMessage"] = event.comment.get("commentText", "")
    return payload
