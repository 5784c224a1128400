"""Bindings of disabling fills, and a full read of every source

Revision: 0016, after 0015.

Every user whom a fill disables by an alias now is bound to it, so nobody is enabled before the next refresh.

Stored aliases were folded in another way. The next read of each source is one of everything, so that its aliases are
folded again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
oldest_compatible = "0016"
"""Older software enables users without regard to the bindings, and folds aliases in another way."""


def upgrade() -> None:
    op.create_table(
        "fill_binding",
        sa.Column("user_alias", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("user_alias", "source_id", "user_id", name=op.f("pk_fill_binding")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_fill_binding_user_id"), "fill_binding", ["user_id"], unique=False)
    op.create_index(
        op.f("ix_source_fill_source_id_user_alias"),
        "source_fill",
        ["source_id", "user_alias"],
        unique=False,
        sqlite_where=sa.text("disabled"),
        postgresql_where=sa.text("disabled"),
    )
    op.execute(
        "INSERT INTO fill_binding (user_alias, source_id, user_id)"
        " SELECT DISTINCT f.user_alias, f.source_id, a.user_id"
        " FROM source_fill f JOIN access_user_alias a ON a.alias = f.user_alias"
        " WHERE f.disabled AND f.user_alias <> ''"
    )
    op.execute("UPDATE directory_source SET cursor = ''")


def downgrade() -> None:
    op.drop_index(op.f("ix_source_fill_source_id_user_alias"), table_name="source_fill")
    op.drop_table("fill_binding")
