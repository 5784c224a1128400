"""What pages show that nothing kept so far: parts of plans, counts and names of the access model, what processes did

Revision: 0012, after 0011.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import orjson
import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


_ORDERED = (
    (
        "access_folder",
        "ix_access_folder_organization_id_parent_folder_id",
        "ix_access_folder_within",
        ("organization_id", "parent_folder_id", "folder_id"),
    ),
    (
        "access_document",
        "ix_access_document_organization_id_folder_id",
        "ix_access_document_within",
        ("organization_id", "folder_id", "document_id"),
    ),
    (
        "access_grant",
        "ix_access_grant_organization_id_organization_user_group_id",
        "ix_access_grant_to_group",
        ("organization_id", "organization_user_group_id", "folder_id", "document_id"),
    ),
)
"""Indexes that now hold what lists are ordered by, too. On SQLite they did already: its indexes end with the key."""

_OF_GROUPS = sa.text("user_id = ''")
"""Of grants, those to groups alone are looked up by their group, and they are few."""


def upgrade() -> None:
    _plans()
    _access()
    _order()
    _processes()


_PARTS = """
INSERT INTO plan_part (plan_id, organization_id, first_ordinal, last_ordinal, phase, kind, action, operation, items)
SELECT plan_id, {organization}, MIN(ordinal), MAX(ordinal), phase, kind, action, operation, COUNT(*)
FROM plan_item {which}
"""


def _plans() -> None:
    """Parts and effects of plans, answers of calls, stages of runs."""
    op.create_table(
        "plan_part",
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("first_ordinal", sa.BigInteger(), nullable=False),
        sa.Column("last_ordinal", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("items", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "organization_id", "first_ordinal", name=op.f("pk_plan_part")),
    )
    alike = "GROUP BY plan_id, phase, kind, action, operation"
    op.execute(_PARTS.format(organization="''", which=alike))
    within = f"WHERE kind <> 'organization' {alike}, organization_id"
    op.execute(_PARTS.format(organization="organization_id", which=within))
    op.create_table(
        "plan_impact",
        sa.Column("plan_id", sa.String(), nullable=False),
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("gain", sa.BigInteger(), nullable=False),
        sa.Column("lose", sa.BigInteger(), nullable=False),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.Column("people", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "organization_id", name=op.f("pk_plan_impact")),
    )
    op.create_index(op.f("ix_plan_impact_plan_id_people"), "plan_impact", ["plan_id", "people"], unique=False)
    op.create_index(
        op.f("ix_plan_item_plan_id_item_id_ordinal"), "plan_item", ["plan_id", "item_id", "ordinal"], unique=False
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.add_column(sa.Column("stages", sa.String(), server_default="[]", nullable=False))
        batch_op.add_column(sa.Column("items", sa.String(), server_default="[]", nullable=False))
    with op.batch_alter_table("call", schema=None) as batch_op:
        batch_op.add_column(sa.Column("first_ordinal", sa.BigInteger(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("code", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("tries", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("answer", sa.String(), server_default="", nullable=False))
        batch_op.create_index(batch_op.f("ix_call_plan_id_first_ordinal"), ["plan_id", "first_ordinal"], unique=False)


def _access() -> None:
    """Counts and names of the access model, problems of the directory."""
    op.create_table(
        "access_count",
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "kind", name=op.f("pk_access_count")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "access_name",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String().with_variant(sa.String(collation="C"), "postgresql"), nullable=False),
        sa.Column("organization_id", sa.String(), nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "organization_id", "item_id", name=op.f("pk_access_name")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "directory_problem_count",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("problems", sa.BigInteger(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "sort", name=op.f("pk_directory_problem_count")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "directory_problem",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("source_id", "sort", "ordinal", name=op.f("pk_directory_problem")),
        sqlite_with_rowid=False,
    )
    _count_records()
    _name_records()


_TABLES = {
    "organization": "access_organization",
    "user": "access_user",
    "membership": "access_membership",
    "group": "access_group",
    "groupMember": "access_group_member",
    "folder": "access_folder",
    "document": "access_document",
    "grant": "access_grant",
    "contextGrant": "access_context_grant",
}


def _count_records() -> None:
    for kind, table in _TABLES.items():
        if kind in {"organization", "user"}:
            op.execute(f"INSERT INTO access_count SELECT '', '{kind}', COUNT(*) FROM {table}")  # noqa: S608 - constants
            continue
        op.execute(
            f"INSERT INTO access_count SELECT organization_id, '{kind}', COUNT(*) FROM {table}"  # noqa: S608 - constants
            " GROUP BY organization_id"
        )
        op.execute(
            f"INSERT INTO access_count SELECT '', '{kind}', COALESCE(SUM(records), 0) FROM access_count"  # noqa: S608 - constants
            f" WHERE kind = '{kind}'"
        )


_NAMED = {
    "organization": ("access_organization", ("organization_id",), ("organizationName",)),
    "user": ("access_user", ("user_id",), ("name", "email")),
    "group": ("access_group", ("organization_id", "organization_user_group_id"), ("groupName",)),
    "folder": ("access_folder", ("organization_id", "folder_id"), ("folderName",)),
    "document": ("access_document", ("organization_id", "document_id"), ("documentName",)),
}
"""kind → its table, the key, and the fields of the payload that hold the name, then further texts."""

_AT_A_TIME = 500
_WORD = re.compile(r"(?<![^\W_])[^\W_]")


def _name_records() -> None:
    connection = op.get_bind()
    insert = sa.text(
        "INSERT INTO access_name (kind, name, organization_id, item_id) VALUES (:kind, :name, :organization, :item)"
    )
    for kind, (table, keys, fields) in _NAMED.items():
        for rows in _pages(connection, table, keys):
            named = [
                {"kind": kind, "name": name, "organization": within[0] if within else "", "item": item}
                for *within, item, payload in rows
                for name in sorted(_names(item, payload, fields))
            ]
            connection.execute(insert, named)


def _pages(connection: sa.Connection, table: str, keys: tuple[str, ...]) -> Iterator[list[Any]]:
    """The rows of a table in the order of its key, some thousand at a time."""
    columns, marks = ", ".join(keys), ", ".join(f":{key}" for key in keys)
    query = sa.text(
        f"SELECT {columns}, payload FROM {table} WHERE ({columns}) > ({marks})"  # noqa: S608 - constants
        f" ORDER BY {columns} LIMIT {_AT_A_TIME}"
    )
    last = dict.fromkeys(keys, "")
    while rows := [tuple(row) for row in connection.execute(query, last)]:
        yield rows
        last = dict(zip(keys, rows[-1], strict=False))


def _names(item: str, payload: str, fields: tuple[str, ...]) -> set[str]:
    """The beginnings by which a record is found: those of the words of its name, its other texts, its id."""
    try:
        described = orjson.loads(payload)
    except ValueError:
        described = {}
    name, *others = (str(described.get(field) or "") for field in fields)
    found = {*_beginnings(name)[:4], *(first for text in (*others, item) for first in _beginnings(text)[:1])}
    return {beginning for beginning in found if len(beginning) > 1}


def _beginnings(text: str) -> list[str]:
    text = text[:256].replace("\0", " ")
    if not text.isascii():
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        text = "".join(character for character in folded if not unicodedata.combining(character))
    text = " ".join(text.lower().split())
    return [text[word.start() :][:64] for word in _WORD.finditer(text)] or [text[:64]][: len(text)]


def _processes() -> None:
    """What each process did minute by minute, examinations, sign-ins under way."""
    op.create_table(
        "node_minute",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("allowed", sa.BigInteger(), nullable=False),
        sa.Column("denied", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("calls_0", sa.BigInteger(), nullable=False),
        sa.Column("calls_1", sa.BigInteger(), nullable=False),
        sa.Column("calls_2", sa.BigInteger(), nullable=False),
        sa.Column("calls_3", sa.BigInteger(), nullable=False),
        sa.Column("calls_4", sa.BigInteger(), nullable=False),
        sa.Column("calls_5", sa.BigInteger(), nullable=False),
        sa.Column("calls_6", sa.BigInteger(), nullable=False),
        sa.Column("calls_7", sa.BigInteger(), nullable=False),
        sa.Column("calls_8", sa.BigInteger(), nullable=False),
        sa.Column("calls_9", sa.BigInteger(), nullable=False),
        sa.Column("calls_10", sa.BigInteger(), nullable=False),
        sa.Column("calls_11", sa.BigInteger(), nullable=False),
        sa.Column("calls_12", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node", "role", "minute", name=op.f("pk_node_minute")),
    )
    op.create_index("ix_node_minute_minute", "node_minute", ["minute"], unique=False)
    op.create_table(
        "examination",
        sa.Column("examination_id", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=True),
        sa.Column("asked_by", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("findings", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("examination_id", name=op.f("pk_examination")),
        sa.UniqueConstraint("slot", name=op.f("uq_examination_slot")),
    )
    op.create_table(
        "console_sign_in",
        sa.Column("attempt_digest", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("back", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_digest", name=op.f("pk_console_sign_in")),
    )
    op.create_index("ix_console_sign_in_address_created_at", "console_sign_in", ["address", "created_at"], unique=False)


def _order() -> None:
    """Indexes in whose order lists are shown."""
    for table, old, new, columns in _ORDERED:
        op.drop_index(op.f(old), table)
        only = _OF_GROUPS if table == "access_grant" else None
        op.create_index(new, table, list(columns), sqlite_where=only, postgresql_where=only)


def downgrade() -> None:
    _drop_processes()
    _drop_order()
    _drop_access()
    _drop_plans()


def _drop_processes() -> None:
    op.drop_table("console_sign_in")
    op.drop_table("examination")
    op.drop_table("node_minute")


def _drop_order() -> None:
    for table, old, new, columns in _ORDERED:
        op.drop_index(new, table)
        op.create_index(op.f(old), table, list(columns[:2]))


def _drop_access() -> None:
    for table in ("directory_problem", "directory_problem_count", "access_name", "access_count"):
        op.drop_table(table)


def _drop_plans() -> None:
    with op.batch_alter_table("call", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_call_plan_id_first_ordinal"))
        for name in ("answer", "tries", "code", "first_ordinal"):
            batch_op.drop_column(name)
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_column("items")
        batch_op.drop_column("stages")
    op.drop_index(op.f("ix_plan_item_plan_id_item_id_ordinal"), table_name="plan_item")
    op.drop_table("plan_impact")
    op.drop_table("plan_part")
