"""Handlers of judgments, and their searches: the most similar to a text, the newest, or those of one thread."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row, select

from app.backend.embedders.embedder import Embedder
from app.backend.http.call import Call, Reply
from app.backend.judgments.index import JudgmentIndexes, Mask, Snapshot
from app.backend.judgments.tables import JUDGMENT
from app.backend.storage import json_columns
from app.backend.storage.rows import among
from app.contract import limits
from app.contract.errors import Unavailable
from app.contract.judgments import (
    EmbeddingType,
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


@dataclass(frozen=True, slots=True)
class JudgmentQuery:
    """The condition of a search. ``scope`` and ``filters`` map columns to values."""

    api_key_id: str
    scope: Mapping[str, str]
    filters: Mapping[str, str] = field(default_factory=dict)
    earliest: int | None = None
    """Epoch milliseconds, inclusive."""
    latest: int | None = None
    """Epoch milliseconds, inclusive."""
    annotation_id: str | None = None


class ScoredJudgment(NamedTuple):
    """A row of ``JUDGMENT``, and its similarity to the text (1 without one)."""

    row: Row[Any]
    similarity: float


class SearchResult(NamedTuple):
    """The judgments, and how many are in scope."""

    judgments: list[ScoredJudgment]
    total: int


class JudgmentSearcher:
    """Searches with an embedder and the indexes of this process."""

    def __init__(self, embedder: Embedder, indexes: JudgmentIndexes) -> None:
        self.embedder = embedder
        self.indexes = indexes

    def nearest(
        self, connection: Connection, query: JudgmentQuery, text: str, embedding_type: EmbeddingType, limit: int
    ) -> SearchResult:
        """The judgments most similar to ``text``. Raises ``Unavailable`` if there are vectors of another embedder."""
        snapshot = self.indexes.snapshot(connection, query.api_key_id, embedding_type)
        outdated = np.count_nonzero(snapshot.alive & ~snapshot.where("embedder", self.embedder.name))
        if outdated:
            raise Unavailable(
                f"{outdated} judgments are not embedded with {self.embedder.name} yet; run usher backend reembed"
            )
        in_scope = _matching(snapshot, query.scope)
        (vector,) = self.embedder.embed([text])
        seqs, similarities = snapshot.nearest(in_scope & _filtered(snapshot, query), vector, limit)
        similarities_by_seq = dict(zip(seqs.tolist(), similarities.tolist(), strict=True))
        judgments = _load(connection, query.api_key_id, similarities_by_seq)
        return SearchResult(judgments, int(np.count_nonzero(in_scope)))

    def newest(self, connection: Connection, query: JudgmentQuery, limit: int) -> SearchResult:
        """The newest judgments, newest first."""
        snapshot = self.indexes.snapshot(connection, query.api_key_id)
        in_scope = _matching(snapshot, query.scope)
        seqs = snapshot.newest(in_scope & _filtered(snapshot, query), limit)
        judgments = _load(connection, query.api_key_id, dict.fromkeys(seqs.tolist(), 1.0))
        return SearchResult(judgments, int(np.count_nonzero(in_scope)))

    def thread(
        self, connection: Connection, query: JudgmentQuery, limit: int, *, newest_first: bool = False
    ) -> SearchResult:
        """The judgments of one comment thread, oldest first by default."""
        table = JUDGMENT.c
        rows = select(JUDGMENT).where(
            table.api_key_id == query.api_key_id,
            table.annotation_id == query.annotation_id,
            *(table[column] == value for column, value in {**query.scope, **query.filters}.items()),
        )
        if query.earliest is not None:
            rows = rows.where(table.created_at >= query.earliest)
        if query.latest is not None:
            rows = rows.where(table.created_at <= query.latest)
        order = (table.created_at.desc(), table.seq.desc()) if newest_first else (table.created_at, table.seq)
        judgments = [ScoredJudgment(row, 1.0) for row in connection.execute(rows.order_by(*order).limit(limit))]
        snapshot = self.indexes.snapshot(connection, query.api_key_id)
        return SearchResult(judgments, int(np.count_nonzero(_matching(snapshot, query.scope))))


def _matching(snapshot: Snapshot, columns: Mapping[str, str]) -> Mask:
    mask = snapshot.alive
    for column, value in columns.items():
        mask = mask & snapshot.where(column, value)
    return mask


def _filtered(snapshot: Snapshot, query: JudgmentQuery) -> Mask:
    mask = _matching(snapshot, query.filters)
    if query.earliest is not None:
        mask = mask & (snapshot.created_at >= query.earliest)
    if query.latest is not None:
        mask = mask & (snapshot.created_at <= query.latest)
    return mask


def _load(connection: Connection, api_key_id: str, similarities: Mapping[int, float]) -> list[ScoredJudgment]:
    """The judgments with these ``seq``, in this order."""
    query = select(JUDGMENT).where(JUDGMENT.c.api_key_id == api_key_id, among(connection, JUDGMENT.c.seq, similarities))
    rows = {row.seq: row for row in connection.execute(query)}
    return [ScoredJudgment(rows[seq], similarity) for seq, similarity in similarities.items() if seq in rows]


def search_judgments(searcher: JudgmentSearcher, call: Call[SearchJudgmentsRequest], connection: Connection) -> Reply:
    """Reads the thread if the filters name one, else the newest with ``recencyDays``, else the most similar."""
    request = call.request
    started = call.backend.clock()
    query, scope = _query(call, request.recency_days)
    limit = request.limit or limits.JUDGMENT_LIMIT_DEFAULT
    if query.annotation_id is not None:
        result = searcher.thread(connection, query, limit)
    elif request.recency_days is not None:
        result = searcher.newest(connection, query, limit)
    else:
        result = searcher.nearest(connection, query, request.query, request.embedding_type or "review", limit)
    latency = (call.backend.clock() - started).total_seconds() * 1000
    return Reply(
        "Judgments found.",
        {
            "results": [_result(judgment, scope) for judgment in result.judgments],
            "totalInScope": result.total,
            "searchLatencyMs": max(0.0, round(latency, 3)),
        },
    )


def query_judgments(searcher: JudgmentSearcher, call: Call[QueryJudgmentsRequest], connection: Connection) -> Reply:
    query, scope = _query(call, None)
    limit = call.request.limit or limits.JUDGMENT_QUERY_LIMIT_DEFAULT
    if query.annotation_id is not None:
        result = searcher.thread(connection, query, limit, newest_first=True)
    else:
        result = searcher.newest(connection, query, limit)
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
        **{name: payload[name] for name in ("confidence", "actionUser") if name in payload},
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
