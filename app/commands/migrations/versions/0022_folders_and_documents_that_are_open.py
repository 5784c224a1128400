"""Indexes of the folders and documents that an access type of their own opens

Revision: 0022, after 0021.

Lists of what a user may open begin with them. They are few if most folders and documents inherit their access type.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
oldest_compatible = "0018"

_OPEN = sa.text("access_type <> '' AND access_type <> 'restricted'")


def upgrade() -> None:
    for kind in ("folder", "document"):
        op.create_index(
            f"ix_model_{kind}_open",
            f"model_{kind}",
            ["organization_id", "access_type", f"{kind}_id"],
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        )
