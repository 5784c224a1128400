"""Notifications: stored, shown, marked as read, and made from events.

A notification stands once; a row per user tells whom it is for and whether they have read it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Row, Select, bindparam, select, update

from app.backend.collaboration.tables import NOTIFICATION, NOTIFICATION_USER, THREAD_USER
from app.backend.events import Event, EventContext
from app.backend.ids import new_ids
from app.backend.resources.removed_users import excluded_pairs
from app.backend.scope import Scope, within
from app.backend.storage import json_sets
from app.backend.storage.json_sets import among
from app.backend.storage.rows import Writable, insert_rows, upsert
from app.contract.base import wire_value
from app.contract.notifications import AddNotificationsRequest, NotificationUpdate

if TYPE_CHECKING:
    from app.backend.collaboration.import_records import NotificationRecord

COLUMNS = (
    NOTIFICATION.c.notification_id,
    NOTIFICATION.c.document_id,
    NOTIFICATION.c.location_id,
    NOTIFICATION.c.readers,
    NOTIFICATION.c.payload,
    NOTIFICATION.c.created_at,
)
_BYTES_PER_READER = 64


@dataclass(frozen=True, slots=True)
class NewNotification:
    """A notification before it is written. ``location_id`` is empty for none."""

    notification_id: str
    document_id: str
    location_id: str
    payload: Mapping[str, object]
    created_at: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Users who have read a notification, and whether it is to stay in their For You tab (None: as it was)."""

    notification_id: str
    user_ids: Sequence[str]
    persists: bool | None


class _Read(NamedTuple):
    """When a user read a notification (epoch milliseconds; None: not yet), and whether it stays in their tab."""

    read_at: int | None
    persists: bool


_UNREAD = _Read(None, persists=False)


def stored(scope: Scope) -> Select[Any]:
    """The notifications of an organization, with the columns that ``to_wire`` needs."""
    return select(*COLUMNS).where(within(NOTIFICATION, scope))


def of_user(scope: Scope, user_id: str, document_id: str | None) -> Select[Any]:
    """Those of them that are for this user, with their own row's time and id (by which they are to be sorted)."""
    columns = [column for column in COLUMNS if column.name not in {"notification_id", "created_at"}]
    whose = (NOTIFICATION_USER.c.user_id == user_id) & within(NOTIFICATION_USER, scope)
    if document_id is not None:
        whose &= NOTIFICATION_USER.c.document_id == document_id
    same = (NOTIFICATION.c.notification_id == NOTIFICATION_USER.c.notification_id) & within(NOTIFICATION, scope)
    return (
        select(*columns, NOTIFICATION_USER.c.created_at, NOTIFICATION_USER.c.notification_id)
        .join_from(NOTIFICATION_USER, NOTIFICATION, same)
        .where(whose)
    )


def payload_of(given: "NotificationUpdate | AddNotificationsRequest | NotificationRecord") -> dict[str, object]:
    """What is kept as it came, with the fields that nobody declared."""
    fields = json_sets.without_none(
        actionUser=given.action_user,
        displayHeadlineMessageTemplate=given.display_headline_message_template,
        displayHeadlineMessageTemplateData=given.display_headline_message_template_data,
        displayBodyMessage=given.display_body_message,
        notificationSourceData=given.notification_source_data,
    )
    return given.unknown_fields() | {name: wire_value(value) for name, value in fields.items()}


def action_user_of(payload: Mapping[str, object]) -> str:
    """The id of the user who did what a notification tells of; empty where it names nobody."""
    user = payload.get("actionUser")
    user_id = user.get("userId") if isinstance(user, dict) else None
    return user_id if isinstance(user_id, str) else ""


def weight(row: Row[Any]) -> int:
    """About how many bytes the notification is on the wire."""
    return len(row.payload) + int(row.readers) * _BYTES_PER_READER


def row(scope: Scope, new: NewNotification) -> Writable:
    """A new notification as a row."""
    return scope.row(new) | {
        "action_user_id": action_user_of(new.payload),
        "readers": 0,
        "updated_at": new.created_at,
    }


def user_row(notification: Writable, user_id: str) -> Writable:
    """A row that tells that this notification is for this user, who has not read it."""
    same = ("api_key_id", "organization_id", "notification_id", "document_id", "created_at")
    return {column: notification[column] for column in same} | {"user_id": user_id, "read_at": None, "persists": False}


def mark_read(connection: Connection, scope: Scope, readings: Iterable[Reading], now: int) -> None:
    """Marks notifications (which are there) as read. Who reads one that was not for them, it is for them now. When it
    was read first is kept.
    """
    # Whether it persists: of several readings of one notification in a request the last that says anything counts.
    wanted: dict[tuple[str, str], bool | None] = {}
    for one in readings:
        for user_id in one.user_ids:
            pair = (one.notification_id, user_id)
            wanted[pair] = wanted.get(pair) if one.persists is None else one.persists
    if not wanted:
        return
    ids = list(dict.fromkeys(notification_id for notification_id, _ in wanted))
    there = {
        row.notification_id: row
        for row in connection.execute(stored(scope).where(among(connection, NOTIFICATION.c.notification_id, ids)))
    }
    known = _known(connection, scope, wanted)
    rows = [
        scope.columns()
        | {
            "notification_id": notification_id,
            "user_id": user_id,
            "document_id": there[notification_id].document_id,
            "created_at": there[notification_id].created_at,
            "read_at": before.read_at or now,
            "persists": before.persists if persists is None else persists,
        }
        for (notification_id, user_id), persists in wanted.items()
        for before in (known.get((notification_id, user_id), _UNREAD),)
    ]
    _upsert_users(connection, rows)
    new: dict[str, int] = {}
    for notification_id, user_id in wanted:
        if known.get((notification_id, user_id), _UNREAD).read_at is None:
            new[notification_id] = new.get(notification_id, 0) + 1
    if new:
        connection.execute(
            update(NOTIFICATION)
            .where(within(NOTIFICATION, scope), NOTIFICATION.c.notification_id == bindparam("key"))
            .values(readers=NOTIFICATION.c.readers + bindparam("more")),
            [{"key": notification_id, "more": more} for notification_id, more in new.items()],
        )


def readers_of(
    connection: Connection, scope: Scope, notification_ids: Sequence[str], user_id: str | None
) -> dict[str, list[Any]]:
    """Who has read which notification; with ``user_id`` whether that user has. Rows of ``user_id``, ``persists``."""
    table = NOTIFICATION_USER.c
    query = select(table.notification_id, table.user_id, table.persists).where(
        within(NOTIFICATION_USER, scope),
        among(connection, table.notification_id, notification_ids),
        table.read_at.is_not(None),
    )
    if user_id is not None:
        query = query.where(table.user_id == user_id)
    found: dict[str, list[Any]] = {}
    for reader in connection.execute(query.order_by(table.user_id)):
        found.setdefault(reader.notification_id, []).append(reader)
    return found


def to_wire(row: Row[Any], readers: Sequence[Any]) -> dict[str, object]:
    """A notification as Get Notifications tells it."""
    wire: dict[str, object] = {
        **json_sets.load_object(row.payload),
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
    """An event sink: a notification for each event that somebody but the one who acts is told about.

    Of several events of one kind in one thread (for reactions: about one comment) the last is told, or a thousand
    comments in one request would be told a thousand times to everybody in the thread.
    """
    rows: list[Writable] = []
    user_rows: list[Writable] = []
    last = list({_subject(event): event for event in events}.values())
    ids = new_ids(context.entropy, len(last))
    for event, told, notification_id in zip(last, recipients(connection, context, last), ids, strict=True):
        if told:
            scope = Scope(context.api_key_id, event.organization_id)
            new = row(
                scope,
                NewNotification(notification_id, event.document_id, event.location_id, _payload(event), context.now),
            )
            rows.append(new)
            user_rows.extend(user_row(new, user_id) for user_id in told)
    insert_rows(connection, NOTIFICATION, rows)
    insert_rows(connection, NOTIFICATION_USER, user_rows)


def recipients(connection: Connection, context: EventContext, events: Sequence[Event]) -> list[list[str]]:
    """Who is told about each of the events: never the one who acts, nor who was taken out and stands nowhere near."""
    participants = _participants(
        connection, context, [event for event in events if event.kind.notified == "participants"]
    )
    told = [
        [user_id for user_id in dict.fromkeys(_told(event, participants)) if user_id != event.action_user_id]
        for event in events
    ]
    out = _excluded_pairs(connection, context, events, told)
    return [
        [user_id for user_id in users if (event.organization_id, event.document_id, user_id) not in out]
        for event, users in zip(events, told, strict=True)
    ]


def _excluded_pairs(
    connection: Connection, context: EventContext, events: Sequence[Event], told: Sequence[Sequence[str]]
) -> set[tuple[str, str, str]]:
    """Organization, document and user, where the user is not to be told of the document."""
    by_document: dict[str, dict[str, set[str]]] = {}
    for event, users in zip(events, told, strict=True):
        by_document.setdefault(event.organization_id, {}).setdefault(event.document_id, set()).update(users)
    return {
        (organization_id, *pair)
        for organization_id, here in by_document.items()
        for pair in excluded_pairs(connection, Scope(context.api_key_id, organization_id), here, context.now)
    }


def _subject(event: Event) -> tuple[str, ...]:
    about = event.comment if event.kind.notified == "author" else None
    return (event.organization_id, event.target_id, event.type, "" if about is None else str(about["commentId"]))


def _told(event: Event, participants: Mapping[tuple[str, str], Sequence[str]]) -> Iterable[str]:
    if event.kind.notified == "nobody":
        return ()
    if event.kind.notified == "participants":
        return participants.get((event.organization_id, event.target_id), ())
    is_assignee = event.kind.notified == "assignee"
    about = event.annotation.get("assignedTo") if is_assignee else (event.comment or {}).get("from")
    user_id = about.get("userId") if isinstance(about, dict) else None
    return (user_id,) if isinstance(user_id, str) and user_id else ()


def _participants(
    connection: Connection, context: EventContext, events: Sequence[Event]
) -> dict[tuple[str, str], list[str]]:
    """Who takes part in the events' threads, by organization and thread."""
    found: dict[tuple[str, str], list[str]] = {}
    for organization_id in dict.fromkeys(event.organization_id for event in events):
        scope = Scope(context.api_key_id, organization_id)
        threads = dict.fromkeys(event.target_id for event in events if event.organization_id == organization_id)
        query = select(THREAD_USER.c.annotation_id, THREAD_USER.c.user_id).where(
            within(THREAD_USER, scope), among(connection, THREAD_USER.c.annotation_id, threads)
        )
        for annotation_id, user_id in connection.execute(query):
            found.setdefault((organization_id, annotation_id), []).append(user_id)
    return found


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


def _known(connection: Connection, scope: Scope, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], _Read]:
    """Those of the (notification, user) pairs that are there, with what is known of the reading."""
    pairs = list(wanted)
    table = NOTIFICATION_USER.c
    query = select(table.notification_id, table.user_id, table.read_at, table.persists).where(
        within(NOTIFICATION_USER, scope),
        among(connection, NOTIFICATION_USER.c.notification_id, dict.fromkeys(pair[0] for pair in pairs)),
        among(connection, NOTIFICATION_USER.c.user_id, dict.fromkeys(pair[1] for pair in pairs)),
    )
    return {(row.notification_id, row.user_id): _Read(row.read_at, row.persists) for row in connection.execute(query)}


def _upsert_users(connection: Connection, rows: Sequence[Writable]) -> None:
    statement = upsert(connection, NOTIFICATION_USER)
    read = {"read_at": statement.excluded.read_at, "persists": statement.excluded.persists}
    connection.execute(
        statement.on_conflict_do_update(index_elements=[*NOTIFICATION_USER.primary_key], set_=read), list(rows)
    )
