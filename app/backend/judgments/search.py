"""Searches judgments: the most similar to a text, the newest, or those of one thread."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row, select

from app.backend.embedders.embedder import Embedder
from app.backend.judgments.index import JudgmentIndexes, Mask, Snapshot
from app.backend.judgments.tables import JUDGMENT
from app.backend.storage.rows import among
from app.contract.errors import Unavailable
from app.contract.judgments import EmbeddingType


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
        """The judgments most similar to ``text``.

        Raises ``Unavailable`` while judgments of the API key have vectors of another embedder.
        """
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
