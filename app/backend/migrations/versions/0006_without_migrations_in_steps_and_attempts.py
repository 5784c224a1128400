"""Drops the leases of document migrations, and the attempts of webhook deliveries

Revision: 0006, after 0004. It replaces the revision 0005 of the time between two releases.
"""

from alembic import op

from app.foundation.database.new_tables import create_index

revision = "0006"
down_revision = "0004"


def upgrade() -> None:
    op.drop_table("webhook_attempt")
    # Nothing continues an unfinished migration, whose data is at both documents.
    op.execute("UPDATE document_migration SET status = 'failed' WHERE open")
    for name in ("ended", "from", "open", "to"):
        op.drop_index(f"ix_document_migration_{name}", table_name="document_migration")
    for column in ("open", "lease_owner", "lease_until", "tries", "updated_at"):
        op.drop_column("document_migration", column)
    create_index("ix_document_migration_time", "document_migration", "api_key_id created_at")
