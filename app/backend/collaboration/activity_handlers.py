"""Activity logs: read by page, add."""

from sqlalchemy import Connection

from app.backend.collaboration import activities
from app.backend.collaboration.tables import ACTIVITY
from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, done
from app.backend.ids import new_ids
from app.backend.resources.containers import require_document
from app.backend.storage.json_sets import among
from app.backend.storage.paging import where_equal
from app.contract.activities import AddActivitiesRequest, GetActivityLogsRequest


def get_activity_logs(call: Call[GetActivityLogsRequest], connection: Connection) -> Reply:
    request = call.request
    scope = call.scope
    wanted = (request.document_id, request.target_entity_id, request.user_id)
    columns = (ACTIVITY.c.document_id, ACTIVITY.c.target_entity_id, ACTIVITY.c.user_id)
    query = where_equal(activities.stored(scope), *zip(columns, wanted, strict=True))
    if request.activity_ids is not None:
        query = query.where(among(connection, ACTIVITY.c.activity_id, request.activity_ids))
    is_narrow = any(value is not None for value in (*wanted, request.activity_ids))
    lists = [
        (column, list(dict.fromkeys(values)))
        for column, values in (
            (ACTIVITY.c.action_type, request.action_types),
            (ACTIVITY.c.feature_type, request.feature_types),
        )
        if values is not None
    ]
    # Nothing else leads to few rows: then each wanted value's own stretch of the index does.
    leading = None if is_narrow or not lists else lists.pop(0)
    for column, values in lists:
        query = query.where(among(connection, column, values))
    keys = (ACTIVITY.c.happened_at, ACTIVITY.c.activity_id)
    rows, token = call.page(connection, query, keys, order=request.order or "desc", any_of=leading)
    return Reply("Activities retrieved successfully.", [activities.to_wire(row, scope) for row in rows], token)


def add_activities(call: Call[AddActivitiesRequest], connection: Connection) -> Reply:
    request = call.request
    scope = call.scope
    require_document(connection, scope, request.document_id)
    # Of two with one id the last stands, as it would had it come in a request of its own.
    ids = new_ids(call.backend.entropy, len(request.activities))
    given = {activity.id or made: activity for activity, made in zip(request.activities, ids, strict=True)}
    rows = [
        activities.row_of_input(scope, request.document_id, activity_id, activity, call.now)
        for activity_id, activity in given.items()
    ]
    activities.write_activities(connection, scope, rows)
    results: Results = {activity_id: done(activity_id, "Activity added.") for activity_id in given}
    return Reply("Activities added.", results)
