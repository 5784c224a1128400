"""In-memory indexes of judgments, for exact searches in milliseconds.

The index of an API key has the filtered columns as numbers, and a matrix of vectors per embedding type. A search
compares with every vector, because approximate indexes lose results. Each search first reads what was written since
the last one, which is one lookup if nothing was.
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
"""Text columns, stored as one integer per distinct value."""
_TYPES = {"seq": np.int64, "created_at": np.int64, "record": np.uint64, "replaced_by": np.int64} | dict.fromkeys(
    CODED, np.int32
)
"""The arrays of an index. ``record`` is a hash of the record id, ``replaced_by`` the ``seq`` of a later write."""
_BATCH_ROWS = 10_000
"""Rows per fetch. ``partitions`` needs the size, too: without it, PostgreSQL returns all rows at once."""
_STREAMING = {"yield_per": _BATCH_ROWS}
_NEVER = np.iinfo(np.int64).max
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The judgments of one API key at one moment, as parallel arrays in the order of ``seq``."""

    seqs: NDArray[np.int64]
    created_at: NDArray[np.int64]
    alive: Mask
    """False for a judgment that a later write replaced."""
    codes: Mapping[str, NDArray[np.int32]]
    dictionaries: Mapping[str, Mapping[str, int]]
    vectors: Vectors | None
    """Zeros for a judgment without a vector of the type."""
    has_vector: Mask | None

    def where(self, column: str, value: str) -> Mask:
        """The judgments with this value in the column."""
        code = self.dictionaries[column].get(value, -1)
        found: Mask = self.codes[column] == code
        return found

    def newest(self, among: Mask, count: int) -> NDArray[np.int64]:
        """The ``seq`` of the newest ``count`` judgments of ``among``, newest first."""
        positions = np.flatnonzero(among)
        return self.seqs[_best(positions, self.created_at[positions], self.created_at, count)]

    def nearest(self, among: Mask, query: Vectors, count: int) -> tuple[NDArray[np.int64], Vectors]:
        """The ``seq`` of the ``count`` judgments of ``among`` most similar to ``query``, and their similarities.

        A similarity is from 1 to -1. Of equal ones the newer come first. Judgments without a vector are skipped.
        """
        assert self.vectors is not None  # noqa: S101 - the caller named an embedding type
        assert self.has_vector is not None  # noqa: S101 - see above
        positions = np.flatnonzero(among & self.has_vector)
        # A copy of a few rows is faster, for many rows the whole matrix is.
        few = len(positions) * 4 < len(self.vectors)
        scores = _products(self.vectors[positions], query) if few else _products(self.vectors, query)[positions]
        # Rounded, because the order of additions changes the last digits of equal similarities.
        scores = np.round(np.clip(scores, -1, 1), 5).astype(np.float32)
        best = _best(positions, scores, self.created_at, count)
        return self.seqs[best], scores[np.searchsorted(positions, best)]


def _products(vectors: Vectors, query: Vectors) -> Vectors:
    """``vectors @ query`` in this thread alone. BLAS threads wait for each other, which is slow on a busy machine."""
    products = np.zeros(len(vectors), np.float32)
    np.einsum("ij,j->i", vectors, query, out=products)
    return products


def _best(
    positions: NDArray[np.int64], scores: NDArray[Any], created_at: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """The ``count`` positions with the highest scores. Of equal ones the newest, then the last written."""
    if len(positions) > count:
        lowest = scores[np.argpartition(scores, len(scores) - count)[len(scores) - count :]].min()
        is_high = scores >= lowest
        positions, scores = positions[is_high], scores[is_high]
    order = np.lexsort((-positions, -created_at[positions], -scores))
    best: NDArray[np.int64] = positions[order[:count]]
    return best


class _Matrix:
    """The vectors of one embedding type, at the positions of their judgments."""

    def __init__(self) -> None:
        self.rows = np.zeros((0, DIMENSIONS), np.float32)
        self.present = np.zeros(0, np.bool_)
        self.last_seq = 0


class KeyIndex:
    """The index of one API key.

    Arrays have spare room at their end. Snapshots are views of their start, which later writes do not change.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._reset(generation=0)

    def _reset(self, generation: int) -> None:
        self._generation: int | None = generation
        self._last_seq = 0
        self._count = 0
        self._columns: dict[str, NDArray[Any]] = {name: np.zeros(0, dtype) for name, dtype in _TYPES.items()}
        self._dictionaries: dict[str, dict[str, int]] = {column: {} for column in CODED}
        self._matrices: dict[EmbeddingType, _Matrix] = {}

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        arrays = [*self._columns.values(), *(matrix.rows for matrix in self._matrices.values())]
        return sum(array.nbytes for array in arrays)

    def at(self, connection: Connection, api_key_id: str, embedding_type: EmbeddingType | None) -> Snapshot:
        """The judgments in the transaction of ``connection``, with vectors if a type is named. Requires the lock."""
        state = connection.execute(
            select(JUDGMENT_STATE.c.last_seq, JUDGMENT_STATE.c.generation).where(
                JUDGMENT_STATE.c.api_key_id == api_key_id
            )
        ).one_or_none()
        last_seq, generation = (0, 0) if state is None else (state.last_seq, state.generation)
        if generation != self._generation:
            self._reset(generation)
        # After a failed read the next call starts from scratch.
        self._generation = None
        if last_seq > self._last_seq:
            self._read_columns(connection, api_key_id)
            self._last_seq = last_seq
        matrix = None if embedding_type is None else self._matrix(connection, api_key_id, embedding_type, last_seq)
        self._generation = generation
        # Another request may have read later writes than this transaction sees.
        count = int(np.searchsorted(self._columns["seq"][: self._count], last_seq, side="right"))
        return Snapshot(
            seqs=self._columns["seq"][:count],
            created_at=self._columns["created_at"][:count],
            alive=self._columns["replaced_by"][:count] > last_seq,
            codes={column: self._columns[column][:count] for column in CODED},
            dictionaries=self._dictionaries,
            vectors=None if matrix is None else matrix.rows[:count],
            has_vector=None if matrix is None else matrix.present[:count],
        )

    def _read_columns(self, connection: Connection, api_key_id: str) -> None:
        query = (
            select(*(JUDGMENT.c[name] for name in ("seq", "created_at", "record_id", *CODED)))
            .where(JUDGMENT.c.api_key_id == api_key_id, JUDGMENT.c.seq > self._last_seq)
            .order_by(JUDGMENT.c.seq)
        )
        before = self._count
        for rows in connection.execute(query, execution_options=_STREAMING).partitions(_BATCH_ROWS):
            seqs, created_at, record_ids, *coded = zip(*rows, strict=True)
            self._reserve(self._count + len(rows))
            added = slice(self._count, self._count + len(rows))
            self._columns["seq"][added] = seqs
            self._columns["created_at"][added] = created_at
            self._columns["record"][added] = [_hash(record_id) for record_id in record_ids]
            self._columns["replaced_by"][added] = _NEVER
            for column, values in zip(CODED, coded, strict=True):
                dictionary = self._dictionaries[column]
                self._columns[column][added] = [dictionary.setdefault(value, len(dictionary)) for value in values]
            self._count += len(rows)
        self._mark_replaced(before)

    def _mark_replaced(self, before: int) -> None:
        """Marks the first ``before`` judgments that one of the new ones replaces."""
        records, replaced_by = self._columns["record"], self._columns["replaced_by"]
        old, new = records[:before], records[before : self._count]
        order = np.argsort(new)
        replaced = np.flatnonzero(np.isin(old, new) & (replaced_by[:before] == _NEVER))
        by = before + order[np.searchsorted(new[order], old[replaced])]
        replaced_by[replaced] = self._columns["seq"][by]

    def _matrix(self, connection: Connection, api_key_id: str, embedding_type: EmbeddingType, last_seq: int) -> _Matrix:
        matrix = self._matrices.setdefault(embedding_type, _Matrix())
        seqs = self._columns["seq"]
        if len(matrix.present) < self._count:
            matrix.rows = _grown(matrix.rows, len(seqs))
            matrix.present = _grown(matrix.present, len(seqs))
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
            for rows in connection.execute(query, execution_options=_STREAMING).partitions(_BATCH_ROWS):
                row_seqs, vectors = zip(*rows, strict=True)
                positions = np.searchsorted(seqs[: self._count], row_seqs)
                matrix.rows[positions] = from_bytes(vectors)
                matrix.present[positions] = True
            matrix.last_seq = last_seq
        return matrix

    def _reserve(self, count: int) -> None:
        capacity = len(self._columns["seq"])
        if count > capacity:
            capacity = max(count, capacity * 5 // 4)
            self._columns = {name: _grown(array, capacity) for name, array in self._columns.items()}


class JudgmentIndexes:
    """An LRU cache of the indexes of API keys, up to ``max_bytes`` in total. Always keeps the last searched one."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, KeyIndex] = OrderedDict()

    def snapshot(
        self, connection: Connection, api_key_id: str, embedding_type: EmbeddingType | None = None
    ) -> Snapshot:
        """The judgments in the transaction of ``connection``, with vectors if a type is named."""
        with self._lock:
            index = self._indexes.setdefault(api_key_id, KeyIndex())
            self._indexes.move_to_end(api_key_id)
        with index.lock:
            snapshot = index.at(connection, api_key_id, embedding_type)
        with self._lock:
            total = sum(cached.size for cached in self._indexes.values())
            while total > self._max_bytes and len(self._indexes) > 1:
                total -= self._indexes.popitem(last=False)[1].size
        return snapshot


def _grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    """A copy of ``array`` with this length."""
    grown = np.zeros((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _hash(record_id: str) -> int:
    """A 64-bit hash. The chance of a collision among a million ids is about 3 in 10^8."""
    return int.from_bytes(hashlib.blake2b(record_id.encode(), digest_size=8).digest(), "little")
