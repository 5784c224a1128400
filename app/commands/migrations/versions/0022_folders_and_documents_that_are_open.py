"""Indexes of the folders and documents that an access type of their own opens

Revision: 0022, after 0021.

Lists of what a user may open begin with them. They are few if most folders and documents inherit their access type.
"""

from app.foundation.database.new_tables import create_index

revision = "0022"
down_revision = "0021"
oldest_compatible = "0018"


def upgrade() -> None:
    for kind in ("folder", "document"):
        create_index(
            f"ix_model_{kind}_open",
            f"model_{kind}",
            f"organization_id access_type {kind}_id",
            where="access_type <> '' AND access_type <> 'restricted'",
        )
