"""Tables of judgments, which are records of review decisions, and of their vectors.

``seq`` numbers the writes of one API key. A replaced judgment gets a new number, so a process with a cache reads only
the numbers after its last one. A deletion leaves no number. It increments ``generation``, which invalidates the caches.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import CLUSTERED, KeyTable


class JudgmentRow(KeyTable, table=True):
    """A judgment. ``payload`` is JSON with the fields that have no column."""

    __table_args__ = (
        Index("ix_judgment_record", "api_key_id", "record_id", unique=True),
        Index("ix_judgment_thread", "api_key_id", "organization_id", "annotation_id", "created_at", "seq"),
        Index("ix_judgment_document", "api_key_id", "organization_id", "document_id"),
        CLUSTERED,
    )

    seq: int = Field(primary_key=True, sa_type=BigInteger)
    record_id: str
    organization_id: str
    document_id: str = ""
    annotation_id: str = ""
    decision: str
    judge_type: str
    """``human`` or ``agent``."""
    content_type: str = ""
    reviewer_id: str = ""
    embedder: str
    """The embedder of its vectors. Vectors of two embedders cannot be compared."""
    payload: str
    created_at: int = Field(sa_type=BigInteger)


class JudgmentVectorRow(KeyTable, table=True):
    """A vector of length 1, as little-endian half-precision floats. They change a similarity by less than 0.001, and a
    row fits in a page of SQLite."""

    __table_args__ = (CLUSTERED,)

    embedding_type: str = Field(primary_key=True)
    """``review`` or ``content``."""
    seq: int = Field(primary_key=True, sa_type=BigInteger)
    vector: bytes


class JudgmentStateRow(KeyTable, table=True):
    """The counters of an API key."""

    __table_args__ = (CLUSTERED,)

    last_seq: int = Field(sa_type=BigInteger)
    generation: int = Field(sa_type=BigInteger)


JUDGMENT = JudgmentRow.__table__
JUDGMENT_VECTOR = JudgmentVectorRow.__table__
JUDGMENT_STATE = JudgmentStateRow.__table__
