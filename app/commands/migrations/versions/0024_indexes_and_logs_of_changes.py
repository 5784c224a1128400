"""The log of changed index entries, the access impact and files of previews, and indexes for lists and plans of changes

Revision: 0024, after 0018. It replaces the revisions 0019 to 0024 of the time between two releases.

Existing revisions of the access model are not logged, so each node builds its first index from the access model. So are
revisions that an older version creates during an upgrade. Plans of existing dry runs have no access impact. A worker of
an older version previews the configured sources instead of an uploaded file.
"""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_index, create_table

revision = "0024"
down_revision = "0018"
oldest_compatible = "0018"

_LISTED = {
    "user": "user_id",
    "membership": "organization_id, user_id",
    "folder": "organization_id, folder_id",
    "document": "organization_id, document_id",
}
"""Kind → the order of its lists."""


def upgrade() -> None:
    op.create_table(
        "access_change",
        sa.Column("change_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("kind", "organization_id", "item_id", "detail")),
        sa.PrimaryKeyConstraint("change_id", name=op.f("pk_access_change")),
    )
    create_index("ix_access_change_revision_kind", "access_change", "revision kind")
    op.add_column("access_revision", sa.Column("logged", sa.Boolean(), server_default=sa.false(), nullable=False))
    create_table(
        "plan_access",
        "plan_id* ordinal:bigint* organization_id kind before after users:bigint resources:bigint pairs:bigint"
        " user_ids resource_ids names",
    )
    create_table("run_file", "run_id* name source content:bytes")
    create_index("ix_run_asked_by", "run", "asked_by run_id", where="asked_by IS NOT NULL")
    # Plans of changes read unconfirmed items, and records that end.
    create_index("ix_ledger_item_unconfirmed", "ledger_item", "ledger_id", where="NOT certain")
    for kind in ("membership", "grant"):
        create_index(f"ix_model_{kind}_ending", f"model_{kind}", "expires_at", where="expires_at IS NOT NULL")
    # Lists of what a user may open begin with these. They are few if most folders and documents inherit their type.
    for kind in ("folder", "document"):
        create_index(
            f"ix_model_{kind}_open",
            f"model_{kind}",
            f"organization_id access_type {kind}_id",
            where="access_type <> '' AND access_type <> 'restricted'",
        )
    # Pages of lists have the order of bytes. SQLite's keys have it anyway.
    if op.get_bind().dialect.name == "postgresql":
        for kind, keys in _LISTED.items():
            op.create_index(f"ix_model_{kind}_bytes", f"model_{kind}", [sa.text(f'{keys} COLLATE "C"')])
