"""Judgments: search by meaning, query by metadata."""

from functools import partial

from sqlalchemy import Connection

from app.backend.http.call import Call, Reply
from app.backend.http.registry import Registry
from app.backend.judgments.search import FoundJudgment, FoundRow, JudgmentQuery, JudgmentSearcher, query_of
from app.backend.storage import json_sets
from app.contract import limits, operations
from app.contract.judgments import QueryJudgmentsRequest, SearchJudgmentsRequest, SearchScope

_METADATA = {
    "organizationId": "organization_id",
    "documentId": "document_id",
    "annotationId": "annotation_id",
    "judgeType": "judge_type",
    "contentType": "content_type",
    "reviewerId": "reviewer_id",
}


def register(registry: Registry, search: JudgmentSearcher) -> None:
    registry.add(operations.SEARCH_JUDGMENTS, partial(search_judgments, search))
    registry.add(operations.QUERY_JUDGMENTS, partial(query_judgments, search))


def search_judgments(search: JudgmentSearcher, call: Call[SearchJudgmentsRequest], connection: Connection) -> Reply:
    """A thread before recency before meaning: the narrowest of what was asked decides how the judgments are found."""
    request = call.request
    started = call.backend.clock()
    asked, scope = _query(call, request.recency_days)
    limit = request.limit or limits.JUDGMENT_LIMIT_DEFAULT
    if asked.annotation_id is not None:
        found, total = search.thread(connection, asked, limit)
    elif request.recency_days is not None:
        found, total = search.newest(connection, asked, limit)
    else:
        embedding_type = request.embedding_type or "review"
        found, total = search.nearest(connection, asked, request.query, embedding_type, limit)
    latency = (call.backend.clock() - started).total_seconds() * 1000
    return Reply(
        "Judgments found.",
        {
            "results": [_result(one, scope) for one in found],
            "totalInScope": total,
            "searchLatencyMs": max(0.0, round(latency, 3)),
        },
    )


def query_judgments(search: JudgmentSearcher, call: Call[QueryJudgmentsRequest], connection: Connection) -> Reply:
    asked, scope = _query(call, None)
    limit = call.request.limit or limits.JUDGMENT_QUERY_LIMIT_DEFAULT
    if asked.annotation_id is not None:
        found, _ = search.thread(connection, asked, limit, newest_first=True)
    else:
        found, _ = search.newest(connection, asked, limit)
    return Reply("Judgment(s) retrieved successfully.", [_record(one.row, scope) for one in found])


def _query(
    call: Call[SearchJudgmentsRequest] | Call[QueryJudgmentsRequest], recency_days: int | None
) -> tuple[JudgmentQuery, SearchScope]:
    request = call.request
    scope = request.scope or _default_scope(request.organization_id, request.document_id)
    asked = query_of(
        call.principal.api_key_id,
        scope,
        request.organization_id,
        request.document_id,
        request.filters,
        recency_days=recency_days,
        now=call.now,
    )
    return asked, scope


def _default_scope(organization_id: str | None, document_id: str | None) -> SearchScope:
    if document_id is not None:
        return "document"
    return "apiKey" if organization_id is None else "organization"


def _result(found: FoundJudgment, scope: SearchScope) -> dict[str, object]:
    row = found.row
    payload = json_sets.load_object(row.payload)
    return {
        "recordId": row.record_id,
        "reasoning": payload.get("reasoning", ""),
        "decision": row.decision,
        "confidence": payload.get("confidence"),
        "actionUser": payload.get("actionUser"),
        "createdAt": row.created_at,
        "similarity": round(found.similarity, 5),
        "scope": scope,
        "agent": payload.get("agent"),
    }


def _record(row: FoundRow, scope: SearchScope) -> dict[str, object]:
    """All that is known of a judgment; what it has no word on is left out."""
    metadata = {name: getattr(row, column) for name, column in _METADATA.items()}
    return {
        **json_sets.load_object(row.payload),
        **{name: value for name, value in metadata.items() if value},
        "recordId": row.record_id,
        "decision": row.decision,
        "createdAt": row.created_at,
        "scope": scope,
    }
