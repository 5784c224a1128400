"""Deleted items by kind

Revision: 0002, after 0001.
"""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("deleted_item", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_deleted_item_ledger_id_kind_item_id"), ["ledger_id", "kind", "item_id"], unique=False
        )
