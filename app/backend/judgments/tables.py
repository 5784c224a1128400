"""Judgments and their embeddings, per API key.

``seq`` numbers the writes of one API key: a judgment that is written again gets a new number, so that whoever knows all
up to a number has only the greater ones to read. What is deleted leaves no number: ``generation`` counts that.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable

_CLUSTERED = {"sqlite_with_rowid": False}


class JudgmentRow(BackendTable, table=True):
    """``payload`` holds what is told of a judgment but not searched by."""

    __tablename__ = "judgment"
    __table_args__ = (
        Index("ix_judgment_record", "api_key_id", "record_id", unique=True),
        Index("ix_judgment_thread", "api_key_id", "organization_id", "annotation_id", "created_at", "seq"),
        Index("ix_judgment_document", "api_key_id", "organization_id", "document_id"),
        _CLUSTERED,
    )

    api_key_id: str = Field(primary_key=True)
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
    """Which one made the vectors; those of two are not to be compared."""
    payload: str
    created_at: int = Field(sa_type=BigInteger)


class JudgmentVectorRow(BackendTable, table=True):
    """``vector``: half-precision floats, little-endian, of length 1 together. Half precision changes a similarity by
    less than 0.001, and lets a row stay within SQLite's page.
    """

    __tablename__ = "judgment_vector"
    __table_args__ = (_CLUSTERED,)

    api_key_id: str = Field(primary_key=True)
    embedding_type: str = Field(primary_key=True)
    """``review`` or ``content``."""
    seq: int = Field(primary_key=True, sa_type=BigInteger)
    vector: bytes


class JudgmentStateRow(BackendTable, table=True):
    __tablename__ = "judgment_state"
    __table_args__ = (_CLUSTERED,)

    api_key_id: str = Field(primary_key=True)
    last_seq: int = Field(sa_type=BigInteger)
    generation: int = Field(sa_type=BigInteger)
    """Grows whenever something is deleted: what was remembered has to be read anew."""


JUDGMENT = METADATA.tables[JudgmentRow.__tablename__]
JUDGMENT_VECTOR = METADATA.tables[JudgmentVectorRow.__tablename__]
JUDGMENT_STATE = METADATA.tables[JudgmentStateRow.__tablename__]
