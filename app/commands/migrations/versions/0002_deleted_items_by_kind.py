"""Adds the index that finds deleted items by their kind.

Revision: 0002, after 0001.
"""

from app.foundation.database.new_tables import create_index

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    create_index("ix_deleted_item_ledger_id_kind_item_id", "deleted_item", "ledger_id kind item_id")
