"""The search for judgments: which of them answer a question?

By meaning: all in scope that pass the filters, ranked by similarity. By metadata: the newest of them. By thread: those
of one comment thread, oldest first. All of them are looked at, every time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, select

from app.backend.embedders.embedder import Embedder
from app.backend.judgments.index import JudgmentIndexes, Mask, Snapshot
from app.backend.judgments.tables import JUDGMENT
from app.backend.storage import json_sets
from app.contract.errors import Unavailable
from app.contract.judgments import EmbeddingType

FoundRow = Row[Any]


@dataclass(frozen=True, slots=True)
class JudgmentQuery:
    """Whose judgments, and which of them. Columns are compared with what they have to be."""

    api_key_id: str
    scope: Mapping[str, str]
    filters: Mapping[str, str] = field(default_factory=dict)
    earliest: int | None = None
    """Epoch milliseconds, itself within."""
    latest: int | None = None
    """The same."""
    annotation_id: str | None = None


@dataclass(frozen=True, slots=True)
class FoundJudgment:
    """A judgment that was found."""

    row: FoundRow
    similarity: float


class JudgmentSearcher:
    """Searching, with an embedder and what this process remembers."""

    def __init__(self, embedder: Embedder, indexes: JudgmentIndexes) -> None:
        self.embedder = embedder
        self.indexes = indexes

    def nearest(
        self, connection: Connection, asked: JudgmentQuery, query: str, embedding_type: EmbeddingType, limit: int
    ) -> tuple[list[FoundJudgment], int]:
        """The judgments most similar to ``query``, and how many are in scope.

        Raises ``Unavailable`` while some of the key's judgments have no vectors of this embedder yet.
        """
        snapshot = self.indexes.snapshot(connection, asked.api_key_id, embedding_type)
        lacking = int(np.count_nonzero(snapshot.alive & ~snapshot.where("embedder", self.embedder.name)))
        if lacking:
            raise Unavailable(
                f"{lacking} judgments are not embedded with {self.embedder.name} yet; run usher backend reembed"
            )
        in_scope = _matching(snapshot, asked.scope)
        which = in_scope & _filtered(snapshot, asked)
        (vector,) = self.embedder.embed([query])
        seqs, similarities = snapshot.nearest(which, vector, limit)
        found = dict(zip(seqs.tolist(), similarities.tolist(), strict=True))
        return _loaded(connection, asked.api_key_id, found), int(np.count_nonzero(in_scope))

    def newest(self, connection: Connection, asked: JudgmentQuery, limit: int) -> tuple[list[FoundJudgment], int]:
        """The newest judgments, newest first, and how many are in scope."""
        snapshot = self.indexes.snapshot(connection, asked.api_key_id)
        in_scope = _matching(snapshot, asked.scope)
        seqs = snapshot.newest(in_scope & _filtered(snapshot, asked), limit)
        return _loaded(connection, asked.api_key_id, dict.fromkeys(seqs.tolist(), 1.0)), int(np.count_nonzero(in_scope))

    def thread(
        self, connection: Connection, asked: JudgmentQuery, limit: int, *, newest_first: bool = False
    ) -> tuple[list[FoundJudgment], int]:
        """The judgments of one comment thread, oldest first unless told otherwise, and how many are in scope."""
        table = JUDGMENT.c
        query = select(JUDGMENT).where(
            table.api_key_id == asked.api_key_id,
            table.annotation_id == asked.annotation_id,
            *(table[column] == value for column, value in {**asked.scope, **asked.filters}.items()),
        )
        if asked.earliest is not None:
            query = query.where(table.created_at >= asked.earliest)
        if asked.latest is not None:
            query = query.where(table.created_at <= asked.latest)
        order = (table.created_at.desc(), table.seq.desc()) if newest_first else (table.created_at, table.seq)
        rows = connection.execute(query.order_by(*order).limit(limit)).all()
        snapshot = self.indexes.snapshot(connection, asked.api_key_id)
        in_scope = int(np.count_nonzero(_matching(snapshot, asked.scope)))
        return [FoundJudgment(row, 1.0) for row in rows], in_scope


def _matching(snapshot: Snapshot, columns: Mapping[str, str]) -> Mask:
    found = snapshot.alive
    for column, value in columns.items():
        found = found & snapshot.where(column, value)
    return found


def _filtered(snapshot: Snapshot, asked: JudgmentQuery) -> Mask:
    found = _matching(snapshot, asked.filters)
    if asked.earliest is not None:
        found = found & (snapshot.created_at >= asked.earliest)
    if asked.latest is not None:
        found = found & (snapshot.created_at <= asked.latest)
    return found


def _loaded(connection: Connection, api_key_id: str, similarities: Mapping[int, float]) -> list[FoundJudgment]:
    """The judgments with these numbers, in this order."""
    rows = _rows(connection, api_key_id, similarities)
    return [FoundJudgment(rows[seq], similarity) for seq, similarity in similarities.items() if seq in rows]


def _rows(connection: Connection, api_key_id: str, seqs: Iterable[int]) -> dict[int, FoundRow]:
    query = select(JUDGMENT).where(
        JUDGMENT.c.api_key_id == api_key_id, JUDGMENT.c.seq.in_(json_sets.integers(connection, seqs))
    )
    return {row.seq: row for row in connection.execute(query)}
