"""The tables of the access model get new names and the source that owns each record

Revision: 0017, after 0016.

They contain records that refer to something unknown from now on, which older software would take as effective. A node
of an older version finds no table, and answers no permission call.

The next refresh merges all keys: it adds these records, and the sources.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
oldest_compatible = "0017"
"""Older software does not check what records refer to."""


def upgrade() -> None:
    op.create_table(
        "model_organization",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("access_type", sa.String(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("organization_id", name=op.f("pk_model_organization")),
    )
    _move("organization", "organization_id, access_type, disabled, payload, digest")
    op.create_table(
        "model_user",
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_model_user")),
        sqlite_with_rowid=False,
    )
    _move("user", "user_id, disabled, payload, digest")
    op.create_table(
        "model_user_alias",
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("alias", "user_id", name=op.f("pk_model_user_alias")),
        sqlite_with_rowid=False,
    )
    _move("user_alias", "alias, user_id")
    op.create_index("ix_model_user_alias_user_id", "model_user_alias", ["user_id"], unique=False)
    op.create_table(
        "model_membership",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("access_role", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name=op.f("pk_model_membership")),
        sqlite_with_rowid=False,
    )
    _move("membership", "organization_id, user_id, access_role, expires_at")
    op.create_index(
        "ix_model_membership_user_id_organization_id", "model_membership", ["user_id", "organization_id"], unique=False
    )
    op.create_table(
        "model_group",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("organization_user_group_id", sa.String(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "organization_user_group_id", name=op.f("pk_model_group")),
    )
    _move("group", "organization_id, organization_user_group_id, payload, digest")
    op.create_table(
        "model_group_member",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("organization_user_group_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("member_group_id", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "organization_id",
            "organization_user_group_id",
            "user_id",
            "member_group_id",
            name=op.f("pk_model_group_member"),
        ),
        sqlite_with_rowid=False,
    )
    _move("group_member", "organization_id, organization_user_group_id, user_id, member_group_id")
    op.create_index(
        op.f("ix_model_group_member_organization_id_member_group_id_organization_user_group_id"),
        "model_group_member",
        ["organization_id", "member_group_id", "organization_user_group_id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_model_group_member_organization_id_user_id_organization_user_group_id"),
        "model_group_member",
        ["organization_id", "user_id", "organization_user_group_id"],
        unique=False,
    )
    op.create_index(
        "ix_model_group_member_user_id_organization_id",
        "model_group_member",
        ["user_id", "organization_id"],
        unique=False,
    )
    op.create_table(
        "model_folder",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("folder_id", sa.String(), nullable=False),
        sa.Column("parent_folder_id", sa.String(), nullable=False),
        sa.Column("access_type", sa.String(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "folder_id", name=op.f("pk_model_folder")),
        sqlite_with_rowid=False,
    )
    _move("folder", "organization_id, folder_id, parent_folder_id, access_type, payload, digest")
    op.create_index(
        "ix_model_folder_within", "model_folder", ["organization_id", "parent_folder_id", "folder_id"], unique=False
    )
    op.create_table(
        "model_document",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("document_id", sa.String(), nullable=False),
        sa.Column("folder_id", sa.String(), nullable=False),
        sa.Column("access_type", sa.String(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "document_id", name=op.f("pk_model_document")),
        sqlite_with_rowid=False,
    )
    _move("document", "organization_id, document_id, folder_id, access_type, payload, digest")
    op.create_index(
        "ix_model_document_within", "model_document", ["organization_id", "folder_id", "document_id"], unique=False
    )
    op.create_table(
        "model_grant",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("folder_id", sa.String(), nullable=False),
        sa.Column("document_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("organization_user_group_id", sa.String(), nullable=False),
        sa.Column("access_role", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "organization_id",
            "folder_id",
            "document_id",
            "user_id",
            "organization_user_group_id",
            name=op.f("pk_model_grant"),
        ),
        sqlite_with_rowid=False,
    )
    _move(
        "grant", "organization_id, folder_id, document_id, user_id, organization_user_group_id, access_role, expires_at"
    )
    op.create_index(
        "ix_model_grant_of_groups",
        "model_grant",
        ["organization_id", "folder_id", "document_id", "organization_user_group_id", "access_role", "expires_at"],
        unique=False,
        sqlite_where=sa.text("user_id = ''"),
        postgresql_where=sa.text("user_id = ''"),
    )
    op.create_index(
        "ix_model_grant_to_group",
        "model_grant",
        ["organization_id", "organization_user_group_id", "folder_id", "document_id"],
        unique=False,
        sqlite_where=sa.text("user_id = ''"),
        postgresql_where=sa.text("user_id = ''"),
    )
    op.create_index(
        op.f("ix_model_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at"),
        "model_grant",
        ["user_id", "organization_id", "folder_id", "document_id", "access_role", "expires_at"],
        unique=False,
    )
    op.create_table(
        "model_context_grant",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("organization_user_group_id", sa.String(), nullable=False),
        sa.Column("field", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("document_id", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("source_id", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "organization_id",
            "user_id",
            "organization_user_group_id",
            "field",
            "value",
            "document_id",
            name=op.f("pk_model_context_grant"),
        ),
        sqlite_with_rowid=False,
    )
    _move(
        "context_grant", "organization_id, user_id, organization_user_group_id, field, value, document_id, expires_at"
    )
    op.drop_table("directory_state")
    op.create_table(
        "directory_state",
        sa.Column("state_id", sa.Integer(), nullable=False),
        sa.Column("merge_all", sa.Boolean(), nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("state_id", name=op.f("pk_directory_state")),
    )
    op.execute("INSERT INTO directory_state (state_id, merge_all, changes) VALUES (1, true, 0)")


def _move(name: str, columns: str) -> None:
    """In the order of the key, so that a large table is written from its beginning to its end."""
    op.execute(f"INSERT INTO model_{name} ({columns}) SELECT {columns} FROM access_{name} ORDER BY {columns}")  # noqa: S608 - our own names
    op.drop_table(f"access_{name}")


def downgrade() -> None:
    raise NotImplementedError("older software would take all records as effective; restore a backup instead")
