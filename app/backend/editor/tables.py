"""Table of editor data.

On SQLite it is a rowid table, unlike most others, because a document can be megabytes long.
"""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.backend.storage.base import ScopedTable


class EditorDataRow(ScopedTable, table=True):
    document_id: str = Field(primary_key=True)
    editor_id: str = Field(primary_key=True)
    type: str
    """``text``, ``map``, ``array`` or ``xml``."""
    content_key: str
    state: bytes
    """The document as one Yjs update, format 1."""
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


EDITOR_DATA = EditorDataRow.__table__
