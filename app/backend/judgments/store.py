"""Judgments written, moved and deleted so that every process that remembers them notices.

See ``tables`` for how: numbers that only grow, and a generation for deletions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select, update

from app.backend.embedders.embedder import Embedder, Vectors
from app.backend.judgments.record import JudgmentInput, review_text
from app.backend.judgments.tables import JUDGMENT, JUDGMENT_STATE, JUDGMENT_VECTOR
from app.backend.scope import Scope, within
from app.backend.storage import json_sets
from app.backend.storage.rows import update_rows, upsert
from app.contract.judgments import EmbeddingType
from app.foundation.database.engine import reading, writing

EMBEDDING_TYPES: tuple[EmbeddingType, ...] = get_args(EmbeddingType)
_STORED = np.dtype("<f2")
_REEMBED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class PreparedJudgment:
    """A judgment with its vectors, as they are stored. What was reviewed has none when nothing is told of it."""

    record: JudgmentInput
    embedder: str
    review: bytes
    content: bytes | None


def prepare_judgments(records: Sequence[JudgmentInput], embedder: Embedder) -> list[PreparedJudgment]:
    """The judgments with their vectors. May take long (see ``Embedder``): do it before a transaction begins, 1,000 or
    so at a time.
    """
    reviews = to_bytes(embedder.embed([record.review_text for record in records]))
    with_content = [number for number, record in enumerate(records) if record.content]
    contents = to_bytes(embedder.embed([records[number].content or "" for number in with_content]))
    content_of = dict(zip(with_content, contents, strict=True))
    return [
        PreparedJudgment(record, embedder.name, reviews[number], content_of.get(number))
        for number, record in enumerate(records)
    ]


def write_judgments(connection: Connection, api_key_id: str, prepared: Sequence[PreparedJudgment], now: int) -> int:
    """Writes judgments of one API key, a fixed number of statements whatever their count; returns how many.

    Those whose ``recordId`` exists are replaced; of one id that comes twice the last stands. Whoever else writes
    judgments of this key waits until the transaction ends.
    """
    judgments = {one.record.record_id: one for one in prepared}
    if not judgments:
        return 0
    first = _take_numbers(connection, api_key_id, len(judgments))
    of_key = JUDGMENT.c.api_key_id == api_key_id
    _delete(connection, api_key_id, of_key & JUDGMENT.c.record_id.in_(json_sets.texts(connection, judgments)))
    numbered = list(enumerate(judgments.values(), first))
    connection.execute(insert(JUDGMENT), [_row(api_key_id, seq, one, now) for seq, one in numbered])
    vectors = [
        {"api_key_id": api_key_id, "embedding_type": embedding_type, "seq": seq, "vector": vector}
        for embedding_type in EMBEDDING_TYPES
        for seq, one in numbered
        if (vector := one.review if embedding_type == "review" else one.content) is not None
    ]
    connection.execute(insert(JUDGMENT_VECTOR), vectors)
    return len(numbered)


def delete_judgments_of_documents(connection: Connection, scope: Scope, document_ids: Iterable[str]) -> None:
    """Deletes the judgments about these documents."""
    named = JUDGMENT.c.document_id.in_(json_sets.texts(connection, [one for one in document_ids if one]))
    if _delete(connection, scope.api_key_id, within(JUDGMENT, scope) & named):
        begin_generation(connection, scope.api_key_id)


def delete_judgments_of_organizations(connection: Connection, api_key_id: str, organization_ids: Iterable[str]) -> None:
    """Deletes the judgments in these organizations."""
    of_key = JUDGMENT.c.api_key_id == api_key_id
    named = JUDGMENT.c.organization_id.in_(json_sets.texts(connection, organization_ids))
    if _delete(connection, api_key_id, of_key & named):
        begin_generation(connection, api_key_id)


def reembed_judgments(engine: Engine, embedder: Embedder, advance: Callable[[int], None] = lambda _number: None) -> int:
    """Makes the vectors of all judgments that another embedder made, of every API key; returns how many.

    ``advance`` is told of each batch.

    In many small transactions: it may be stopped and run again at any time, beside a server that serves.
    """
    count = 0
    after = ("", 0)
    while True:
        with reading(engine) as connection:
            rows = connection.execute(
                select(JUDGMENT)
                .where(
                    (JUDGMENT.c.api_key_id > after[0])
                    | ((JUDGMENT.c.api_key_id == after[0]) & (JUDGMENT.c.seq > after[1])),
                    JUDGMENT.c.embedder != embedder.name,
                )
                .order_by(JUDGMENT.c.api_key_id, JUDGMENT.c.seq)
                .limit(_REEMBED_AT_ONCE)
            ).all()
        if not rows:
            return count
        after = (rows[-1].api_key_id, rows[-1].seq)
        for api_key_id in dict.fromkeys(row.api_key_id for row in rows):
            of_key = [row for row in rows if row.api_key_id == api_key_id]
            done = _reembed(engine, embedder, api_key_id, of_key)
            count += done
            advance(done)


def to_bytes(vectors: Vectors) -> list[bytes]:
    """Each vector as it is stored."""
    return [vector.tobytes() for vector in vectors.astype(_STORED)]


def from_bytes(stored: Sequence[bytes]) -> Vectors:
    """The stored vectors, shape (number, dimensions)."""
    together = np.frombuffer(b"".join(stored), _STORED)
    return together.reshape(len(stored), -1).astype(np.float32)


def _reembed(engine: Engine, embedder: Embedder, api_key_id: str, rows: Sequence[Any]) -> int:
    reviews: list[str] = []
    contents: dict[int, str] = {}
    for row in rows:
        payload = json_sets.load_object(row.payload)
        reviews.append(review_text(row.decision, payload.get("reasoning")))
        if content := payload.get("content"):
            contents[row.seq] = str(content)
    vectors = {
        "review": dict(zip([row.seq for row in rows], to_bytes(embedder.embed(reviews)), strict=True)),
        "content": dict(zip(contents, to_bytes(embedder.embed(list(contents.values()))), strict=True)),
    }
    with writing(engine) as connection:
        # Those that were replaced or deleted meanwhile are somebody else's now.
        _take_numbers(connection, api_key_id, 0)
        query = select(JUDGMENT.c.seq).where(
            JUDGMENT.c.api_key_id == api_key_id, JUDGMENT.c.seq.in_(json_sets.integers(connection, vectors["review"]))
        )
        there = set(connection.scalars(query))
        if not there:
            return 0
        changed = [
            {"api_key_id": api_key_id, "embedding_type": kind, "seq": seq, "vector": vector}
            for kind, of_kind in vectors.items()
            for seq, vector in of_kind.items()
            if seq in there
        ]
        update_rows(connection, JUDGMENT_VECTOR, ("vector",), changed)
        connection.execute(
            update(JUDGMENT)
            .where(JUDGMENT.c.api_key_id == api_key_id, JUDGMENT.c.seq.in_(json_sets.integers(connection, there)))
            .values(embedder=embedder.name)
        )
        begin_generation(connection, api_key_id)
        return len(there)


def _take_numbers(connection: Connection, api_key_id: str, count: int) -> int:
    """The first of ``count`` numbers that nobody else gets. Locks the key's row, so that numbers become visible in
    their order.
    """
    statement = upsert(connection, JUDGMENT_STATE).values(api_key_id=api_key_id, last_seq=count, generation=0)
    statement = statement.on_conflict_do_update(
        index_elements=[JUDGMENT_STATE.c.api_key_id], set_={"last_seq": JUDGMENT_STATE.c.last_seq + count}
    )
    last = connection.scalar(statement.returning(JUDGMENT_STATE.c.last_seq))
    assert last is not None  # noqa: S101 - the row was just written
    return int(last) - count + 1


def begin_generation(connection: Connection, api_key_id: str) -> None:
    connection.execute(
        update(JUDGMENT_STATE)
        .where(JUDGMENT_STATE.c.api_key_id == api_key_id)
        .values(generation=JUDGMENT_STATE.c.generation + 1)
    )


def _delete(connection: Connection, api_key_id: str, which: ColumnElement[bool]) -> bool:
    """Deletes these judgments of the key with their vectors; whether there were any."""
    gone = list(connection.scalars(select(JUDGMENT.c.seq).where(which)))
    if not gone:
        return False
    for table in (JUDGMENT_VECTOR, JUDGMENT):
        condition = (table.c.api_key_id == api_key_id) & table.c.seq.in_(json_sets.integers(connection, gone))
        if table is JUDGMENT_VECTOR:
            # Named, so that the primary key leads straight to the rows.
            condition &= table.c.embedding_type.in_(EMBEDDING_TYPES)
        connection.execute(delete(table).where(condition))
    return True


def _row(api_key_id: str, seq: int, one: PreparedJudgment, now: int) -> dict[str, object]:
    record = one.record
    return {
        "api_key_id": api_key_id,
        "seq": seq,
        "record_id": record.record_id,
        "organization_id": record.organization_id,
        "document_id": record.document_id or "",
        "annotation_id": record.annotation_id or "",
        "decision": record.decision,
        "judge_type": record.judged_by,
        "content_type": record.content_type or "",
        "reviewer_id": record.reviewer,
        "embedder": one.embedder,
        "payload": json_sets.dump(record.payload),
        "created_at": record.created(now),
    }
