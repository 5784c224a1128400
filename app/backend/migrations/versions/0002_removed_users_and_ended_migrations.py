"""Adds the table of removed users, and an index of ended migrations

Revision: 0002, after 0001.
"""

from app.foundation.database.new_tables import create_index, create_table

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    create_table("removed_user", "api_key_id* organization_id* user_id*", clustered=True)
    create_index("ix_document_migration_ended", "document_migration", "status updated_at")
