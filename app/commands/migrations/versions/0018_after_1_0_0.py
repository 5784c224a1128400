"""Everything that 1.0.0 had no tables for: objects and changes of sources, pushes, the audit log, the console

Revision: 0018, after 0007. It replaces the revisions 0008 to 0018 of the time between two releases.

The tables of the access model get new names: they contain records that refer to something unknown from now on, which
1.0.0 would take as effective. A node of 1.0.0 finds no table, and answers no permission call. The next refresh merges
all keys, which adds these records and the sources that own them.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from app.access.search import names_of
from app.sync.ledger.failures import message_digest

revision = "0018"
down_revision = "0007"
oldest_compatible = "0018"
"""1.0.0 does not check what records refer to."""

_KEYS = {
    "organization": ("organization_id",),
    "user": ("user_id",),
    "membership": ("organization_id", "user_id"),
    "group": ("organization_id", "organization_user_group_id"),
    "group_member": ("organization_id", "organization_user_group_id", "user_id", "member_group_id"),
    "folder": ("organization_id", "folder_id"),
    "document": ("organization_id", "document_id"),
    "grant": ("organization_id", "folder_id", "document_id", "user_id", "organization_user_group_id"),
    "context_grant": ("organization_id", "user_id", "organization_user_group_id", "field", "value", "document_id"),
}
"""Kind → the key of its records."""


def upgrade() -> None:
    _sources()
    _problems()
    _access_model()
    _plans_and_runs()
    _failures()
    _console()
    _create("schema_compatibility", *_texts("oldest_revision"), key=("oldest_revision",))


def _create(table: str, *columns: sa.Column[Any], key: tuple[str, ...], is_keyed: bool = False) -> None:
    """``is_keyed``: SQLite stores the rows in the primary key itself."""
    key_constraint = sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{table}"))
    op.create_table(table, *columns, key_constraint, sqlite_with_rowid=not is_keyed)


def _texts(*names: str, default: str | None = None) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.String(), server_default=default, nullable=False) for name in names]


def _numbers(*names: str, default: str | None = None) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger(), server_default=default, nullable=False) for name in names]


def _moments(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger(), nullable=True) for name in names]


def _source_id() -> sa.Column[Any]:
    return sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False)


def _add(table: str, *columns: sa.Column[Any]) -> None:
    with op.batch_alter_table(table) as batch:
        for column in columns:
            batch.add_column(column)


def _index(name: str, table: str, columns: tuple[str, ...], rows: str = "") -> None:
    """``rows``: the condition of the rows in it."""
    where = sa.text(rows) if rows else None
    op.create_index(op.f(name), table, list(columns), sqlite_where=where, postgresql_where=where)


_NAME_USERS = ("membership", "group_member", "grant", "context_grant")

_OF_SOURCES = (
    ("document", ("organization_id", "folder_id"), "folder_id <> ''"),
    ("membership", ("user_id",), "user_id <> ''"),
    ("group_member", ("user_id",), "user_id <> ''"),
    ("group_member", ("organization_id", "member_group_id"), "member_group_id <> ''"),
    ("grant", ("user_id",), "user_id <> ''"),
    ("grant", ("organization_id", "organization_user_group_id"), "organization_user_group_id <> ''"),
    ("context_grant", ("user_id",), "user_id <> ''"),
    ("context_grant", ("organization_id", "document_id"), "document_id <> ''"),
    ("fill", ("source_id", "user_alias"), "disabled"),
    *((kind, ("source_id", "origin"), "origin <> ''") for kind in (*_KEYS, "fill")),
    *((kind, ("user_alias",), "user_alias <> ''") for kind in (*_NAME_USERS, "fill")),
)


def _sources() -> None:
    """What the records of sources are made from, aliases and fills, how far changes were read, and pushes."""
    _create(
        "source_fill",
        *_texts("user_id"),
        *_texts("user_alias", default=""),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        *_texts("payload", "digest"),
        _source_id(),
        *_texts("origin", "rule", default=""),
        sa.Column("place", sa.Text(), nullable=False),
        key=("user_id", "user_alias", "source_id", "origin", "rule"),
        is_keyed=True,
    )
    for kind, keys in _KEYS.items():
        table, alias = f"source_{kind}", ["user_alias"] if kind in _NAME_USERS else []
        columns = _texts(*alias, "origin", "rule", default="")
        columns += _texts("aliases", default="[]") if kind == "user" else []
        # SQLite creates the table again, and would give it a rowid.
        with op.batch_alter_table(table, table_kwargs={"sqlite_with_rowid": False}) as batch:
            for column in columns:
                batch.add_column(column)
            batch.drop_constraint(op.f(f"pk_{table}"), type_="primary")
            batch.create_primary_key(op.f(f"pk_{table}"), [*keys, *alias, "source_id", "origin", "rule"])
    for kind, indexed, rows in _OF_SOURCES:
        _index(f"ix_source_{kind}_{'_'.join(indexed)}", f"source_{kind}", indexed, rows)
    binding = [*_texts("user_alias"), _source_id(), *_texts("user_id")]
    _create("fill_binding", *binding, key=("user_alias", "source_id", "user_id"), is_keyed=True)
    _index("ix_fill_binding_user_id", "fill_binding", ("user_id",))
    _add(
        "directory_source",
        *_texts("last_answered", "cursor", "settings_digest", "refused", "last_refusal", default=""),
        *_numbers("last_read_ms", default="0"),
        *_moments("last_full_at", "last_refused_at", "polled_at"),
        sa.Column("login_refused", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.drop_column("directory_source", "dangling")
    _create(
        "directory_push",
        _source_id(),
        *_numbers("sequence"),
        *_texts("answer"),
        *_numbers("pushed_at"),
        *_texts("pushed_by"),
        *_numbers("pushes"),
        *_texts("digests", default="[]"),
        key=("source_id",),
    )
    _create(
        "pushed_key",
        sa.Column("source_id", sa.Integer(), nullable=False),
        *_texts("kind", "key_digest", "key"),
        *_numbers("read_number"),
        key=("source_id", "kind", "key_digest"),
        is_keyed=True,
    )
    _create("touched", *_texts("sort", "item_id"), *_numbers("since"), key=("sort", "item_id"), is_keyed=True)


def _problems() -> None:
    """The state that refreshes lock, which also says when problems were counted, and the problems."""
    op.drop_table("directory_state")
    _create(
        "directory_state",
        sa.Column("state_id", sa.Integer(), nullable=False),
        sa.Column("merge_all", sa.Boolean(), nullable=False),
        *_numbers("changes"),
        *_numbers("counted_changes", default="-1"),
        *_numbers("counted_revision", default="0"),
        *_moments("counted_at"),
        key=("state_id",),
    )
    op.execute("INSERT INTO directory_state (state_id, merge_all, changes) VALUES (1, true, 0)")
    _create(
        "problem_count",
        _source_id(),
        *_texts("sort"),
        sa.Column("by_read", sa.Boolean(), nullable=False),
        *_numbers("problems", "since"),
        key=("source_id", "sort", "by_read"),
        is_keyed=True,
    )
    _create(
        "problem",
        _source_id(),
        *_texts("sort"),
        sa.Column("by_read", sa.Boolean(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        *_texts("kind", "key", "cause", "detail", "place", "origin"),
        key=("source_id", "sort", "by_read", "ordinal"),
        is_keyed=True,
    )


_GRANTED = ("folder_id", "document_id", "access_role", "expires_at")
_OF_MODEL = (
    ("user_alias", "", ("user_id",)),
    ("membership", "", ("user_id", "organization_id")),
    ("group_member", "", ("organization_id", "member_group_id", "organization_user_group_id")),
    ("group_member", "", ("organization_id", "user_id", "organization_user_group_id")),
    ("group_member", "", ("user_id", "organization_id")),
    ("folder", "within", ("organization_id", "parent_folder_id", "folder_id")),
    ("document", "within", ("organization_id", "folder_id", "document_id")),
    ("grant", "", ("user_id", "organization_id", *_GRANTED)),
    ("grant", "of_groups", ("organization_id", *_GRANTED[:2], "organization_user_group_id", *_GRANTED[2:])),
    ("grant", "to_group", ("organization_id", "organization_user_group_id", *_GRANTED[:2])),
)
"""Kind, name (empty: from the columns), and columns of each index."""


def _access_model() -> None:
    """New names and the source that owns each record; aliases, numbers and names of records."""
    for kind, keys in _KEYS.items():
        former, table = f"access_{kind}", f"model_{kind}"
        reflected = sa.inspect(op.get_bind()).get_columns(former)
        columns = [sa.Column(column["name"], column["type"], nullable=column["nullable"]) for column in reflected]
        source_id = sa.Column("source_id", sa.Integer(), server_default="0", nullable=False)
        _create(table, *columns, source_id, key=keys, is_keyed=kind not in {"organization", "group"})
        names = ", ".join(column.name for column in columns)
        # In the order of the key, so that a large table is written from its beginning to its end.
        op.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {former} ORDER BY {', '.join(keys)}")  # noqa: S608 - our own names
        op.drop_table(former)
    _create("model_user_alias", *_texts("alias", "user_id"), key=("alias", "user_id"), is_keyed=True)
    for kind, name, indexed in _OF_MODEL:
        rows = "user_id = ''" if name in {"of_groups", "to_group"} else ""
        _index(f"ix_model_{kind}_{name or '_'.join(indexed)}", f"model_{kind}", indexed, rows)
    _create(
        "access_count",
        *_texts("organization_id", "kind"),
        *_numbers("records"),
        key=("organization_id", "kind"),
        is_keyed=True,
    )
    _create(
        "access_name",
        *_texts("kind"),
        sa.Column("name", sa.String().with_variant(sa.String(collation="C"), "postgresql"), nullable=False),
        *_texts("organization_id", "item_id"),
        key=("kind", "name", "organization_id", "item_id"),
        is_keyed=True,
    )
    _count_records()
    for kind in ("organization", "user", "group", "folder", "document"):
        _name_records(kind)


def _count_records() -> None:
    names = {"group_member": "groupMember", "context_grant": "contextGrant"}
    for table, keys in _KEYS.items():
        kind = names.get(table, table)
        if len(keys) > 1:
            op.execute(
                f"INSERT INTO access_count SELECT organization_id, '{kind}', COUNT(*) FROM model_{table}"  # noqa: S608 - constants
                " GROUP BY organization_id"
            )
        op.execute(f"INSERT INTO access_count SELECT '', '{kind}', COUNT(*) FROM model_{table}")  # noqa: S608 - constants


_ROWS_AT_ONCE = 500


def _name_records(kind: str) -> None:
    connection = op.get_bind()
    insert = sa.text(
        "INSERT INTO access_name (kind, name, organization_id, item_id) VALUES (:kind, :name, :organization, :item)"
    )
    for rows in _pages(connection, f"model_{kind}", _KEYS[kind]):
        named = [
            {"kind": kind, "name": name, "organization": within[0] if within else "", "item": item}
            for *within, item, payload in rows
            for name in sorted(names_of(kind, item, payload))
        ]
        connection.execute(insert, named)


def _pages(connection: sa.Connection, table: str, keys: tuple[str, ...]) -> Iterator[list[Any]]:
    """The rows of a table in the order of its key, a few hundred at a time."""
    columns, marks = ", ".join(keys), ", ".join(f":{key}" for key in keys)
    query = sa.text(
        f"SELECT {columns}, payload FROM {table} WHERE ({columns}) > ({marks})"  # noqa: S608 - constants
        f" ORDER BY {columns} LIMIT {_ROWS_AT_ONCE}"
    )
    last = dict.fromkeys(keys, "")
    while rows := [tuple(row) for row in connection.execute(query, last)]:
        yield rows
        last = dict(zip(keys, rows[-1], strict=False))


_PARTS = """
INSERT INTO plan_part (plan_id, organization_id, first_ordinal, last_ordinal, phase, kind, action, operation, items)
SELECT plan_id, {organization}, MIN(ordinal), MAX(ordinal), phase, kind, action, operation, COUNT(*)
FROM plan_item {which} GROUP BY plan_id, phase, kind, action, operation
"""


def _plans_and_runs() -> None:
    """Parts and effects of plans, responses of calls; who asked for a run, and its stages."""
    _create(
        "plan_part",
        *_texts("plan_id", "organization_id"),
        *_numbers("first_ordinal", "last_ordinal"),
        sa.Column("phase", sa.Integer(), nullable=False),
        *_texts("kind", "action", "operation"),
        *_numbers("items"),
        key=("plan_id", "organization_id", "first_ordinal"),
    )
    op.execute(_PARTS.format(organization="''", which=""))
    within = _PARTS.format(organization="organization_id", which="WHERE kind <> 'organization'")
    op.execute(f"{within}, organization_id")
    _create(
        "plan_impact",
        *_texts("plan_id", "organization_id"),
        *_numbers("gain", "lose", "change", "people"),
        key=("plan_id", "organization_id"),
    )
    _index("ix_plan_impact_plan_id_people", "plan_impact", ("plan_id", "people"))
    _index("ix_plan_item_plan_id_item_id_ordinal", "plan_item", ("plan_id", "item_id", "ordinal"))
    _add(
        "run",
        *(sa.Column(name, sa.String(), nullable=True) for name in ("asked_by", "asked_reason")),
        *_texts("stages", "items", default="[]"),
    )
    _add(
        "call",
        *_numbers("first_ordinal", default="0"),
        sa.Column("code", sa.Integer(), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        *_texts("answer", default=""),
    )
    _index("ix_call_plan_id_first_ordinal", "call", ("plan_id", "first_ordinal"))


def _failures() -> None:
    """Failures are found by their message, however many there are."""
    _add("item_failure", *_texts("message_digest", default=""))
    connection, digest = op.get_bind(), "left(encode(sha256(convert_to(message, 'UTF8')), 'hex'), 32)"
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function("usher_digest", 1, message_digest, deterministic=True)
        digest = "usher_digest(message)"
    op.execute(f"UPDATE item_failure SET message_digest = {digest}")  # noqa: S608 - constants
    op.drop_index(op.f("ix_item_failure_ledger_id_kind_parked"), table_name="item_failure")
    item = ("kind", "organization_id", "container_id", "item_id", "deleting")
    _index("ix_item_failure_listed", "item_failure", ("ledger_id", "parked", *item))
    _index("ix_item_failure_alike", "item_failure", ("ledger_id", "parked", "message_digest", *item))


def _console() -> None:
    """The audit log, and what the console shows and remembers."""
    _create(
        "audit",
        sa.Column("audit_id", sa.Integer(), nullable=False),
        *_numbers("at"),
        *_texts("actor", "role", "way", "address", "action", "subject", "reason", "outcome", "request_id"),
        key=("audit_id",),
    )
    for columns in (("actor", "audit_id"), ("action", "audit_id"), ("at",)):
        _index(f"ix_audit_{'_'.join(columns)}", "audit", columns)
    _create(
        "console_session",
        *_texts("session_digest", "name", "role", "credential", "address", "browser"),
        *_numbers("created_at", "seen_at"),
        key=("session_digest",),
    )
    _create(
        "console_sign_in",
        *_texts("attempt_digest", "address", "back"),
        *_numbers("created_at"),
        key=("attempt_digest",),
    )
    _index("ix_console_sign_in_address_created_at", "console_sign_in", ("address", "created_at"))
    _create(
        "node_minute",
        *_texts("node", "role"),
        *_numbers("minute", "seen_at"),
        *_texts("version"),
        *_numbers("allowed", "denied", "errors", *(f"calls_{number}" for number in range(13))),
        key=("node", "role", "minute"),
    )
    _index("ix_node_minute_minute", "node_minute", ("minute",))
    op.create_table(
        "examination",
        sa.Column("examination_id", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=True),
        *_texts("asked_by", "node"),
        *_numbers("started_at"),
        *_moments("finished_at"),
        *_texts("outcome"),
        sa.Column("findings", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("examination_id", name=op.f("pk_examination")),
        sa.UniqueConstraint("slot", name=op.f("uq_examination_slot")),
    )
