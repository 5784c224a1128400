"""Indexes of ids in the order of their bytes, on PostgreSQL

Revision: 0023, after 0022.

Pages of lists have this order. SQLite's keys have it anyway.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
oldest_compatible = "0018"

_KEYS = {
    "user": "user_id",
    "membership": "organization_id, user_id",
    "folder": "organization_id, folder_id",
    "document": "organization_id, document_id",
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for kind, keys in _KEYS.items():
            op.create_index(f"ix_model_{kind}_bytes", f"model_{kind}", [sa.text(f'{keys} COLLATE "C"')])
