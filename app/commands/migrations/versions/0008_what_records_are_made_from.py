"""What the sources' records are made from, users' aliases and fills, and finding what refers to a record

Revision: 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_KEYS = {
    "source_organization": ("organization_id",),
    "source_user": ("user_id",),
    "source_membership": ("organization_id", "user_id"),
    "source_group": ("organization_id", "organization_user_group_id"),
    "source_group_member": ("organization_id", "organization_user_group_id", "user_id", "member_group_id"),
    "source_folder": ("organization_id", "folder_id"),
    "source_document": ("organization_id", "document_id"),
    "source_grant": ("organization_id", "folder_id", "document_id", "user_id", "organization_user_group_id"),
    "source_context_grant": (
        "organization_id",
        "user_id",
        "organization_user_group_id",
        "field",
        "value",
        "document_id",
    ),
}

_NAME_USERS = ("source_membership", "source_group_member", "source_grant", "source_context_grant")

_INDEXES = (
    ("source_document", ("organization_id", "folder_id"), "folder_id <> ''"),
    ("source_membership", ("user_id",), "user_id <> ''"),
    ("source_group_member", ("user_id",), "user_id <> ''"),
    ("source_group_member", ("organization_id", "member_group_id"), "member_group_id <> ''"),
    ("source_grant", ("user_id",), "user_id <> ''"),
    ("source_grant", ("organization_id", "organization_user_group_id"), "organization_user_group_id <> ''"),
    ("source_context_grant", ("user_id",), "user_id <> ''"),
    ("source_context_grant", ("organization_id", "document_id"), "document_id <> ''"),
    *((table, ("source_id", "origin"), "origin <> ''") for table in (*_KEYS, "source_fill")),
    *((table, ("user_alias",), "user_alias <> ''") for table in (*_NAME_USERS, "source_fill")),
)


def upgrade() -> None:
    op.create_table(
        "access_user_alias",
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("alias", "user_id", name=op.f("pk_access_user_alias")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_access_user_alias_user_id"), "access_user_alias", ["user_id"])
    op.create_table(
        "source_fill",
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("user_alias", sa.String(), server_default="", nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("origin", sa.String(), server_default="", nullable=False),
        sa.Column("rule", sa.String(), server_default="", nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "user_alias", "source_id", "origin", "rule", name=op.f("pk_source_fill")),
        sqlite_with_rowid=False,
    )
    for table, keys in _KEYS.items():
        alias = ["user_alias"] if table in _NAME_USERS else []
        columns = [
            sa.Column(name, sa.String(), server_default="", nullable=False) for name in [*alias, "origin", "rule"]
        ]
        if table == "source_user":
            columns.append(sa.Column("aliases", sa.String(), server_default="[]", nullable=False))
        # SQLite makes the table anew, and would give it a rowid without being told.
        with op.batch_alter_table(table, schema=None, table_kwargs={"sqlite_with_rowid": False}) as batch_op:
            for column in columns:
                batch_op.add_column(column)
            batch_op.drop_constraint(op.f(f"pk_{table}"), type_="primary")
            batch_op.create_primary_key(op.f(f"pk_{table}"), [*keys, *alias, "source_id", "origin", "rule"])
    for table, names, rows in _INDEXES:
        op.create_index(
            op.f(f"ix_{table}_{'_'.join(names)}"),
            table,
            list(names),
            sqlite_where=sa.text(rows),
            postgresql_where=sa.text(rows),
        )


def downgrade() -> None:
    """What is named by an alias or made of an object has no place in the tables that were: it is read again."""
    for table, names, _ in reversed(_INDEXES):
        op.drop_index(op.f(f"ix_{table}_{'_'.join(names)}"), table_name=table)
    for table, keys in _KEYS.items():
        alias = ["user_alias"] if table in _NAME_USERS else []
        is_new = "origin <> ''" + (" OR user_alias <> ''" if alias else "")
        op.execute(f"DELETE FROM {table} WHERE {is_new}")  # noqa: S608 - names of our own tables
        with op.batch_alter_table(table, schema=None, table_kwargs={"sqlite_with_rowid": False}) as batch_op:
            batch_op.drop_constraint(op.f(f"pk_{table}"), type_="primary")
            batch_op.create_primary_key(op.f(f"pk_{table}"), [*keys, "source_id"])
            for name in [*alias, "origin", "rule", *(["aliases"] if table == "source_user" else [])]:
                batch_op.drop_column(name)
    op.drop_table("source_fill")
    op.drop_table("access_user_alias")
