"""Handlers of activity logs: get and add."""

from sqlalchemy import Connection

from app.backend.collaboration import activities
from app.backend.collaboration.tables import ACTIVITY
from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, done
from app.backend.ids import new_ids
from app.backend.resources.containers import require_document
from app.backend.storage.rows import where_given
from app.contract.activities import AddActivitiesRequest, GetActivityLogsRequest


def get_activity_logs(call: Call[GetActivityLogsRequest], connection: Connection) -> Reply:
    request, table = call.request, ACTIVITY.c
    by_id = [
        (table.document_id, request.document_id),
        (table.target_entity_id, request.target_entity_id),
        (table.user_id, request.user_id),
        (table.activity_id, request.activity_ids),
    ]
    lists = [
        (column, list(dict.fromkeys(values)))
        for column, values in ((table.action_type, request.action_types), (table.feature_type, request.feature_types))
        if values is not None
    ]
    # Without an id the first list selects the index, with one range per value.
    has_id = any(value is not None for _, value in by_id)
    any_of = None if has_id or not lists else lists.pop(0)
    query = where_given(connection, activities.stored_activities(call.scope), *by_id, *lists)
    keys = (table.happened_at, table.activity_id)
    rows, token = call.page(connection, query, keys, order=request.order or "desc", any_of=any_of)
    data = [activities.to_wire(row, call.scope) for row in rows]
    return Reply("Activities retrieved successfully.", data, token)


def add_activities(call: Call[AddActivitiesRequest], connection: Connection) -> Reply:
    """The last of equal ids wins, as in separate requests."""
    request, scope = call.request, call.scope
    require_document(connection, scope, request.document_id)
    ids = new_ids(call.backend.entropy, len(request.activities))
    by_id = {activity.id or new_id: activity for activity, new_id in zip(request.activities, ids, strict=True)}
    rows = [
        activities.activity_row(scope, request.document_id, activity_id, activity, call.now)
        for activity_id, activity in by_id.items()
    ]
    activities.write_activities(connection, scope, rows)
    results: Results = {activity_id: done(activity_id, "Activity added.") for activity_id in by_id}
    return Reply("Activities added.", results)
