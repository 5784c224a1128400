"""A process's memory of an API key's judgments, by which a search reads all of them in milliseconds.

The fields that judgments are filtered by, as columns of numbers, and the vectors, as one matrix per embedding type. A
search compares with every vector: approximate indexes lose results. Before each search the database is asked what was
written since, which is one look-up when nothing was.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from app.backend.embedders.embedder import DIMENSIONS, Vectors
from app.backend.judgments.store import from_bytes
from app.backend.judgments.tables import JUDGMENT, JUDGMENT_STATE, JUDGMENT_VECTOR
from app.contract.judgments import EmbeddingType

CODED = ("organization_id", "document_id", "decision", "judge_type", "content_type", "reviewer_id", "embedder")
"""Columns of text that are kept as numbers."""
_STREAMING = {"yield_per": 10_000}
_NEVER = np.iinfo(np.int64).max
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The judgments of one API key at one moment; the arrays run side by side, oldest write first."""

    seqs: NDArray[np.int64]
    created_at: NDArray[np.int64]
    alive: Mask
    """False for what was replaced by then."""
    codes: Mapping[str, NDArray[np.int32]]
    dictionaries: Mapping[str, Mapping[str, int]]
    vectors: Vectors | None
    """Zeros for a judgment that has none of the type."""
    has_vector: Mask | None

    def where(self, column: str, value: str) -> Mask:
        """The judgments whose ``column`` has this value."""
        code = self.dictionaries[column].get(value, -1)
        found: Mask = self.codes[column] == code
        return found

    def newest(self, which: Mask, count: int) -> NDArray[np.int64]:
        """The numbers (``seq``) of the newest ``count`` of these judgments, newest first."""
        positions = np.flatnonzero(which)
        return self.seqs[_best(positions, self.created_at[positions], self.created_at, count)]

    def nearest(self, which: Mask, query: Vectors, count: int) -> tuple[NDArray[np.int64], Vectors]:
        """The numbers of the ``count`` of these judgments that are most similar to ``query``, and their similarities,
        from 1 (the same) to -1. Of equals, the newer come first. Judgments without a vector are left out.
        """
        assert self.vectors is not None  # noqa: S101 - asked for with an embedding type
        assert self.has_vector is not None  # noqa: S101 - see above
        positions = np.flatnonzero(which & self.has_vector)
        # A few rows are copied together; for many, the whole matrix is faster.
        few = len(positions) * 4 < len(self.vectors)
        scores = _products(self.vectors[positions], query) if few else _products(self.vectors, query)[positions]
        # Rounding makes equals of what differs by the order of additions alone.
        scores = np.round(np.clip(scores, -1, 1), 5).astype(np.float32)
        best = _best(positions, scores, self.created_at, count)
        return self.seqs[best], scores[np.searchsorted(positions, best)]


def _products(vectors: Vectors, query: Vectors) -> Vectors:
    """Each vector times the query, in this thread alone: the threads of ``vectors @ query`` wait for one another, and
    on a busy machine that takes many times longer than the products.
    """
    products = np.zeros(len(vectors), np.float32)
    np.einsum("ij,j->i", vectors, query, out=products)
    return products


def _best(
    positions: NDArray[np.int64], scores: NDArray[Any], created_at: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """The ``count`` positions with the highest scores; of equals the newest, then the last written."""
    if len(positions) > count:
        least = scores[np.argpartition(scores, len(scores) - count)[len(scores) - count :]].min()
        kept = scores >= least
        positions, scores = positions[kept], scores[kept]
    order = np.lexsort((-positions, -created_at[positions], -scores))
    chosen: NDArray[np.int64] = positions[order[:count]]
    return chosen


class _Matrix:
    """The vectors of one embedding type, at the positions of their judgments."""

    def __init__(self) -> None:
        self.rows = np.zeros((0, DIMENSIONS), np.float32)
        self.present = np.zeros(0, np.bool_)
        self.last_seq = 0


class KeyIndex:
    """What is remembered of one API key. Arrays have room at the end: whoever looks at their beginning is not
    disturbed by what is added behind it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._forget(generation=0)

    def _forget(self, generation: int) -> None:
        self._generation: int | None = generation
        self._last_seq = 0
        self._count = 0
        self._seqs = np.zeros(0, np.int64)
        self._created_at = np.zeros(0, np.int64)
        self._records = np.zeros(0, np.uint64)
        self._replaced_by = np.zeros(0, np.int64)
        self._codes = {column: np.zeros(0, np.int32) for column in CODED}
        self._dictionaries: dict[str, dict[str, int]] = {column: {} for column in CODED}
        self._matrices: dict[EmbeddingType, _Matrix] = {}

    @property
    def size(self) -> int:
        """Bytes of memory, all but exactly."""
        arrays: list[NDArray[Any]] = [
            self._seqs,
            self._created_at,
            self._records,
            self._replaced_by,
            *self._codes.values(),
        ]
        return sum(array.nbytes for array in arrays) + sum(one.rows.nbytes for one in self._matrices.values())

    def at(self, connection: Connection, api_key_id: str, embedding_type: EmbeddingType | None) -> Snapshot:
        """The judgments as ``connection`` sees them, with the vectors of that type if one is named. Hold the lock."""
        state = connection.execute(
            select(JUDGMENT_STATE.c.last_seq, JUDGMENT_STATE.c.generation).where(
                JUDGMENT_STATE.c.api_key_id == api_key_id
            )
        ).one_or_none()
        last_seq, generation = (0, 0) if state is None else (state.last_seq, state.generation)
        if generation != self._generation:
            self._forget(generation)
        # What fails halfway is not built upon.
        self._generation = None
        if last_seq > self._last_seq:
            self._read_fields(connection, api_key_id)
            self._last_seq = last_seq
        matrix = None if embedding_type is None else self._matrix(connection, api_key_id, embedding_type, last_seq)
        self._generation = generation
        # Another request may have read further than this one's transaction sees.
        count = int(np.searchsorted(self._seqs[: self._count], last_seq, side="right"))
        return Snapshot(
            seqs=self._seqs[:count],
            created_at=self._created_at[:count],
            alive=self._replaced_by[:count] > last_seq,
            codes={column: codes[:count] for column, codes in self._codes.items()},
            dictionaries=self._dictionaries,
            vectors=None if matrix is None else matrix.rows[:count],
            has_vector=None if matrix is None else matrix.present[:count],
        )

    def _read_fields(self, connection: Connection, api_key_id: str) -> None:
        columns = [JUDGMENT.c[name] for name in ("seq", "created_at", "record_id", *CODED)]
        query = (
            select(*columns)
            .where(JUDGMENT.c.api_key_id == api_key_id, JUDGMENT.c.seq > self._last_seq)
            .order_by(JUDGMENT.c.seq)
        )
        before = self._count
        for rows in connection.execute(query, execution_options=_STREAMING).partitions():
            seqs, created_at, records, *coded = zip(*rows, strict=True)
            self._reserve(self._count + len(rows))
            added = slice(self._count, self._count + len(rows))
            self._seqs[added] = seqs
            self._created_at[added] = created_at
            self._records[added] = [_hashed(record) for record in records]
            self._replaced_by[added] = _NEVER
            for column, values in zip(CODED, coded, strict=True):
                dictionary = self._dictionaries[column]
                self._codes[column][added] = [dictionary.setdefault(value, len(dictionary)) for value in values]
            self._count += len(rows)
        self._mark_replaced(before)

    def _mark_replaced(self, before: int) -> None:
        """Lets what was read before know by which of the judgments behind it, if any, it was replaced."""
        old, new = self._records[:before], self._records[before : self._count]
        order = np.argsort(new)
        replaced = np.flatnonzero(np.isin(old, new) & (self._replaced_by[:before] == _NEVER))
        by = before + order[np.searchsorted(new[order], old[replaced])]
        self._replaced_by[replaced] = self._seqs[by]

    def _matrix(self, connection: Connection, api_key_id: str, embedding_type: EmbeddingType, last_seq: int) -> _Matrix:
        matrix = self._matrices.setdefault(embedding_type, _Matrix())
        if len(matrix.present) < self._count:
            matrix.rows = _grown(matrix.rows, len(self._seqs))
            matrix.present = _grown(matrix.present, len(self._seqs))
        if matrix.last_seq < last_seq:
            query = (
                select(JUDGMENT_VECTOR.c.seq, JUDGMENT_VECTOR.c.vector)
                .where(
                    JUDGMENT_VECTOR.c.api_key_id == api_key_id,
                    JUDGMENT_VECTOR.c.embedding_type == embedding_type,
                    JUDGMENT_VECTOR.c.seq > matrix.last_seq,
                )
                .order_by(JUDGMENT_VECTOR.c.seq)
            )
            for rows in connection.execute(query, execution_options=_STREAMING).partitions():
                seqs, vectors = zip(*rows, strict=True)
                positions = np.searchsorted(self._seqs[: self._count], seqs)
                matrix.rows[positions] = from_bytes(vectors)
                matrix.present[positions] = True
            matrix.last_seq = last_seq
        return matrix

    def _reserve(self, count: int) -> None:
        if count <= len(self._seqs):
            return
        room = max(count, len(self._seqs) * 5 // 4)
        self._seqs = _grown(self._seqs, room)
        self._created_at = _grown(self._created_at, room)
        self._records = _grown(self._records, room)
        self._replaced_by = _grown(self._replaced_by, room)
        self._codes = {column: _grown(codes, room) for column, codes in self._codes.items()}


class JudgmentIndexes:
    """What this process remembers of all API keys: those last searched, up to ``max_bytes`` together (but always the
    one that is being searched).
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, KeyIndex] = OrderedDict()

    def snapshot(
        self, connection: Connection, api_key_id: str, embedding_type: EmbeddingType | None = None
    ) -> Snapshot:
        """The key's judgments as ``connection`` sees them; with vectors if a type is named."""
        with self._lock:
            index = self._indexes.setdefault(api_key_id, KeyIndex())
            self._indexes.move_to_end(api_key_id)
        with index.lock:
            snapshot = index.at(connection, api_key_id, embedding_type)
        self._make_room()
        return snapshot

    def _make_room(self) -> None:
        with self._lock:
            total = sum(index.size for index in self._indexes.values())
            while total > self._max_bytes and len(self._indexes) > 1:
                total -= self._indexes.popitem(last=False)[1].size


def _grown(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """A copy with room for ``rows`` rows."""
    if len(array) >= rows:
        return array
    grown = np.zeros((rows, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _hashed(record_id: str) -> int:
    """Stands for the id: two of a million differ in it but for a chance of 1 in 10^7."""
    return int.from_bytes(hashlib.blake2b(record_id.encode(), digest_size=8).digest(), "little")
