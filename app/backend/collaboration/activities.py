"""Activity records: handlers, rows and JSON, and the event sink that writes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from app.backend.collaboration.tables import ACTIVITY
from app.backend.events import Event, EventContext
from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, done
from app.backend.ids import new_ids
from app.backend.resources.containers import require_document
from app.backend.scope import Scope, delete_rows, own_columns, within
from app.backend.storage import json_columns
from app.backend.storage.rows import Writable, insert_rows, where_given
from app.contract.activities import ActivityInput, AddActivitiesRequest, GetActivityLogsRequest


def get_activity_logs(call: Call[GetActivityLogsRequest], connection: Connection) -> Reply:
    request, table = call.request, ACTIVITY.c
    query = where_given(
        connection,
        select(*own_columns(ACTIVITY)).where(within(ACTIVITY, call.scope)),
        (table.document_id, request.document_id),
        (table.target_entity_id, request.target_entity_id),
        (table.user_id, request.user_id),
        (table.activity_id, request.activity_ids),
        (table.action_type, request.action_types),
        (table.feature_type, request.feature_types),
    )
    keys = (table.happened_at, table.activity_id)
    rows, token = call.page(connection, query, keys, order=request.order or "desc")
    data = [to_wire(row, call.scope) for row in rows]
    return Reply("Activities retrieved successfully.", data, token)


def add_activities(call: Call[AddActivitiesRequest], connection: Connection) -> Reply:
    """The last of equal ids wins, as in separate requests."""
    request, scope = call.request, call.scope
    require_document(connection, scope, request.document_id)
    new = iter(new_ids(call.backend.entropy, sum(not activity.id for activity in request.activities)))
    by_id = {activity.id or next(new): activity for activity in request.activities}
    rows = [
        activity_row(scope, request.document_id, activity_id, activity, call.now)
        for activity_id, activity in by_id.items()
    ]
    write_activities(connection, scope, rows)
    results: Results = {activity_id: done(activity_id, "Activity added.") for activity_id in by_id}
    return Reply("Activities added.", results)


def activity_row(scope: Scope, document_id: str, activity_id: str, activity: ActivityInput, now: int) -> Writable:
    """The row of an activity. One without a timestamp gets ``now``."""
    payload = activity.unknown_fields() | json_columns.without_none(
        actionUser=activity.action_user.to_wire(),
        displayMessageTemplate=activity.display_message_template,
        displayMessageTemplateData=activity.display_message_template_data,
        metadata=activity.metadata,
    )
    return _row(
        scope,
        activity_id=activity_id,
        document_id=document_id,
        target_entity_id=activity.target_entity_id or "",
        user_id=activity.action_user.user_id,
        feature_type=activity.feature_type,
        action_type=activity.action_type,
        payload=payload,
        happened_at=now if activity.timestamp is None else activity.timestamp,
    )


def write_activities(connection: Connection, scope: Scope, rows: Sequence[Writable]) -> None:
    """Writes activities of one organization, and replaces those with the same ids."""
    delete_rows(connection, scope, ACTIVITY.c.activity_id, [str(row["activity_id"]) for row in rows])
    insert_rows(connection, ACTIVITY, rows)


def record_activities(connection: Connection, context: EventContext, events: Sequence[Event]) -> None:
    """An event sink that writes an activity record for each event."""
    ids = new_ids(context.entropy, len(events))
    rows = [_row_of_event(context, event, activity_id) for event, activity_id in zip(events, ids, strict=True)]
    insert_rows(connection, ACTIVITY, rows)


def to_wire(row: Row[Any], scope: Scope) -> dict[str, object]:
    """An activity as JSON. The metadata also contains the ids of API key, organization and document."""
    payload = json_columns.load_object(row.payload)
    metadata = payload.get("metadata")
    ids = {"apiKey": scope.api_key_id, "documentId": row.document_id, "organizationId": scope.organization_id}
    wire: dict[str, object] = {
        **payload,
        "id": row.activity_id,
        "featureType": row.feature_type,
        "actionType": row.action_type,
        "metadata": {**metadata, **ids} if isinstance(metadata, dict) else ids,
        "timestamp": row.happened_at,
    }
    if row.target_entity_id:
        wire["targetEntityId"] = row.target_entity_id
    return wire


def _row_of_event(context: EventContext, event: Event, activity_id: str) -> Writable:
    data: dict[str, object] = {"actionUser": dict(event.action_user)}
    for name, part in (("comment", event.comment), ("reaction", event.reaction)):
        if part is not None:
            data[f"{name}Id"] = part[f"{name}Id"]
    if event.changes:
        data["changes"] = dict(event.changes)
    payload = {
        "actionUser": dict(event.action_user),
        "displayMessageTemplate": event.kind.template,
        "displayMessageTemplateData": data,
    }
    return _row(
        Scope(context.api_key_id, event.organization_id),
        activity_id=activity_id,
        document_id=event.document_id,
        target_entity_id=event.target_id,
        user_id=event.action_user_id,
        feature_type=event.kind.feature_type,
        action_type=event.type,
        payload=payload,
        happened_at=context.now,
    )


def _row(scope: Scope, *, payload: Mapping[str, object], **columns: object) -> Writable:
    return scope.columns() | columns | {"payload": json_columns.dump(payload)}
