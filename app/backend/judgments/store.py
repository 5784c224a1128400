"""Writes and deletes judgments, which are the stored decisions of reviewers about content.

Each write updates ``last_seq``. Each delete and each new embedding updates ``generation``. The caches of all processes
compare both (see ``tables``).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select, update

from app.backend.embedders.embedder import Embedder, Vectors
from app.backend.judgments.record import JudgmentInput, review_text
from app.backend.judgments.tables import JUDGMENT, JUDGMENT_STATE, JUDGMENT_VECTOR
from app.backend.scope import Scope, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import among, update_rows, upsert
from app.contract.judgments import EmbeddingType
from app.foundation.database.engine import reading, writing

EMBEDDING_TYPES: tuple[EmbeddingType, ...] = get_args(EmbeddingType)
_STORED = np.dtype("<f2")
_REEMBED_BATCH = 500


@dataclass(frozen=True, slots=True)
class PreparedJudgment:
    """A judgment with its vectors in stored form. ``content`` is None if the record has no content."""

    record: JudgmentInput
    embedder: str
    review: bytes
    content: bytes | None


def prepare_judgments(records: Sequence[JudgmentInput], embedder: Embedder) -> list[PreparedJudgment]:
    """Computes the vectors. It is slow: call it before a transaction begins, with about 1,000 records at a time."""
    reviews = to_bytes(embedder.embed([review_text(record.decision, record.reasoning) for record in records]))
    contents = iter(to_bytes(embedder.embed([record.content for record in records if record.content])))
    return [
        PreparedJudgment(record, embedder.name, review, next(contents) if record.content else None)
        for record, review in zip(records, reviews, strict=True)
    ]


def write_judgments(connection: Connection, api_key_id: str, prepared: Sequence[PreparedJudgment], now: int) -> None:
    """Writes judgments in a fixed number of statements, and replaces those with the same ``recordId``. The last of
    equal ids wins. Locks out other writers of the API key's judgments until the transaction ends."""
    judgments = {judgment.record.record_id: judgment for judgment in prepared}
    if not judgments:
        return
    first = _allocate_seqs(connection, api_key_id, len(judgments))
    _delete(connection, api_key_id, among(connection, JUDGMENT.c.record_id, judgments))
    numbered = list(enumerate(judgments.values(), first))
    connection.execute(insert(JUDGMENT), [_row(api_key_id, seq, judgment, now) for seq, judgment in numbered])
    vectors = [
        *(_vector_row(api_key_id, "review", seq, judgment.review) for seq, judgment in numbered),
        *(
            _vector_row(api_key_id, "content", seq, judgment.content)
            for seq, judgment in numbered
            if judgment.content is not None
        ),
    ]
    connection.execute(insert(JUDGMENT_VECTOR), vectors)


def delete_judgments_of_documents(connection: Connection, scope: Scope, document_ids: Iterable[str]) -> None:
    """Deletes the judgments about these documents."""
    # Judgments without a document have an empty id.
    condition = within_ids(connection, scope, JUDGMENT.c.document_id, filter(None, document_ids))
    _delete_and_begin_generation(connection, scope.api_key_id, condition)


def delete_judgments_of_organizations(connection: Connection, api_key_id: str, organization_ids: Iterable[str]) -> None:
    """Deletes the judgments of these organizations."""
    condition = among(connection, JUDGMENT.c.organization_id, organization_ids)
    _delete_and_begin_generation(connection, api_key_id, condition)


def move_judgments(connection: Connection, scope: Scope, document_id: str, new_document_id: str) -> None:
    """Moves the judgments about a document to another document id."""
    _lock_judgments(connection, scope.api_key_id)
    of_document = within_ids(connection, scope, JUDGMENT.c.document_id, [document_id])
    if connection.execute(update(JUDGMENT).where(of_document).values(document_id=new_document_id)).rowcount:
        _begin_generation(connection, scope.api_key_id)


def reembed_judgments(engine: Engine, embedder: Embedder, advance: Callable[[int], None] = lambda _count: None) -> int:
    """Replaces all vectors of other embedders in short transactions, so the server may run meanwhile. Calls ``advance``
    with the size of each batch. Returns the number of judgments."""
    total = 0
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
                .limit(_REEMBED_BATCH)
            ).all()
        if not rows:
            return total
        after = (rows[-1].api_key_id, rows[-1].seq)
        for api_key_id in dict.fromkeys(row.api_key_id for row in rows):
            count = _reembed(engine, embedder, api_key_id, [row for row in rows if row.api_key_id == api_key_id])
            total += count
            advance(count)


def to_bytes(vectors: Vectors) -> list[bytes]:
    """The stored form of each vector."""
    return [vector.tobytes() for vector in vectors.astype(_STORED)]


def from_bytes(stored: Sequence[bytes]) -> Vectors:
    """The vectors of the stored form, shape (number, dimensions)."""
    return np.frombuffer(b"".join(stored), _STORED).reshape(len(stored), -1).astype(np.float32)


def _begin_generation(connection: Connection, api_key_id: str) -> None:
    """Invalidates the caches of an API key's judgments in all processes."""
    connection.execute(
        update(JUDGMENT_STATE)
        .where(JUDGMENT_STATE.c.api_key_id == api_key_id)
        .values(generation=JUDGMENT_STATE.c.generation + 1)
    )


def _reembed(engine: Engine, embedder: Embedder, api_key_id: str, rows: Sequence[Any]) -> int:
    reviews: dict[int, str] = {}
    contents: dict[int, str] = {}
    for row in rows:
        payload = json_columns.load_object(row.payload)
        reviews[row.seq] = review_text(row.decision, payload.get("reasoning"))
        if content := payload.get("content"):
            contents[row.seq] = str(content)
    texts_by_type: tuple[tuple[EmbeddingType, dict[int, str]], ...] = (("review", reviews), ("content", contents))
    vectors = [
        _vector_row(api_key_id, embedding_type, seq, vector)
        for embedding_type, texts in texts_by_type
        for seq, vector in zip(texts, to_bytes(embedder.embed(list(texts.values()))), strict=True)
    ]
    with writing(engine) as connection:
        _lock_judgments(connection, api_key_id)
        query = select(JUDGMENT.c.seq).where(
            JUDGMENT.c.api_key_id == api_key_id, among(connection, JUDGMENT.c.seq, reviews)
        )
        existing = set(connection.scalars(query))
        if not existing:
            return 0
        update_rows(connection, JUDGMENT_VECTOR, ("vector",), [row for row in vectors if row["seq"] in existing])
        connection.execute(
            update(JUDGMENT)
            .where(JUDGMENT.c.api_key_id == api_key_id, among(connection, JUDGMENT.c.seq, existing))
            .values(embedder=embedder.name)
        )
        _begin_generation(connection, api_key_id)
        return len(existing)


def _lock_judgments(connection: Connection, api_key_id: str) -> None:
    """Takes the row lock of ``judgment_state``. Writers that change anything before it deadlock with ``_reembed``."""
    _allocate_seqs(connection, api_key_id, 0)


def _allocate_seqs(connection: Connection, api_key_id: str, count: int) -> int:
    """Allocates ``count`` numbers and returns the first. Locks the row, so that numbers become visible in order."""
    statement = upsert(connection, JUDGMENT_STATE).values(api_key_id=api_key_id, last_seq=count, generation=0)
    statement = statement.on_conflict_do_update(
        index_elements=[JUDGMENT_STATE.c.api_key_id], set_={"last_seq": JUDGMENT_STATE.c.last_seq + count}
    )
    last: int = connection.execute(statement.returning(JUDGMENT_STATE.c.last_seq)).scalar_one()
    return last - count + 1


def _delete_and_begin_generation(connection: Connection, api_key_id: str, where: ColumnElement[bool]) -> None:
    _lock_judgments(connection, api_key_id)
    if _delete(connection, api_key_id, where):
        _begin_generation(connection, api_key_id)


def _delete(connection: Connection, api_key_id: str, where: ColumnElement[bool]) -> bool:
    """Deletes judgments of an API key with their vectors. Returns whether there were any."""
    seqs = list(connection.scalars(select(JUDGMENT.c.seq).where(JUDGMENT.c.api_key_id == api_key_id, where)))
    if not seqs:
        return False
    vector = JUDGMENT_VECTOR.c
    # Without the types the query cannot use the primary key.
    of_types = vector.embedding_type.in_(EMBEDDING_TYPES)
    of_seqs = among(connection, vector.seq, seqs)
    connection.execute(delete(JUDGMENT_VECTOR).where(vector.api_key_id == api_key_id, of_types, of_seqs))
    of_seqs = among(connection, JUDGMENT.c.seq, seqs)
    connection.execute(delete(JUDGMENT).where(JUDGMENT.c.api_key_id == api_key_id, of_seqs))
    return True


def _vector_row(api_key_id: str, embedding_type: EmbeddingType, seq: int, vector: bytes) -> dict[str, object]:
    return {"api_key_id": api_key_id, "embedding_type": embedding_type, "seq": seq, "vector": vector}


def _row(api_key_id: str, seq: int, judgment: PreparedJudgment, now: int) -> dict[str, object]:
    record = judgment.record
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
        "embedder": judgment.embedder,
        "payload": json_columns.dump(record.payload),
        "created_at": record.created(now),
    }
