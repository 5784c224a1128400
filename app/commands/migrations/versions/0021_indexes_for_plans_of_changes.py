"""Indexes of what plans of changes read: unconfirmed items, and records that end

Revision: 0021, after 0020.
"""

from app.foundation.database.new_tables import create_index

revision = "0021"
down_revision = "0020"
oldest_compatible = "0018"

_INDEXES = (
    ("ix_ledger_item_unconfirmed", "ledger_item", "ledger_id", "NOT certain"),
    ("ix_model_membership_ending", "model_membership", "expires_at", "expires_at IS NOT NULL"),
    ("ix_model_grant_ending", "model_grant", "expires_at", "expires_at IS NOT NULL"),
)


def upgrade() -> None:
    for name, table, column, condition in _INDEXES:
        create_index(name, table, column, where=condition)
