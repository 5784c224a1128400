"""The table of document migrations, which move a document's data to another id."""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import KeyTable


class DocumentMigrationRow(KeyTable, table=True):
    """One migration with its lease. ``open`` is true until it completes or fails. Times are epoch milliseconds."""

    __table_args__ = (
        Index("ix_document_migration_open", "open", "lease_until"),
        Index("ix_document_migration_ended", "status", "updated_at"),
        Index("ix_document_migration_from", "api_key_id", "organization_id", "document_id"),
        Index("ix_document_migration_to", "api_key_id", "organization_id", "new_document_id"),
    )

    migration_id: str = Field(primary_key=True)
    organization_id: str
    document_id: str
    new_document_id: str
    status: str
    """``pending``, ``in_progress``, ``completed`` or ``failed``."""
    open: bool
    lease_owner: str = ""
    lease_until: int = Field(default=0, sa_type=BigInteger)
    tries: int = 0
    """The number of processes that took the lease since the last completed step."""
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


DOCUMENT_MIGRATION = DocumentMigrationRow.__table__
