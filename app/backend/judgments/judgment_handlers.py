"""Handlers of judgments: search by meaning, query by metadata."""

from typing import Any

from sqlalchemy import Connection, Row

from app.backend.http.call import Call, Reply
from app.backend.judgments.search import JudgmentQuery, JudgmentSearcher, ScoredJudgment
from app.backend.storage import json_columns
from app.contract import limits
from app.contract.judgments import (
    JudgmentFilters,
    QueryJudgmentsRequest,
    SearchJudgmentsRequest,
    SearchScope,
    moment_ms,
)

_DAY_MS = 24 * 60 * 60 * 1000
_METADATA = {
    "organizationId": "organization_id",
    "documentId": "document_id",
    "annotationId": "annotation_id",
    "judgeType": "judge_type",
    "contentType": "content_type",
    "reviewerId": "reviewer_id",
}


def search_judgments(search: JudgmentSearcher, call: Call[SearchJudgmentsRequest], connection: Connection) -> Reply:
    """Reads the thread if the filters name one, else the newest with ``recencyDays``, else the most similar."""
    request = call.request
    started = call.backend.clock()
    query, scope = _query(call, request.recency_days)
    limit = request.limit or limits.JUDGMENT_LIMIT_DEFAULT
    if query.annotation_id is not None:
        result = search.thread(connection, query, limit)
    elif request.recency_days is not None:
        result = search.newest(connection, query, limit)
    else:
        result = search.nearest(connection, query, request.query, request.embedding_type or "review", limit)
    latency = (call.backend.clock() - started).total_seconds() * 1000
    return Reply(
        "Judgments found.",
        {
            "results": [_result(judgment, scope) for judgment in result.judgments],
            "totalInScope": result.total,
            "searchLatencyMs": max(0.0, round(latency, 3)),
        },
    )


def query_judgments(search: JudgmentSearcher, call: Call[QueryJudgmentsRequest], connection: Connection) -> Reply:
    query, scope = _query(call, None)
    limit = call.request.limit or limits.JUDGMENT_QUERY_LIMIT_DEFAULT
    if query.annotation_id is not None:
        result = search.thread(connection, query, limit, newest_first=True)
    else:
        result = search.newest(connection, query, limit)
    return Reply("Judgment(s) retrieved successfully.", [_record(judgment.row, scope) for judgment in result.judgments])


def _query(
    call: Call[SearchJudgmentsRequest] | Call[QueryJudgmentsRequest], recency_days: int | None
) -> tuple[JudgmentQuery, SearchScope]:
    """The query of a request, and its scope. ``recency_days`` replaces the date range of the filters."""
    request = call.request
    scope = request.scope or _default_scope(request.organization_id, request.document_id)
    in_scope: dict[str, str] = {}
    if scope != "apiKey":
        in_scope["organization_id"] = request.organization_id or ""
    if scope == "document":
        in_scope["document_id"] = request.document_id or ""
    filters = request.filters or JudgmentFilters()
    values = {name: getattr(filters, name) for name in ("decision", "judge_type", "content_type", "reviewer_id")}
    if filters.annotation_id is not None:
        # A thread id is unique in its organization only.
        values["organization_id"] = request.organization_id or ""
    earliest, latest = None, None
    if recency_days is not None:
        earliest, latest = call.now - recency_days * _DAY_MS, call.now
    elif filters.date_range is not None:
        start, end = filters.date_range.start, filters.date_range.end
        earliest = None if start is None else moment_ms(start)
        latest = None if end is None else moment_ms(end)
    compared = json_columns.without_none(**values)
    api_key_id = call.principal.api_key_id
    return JudgmentQuery(api_key_id, in_scope, compared, earliest, latest, filters.annotation_id), scope


def _default_scope(organization_id: str | None, document_id: str | None) -> SearchScope:
    if document_id is not None:
        return "document"
    return "apiKey" if organization_id is None else "organization"


def _result(judgment: ScoredJudgment, scope: SearchScope) -> dict[str, object]:
    row = judgment.row
    payload = json_columns.load_object(row.payload)
    return {
        "recordId": row.record_id,
        "reasoning": payload.get("reasoning", ""),
        "decision": row.decision,
        "confidence": payload.get("confidence"),
        "actionUser": payload.get("actionUser"),
        "createdAt": row.created_at,
        "similarity": round(judgment.similarity, 5),
        "scope": scope,
        "agent": payload.get("agent"),
    }


def _record(row: Row[Any], scope: SearchScope) -> dict[str, object]:
    """All fields of a judgment, without the empty ones."""
    metadata = {name: value for name, column in _METADATA.items() if (value := getattr(row, column))}
    return {
        **json_columns.load_object(row.payload),
        **metadata,
        "recordId": row.record_id,
        "decision": row.decision,
        "createdAt": row.created_at,
        "scope": scope,
    }
