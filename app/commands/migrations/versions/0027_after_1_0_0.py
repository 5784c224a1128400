"""Upgrades a database of 1.0.0 to the tables of the next release.

Revision: 0027, after 0002. It replaces the revisions 0003 to 0027, which no release contained.

It renames the tables of the access model, because they now also contain records that refer to something unknown. 1.0.0
would treat those as effective. Under the new names it finds no tables, and answers no permission call. The next refresh
merges all keys, which adds these records and the sources that own them. Existing revisions of the access model are not
logged, so each node builds its first index from the access model.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from app.access.refresh.search_names import search_names
from app.foundation.database.new_tables import add_columns, columns_of, create_index, create_table
from app.sync.ledger.failures import message_digest

revision = "0027"
down_revision = "0002"
oldest_compatible = "0027"
"""1.0.0 does not check that the records exist to which others refer."""

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
    _scim()
    _problems()
    _access_model()
    _access_log()
    _plans_and_runs()
    _ledger()
    _console()
    create_table("schema_compatibility", "oldest_revision*")


_NAME_USERS = ("membership", "group_member", "grant", "context_grant")
"""Kinds whose records may refer to a user by an alias."""

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
"""Kind, columns and condition of each index."""


def _sources() -> None:
    """Adds to records their objects, rules and aliases, and to sources their fills, last reads and pushes."""
    create_table(
        "source_fill",
        "user_id* user_alias*= disabled:bool payload digest source_id:int* origin*= rule*= place:text",
        clustered=True,
    )
    for kind, keys in _KEYS.items():
        table, alias = f"source_{kind}", ["user_alias"] if kind in _NAME_USERS else []
        added = " ".join(f"{name}=" for name in (*alias, "origin", "rule"))
        # SQLite creates the table again, and would give it a rowid.
        with op.batch_alter_table(table, table_kwargs={"sqlite_with_rowid": False}) as batch:
            for column in columns_of(f"{added} aliases=[]" if kind == "user" else added):
                batch.add_column(column)
            batch.drop_constraint(op.f(f"pk_{table}"), type_="primary")
            batch.create_primary_key(op.f(f"pk_{table}"), [*keys, *alias, "source_id", "origin", "rule"])
    for kind, indexed, rows in _OF_SOURCES:
        create_index(f"ix_source_{kind}_{'_'.join(indexed)}", f"source_{kind}", " ".join(indexed), where=rows)
    create_table("fill_binding", "user_alias* source_id:int* user_id*", clustered=True)
    create_index("ix_fill_binding_user_id", "fill_binding", "user_id")
    add_columns(
        "directory_source",
        "malformed:bigint=0 last_answered= cursor= settings_digest= refused= last_refusal= last_refusal_acceptance="
        " last_read_ms:bigint=0 last_full_at:bigint? last_refused_at:bigint? polled_at:bigint? login_refused:bool=false"
        " last_changes= last_changed_at:bigint?",
    )
    op.create_table(
        "directory_push",
        sa.Column("source_id", sa.Integer(), autoincrement=False, nullable=False),
        *columns_of("sequence:bigint answer pushed_at:bigint pushed_by pushes:bigint digests=[]"),
        sa.PrimaryKeyConstraint("source_id", name=op.f("pk_directory_push")),
    )
    create_table("pushed_key", "source_id:int* kind* key_digest* key read_number:bigint", clustered=True)
    create_table("touched", "sort* item_id* since:bigint", clustered=True)


def _scim() -> None:
    """Adds the tables of the users, groups and members that directories push."""
    create_table(
        "scim_resource",
        "source_id:int* resource_id* type created:bigint modified:bigint version:bigint content",
        clustered=True,
    )
    create_index(
        "ix_scim_resource_source_id_type_created_resource_id", "scim_resource", "source_id type created resource_id"
    )
    create_table("scim_key", "source_id:int* attribute* value* resource_id*", clustered=True)
    create_index("ix_scim_key_source_id_resource_id", "scim_key", "source_id resource_id")
    create_table("scim_member", "source_id:int* group_id* value* type display", clustered=True)
    create_index("ix_scim_member_source_id_value_group_id", "scim_member", "source_id value group_id")


def _problems() -> None:
    """Adds the tables of problems, and replaces that of the state that refreshes lock: it now has the last count."""
    op.drop_table("directory_state")
    create_table(
        "directory_state",
        "state_id:int* merge_all:bool changes:bigint counted_changes:bigint=-1 counted_revision:bigint=0"
        " counted_at:bigint?",
    )
    op.execute("INSERT INTO directory_state (state_id, merge_all, changes) VALUES (1, true, 0)")
    create_table("problem_count", "source_id:int* sort* by_read:bool* problems:bigint since:bigint", clustered=True)
    create_table(
        "problem", "source_id:int* sort* by_read:bool* ordinal:int* kind key cause detail place origin", clustered=True
    )


_GRANTED = ("folder_id", "document_id", "access_role", "expires_at")
_TO_GROUP = "user_id = ''"
_ENDS = "expires_at IS NOT NULL"
_OPEN = "access_type <> '' AND access_type <> 'restricted'"
_OF_MODEL = (
    ("user_alias", "", "", ("user_id",)),
    ("membership", "", "", ("user_id", "organization_id")),
    ("membership", "ending", _ENDS, ("expires_at",)),
    ("group_member", "", "", ("organization_id", "member_group_id", "organization_user_group_id")),
    ("group_member", "", "", ("organization_id", "user_id", "organization_user_group_id")),
    ("group_member", "", "", ("user_id", "organization_id")),
    ("folder", "within", "", ("organization_id", "parent_folder_id", "folder_id")),
    ("document", "within", "", ("organization_id", "folder_id", "document_id")),
    # Lists of what a user may open begin with these. They are few if most folders and documents inherit their type.
    ("folder", "open", _OPEN, ("organization_id", "access_type", "folder_id")),
    ("document", "open", _OPEN, ("organization_id", "access_type", "document_id")),
    ("grant", "", "", ("user_id", "organization_id", *_GRANTED)),
    ("grant", "ending", _ENDS, ("expires_at",)),
    ("grant", "of_groups", _TO_GROUP, ("organization_id", *_GRANTED[:2], "organization_user_group_id", *_GRANTED[2:])),
    ("grant", "to_group", _TO_GROUP, ("organization_id", "organization_user_group_id", *_GRANTED[:2])),
)
"""Kind, name (empty: from the columns), condition (empty: all rows) and columns of each index."""

_LISTED = {
    "user": "user_id",
    "membership": "organization_id, user_id",
    "folder": "organization_id, folder_id",
    "document": "organization_id, document_id",
}
"""Kind → the order of its lists."""


def _access_model() -> None:
    """Renames the tables, adds the owning source to each record, and adds tables of aliases, counts and names."""
    for kind, keys in _KEYS.items():
        former, table = f"access_{kind}", f"model_{kind}"
        reflected = sa.inspect(op.get_bind()).get_columns(former)
        columns = [sa.Column(column["name"], column["type"], nullable=column["nullable"]) for column in reflected]
        source_id = sa.Column("source_id", sa.Integer(), server_default="0", nullable=False)
        primary = sa.PrimaryKeyConstraint(*keys, name=op.f(f"pk_{table}"))
        op.create_table(table, *columns, source_id, primary, sqlite_with_rowid=kind in {"organization", "group"})
        names = ", ".join(column.name for column in columns)
        # In the order of the key, so that a large table is written from its beginning to its end.
        op.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {former} ORDER BY {', '.join(keys)}")  # noqa: S608 - our own names
        op.drop_table(former)
    create_table("model_user_alias", "alias* user_id*", clustered=True)
    for kind, name, rows, indexed in _OF_MODEL:
        index = f"ix_model_{kind}_{name or '_'.join(indexed)}"
        create_index(index, f"model_{kind}", " ".join(indexed), where=rows or None)
    # Pages of lists have the order of bytes. SQLite's keys have it anyway.
    if op.get_bind().dialect.name == "postgresql":
        for kind, order in _LISTED.items():
            op.create_index(f"ix_model_{kind}_bytes", f"model_{kind}", [sa.text(f'{order} COLLATE "C"')])
    create_table("access_count", "organization_id* kind* records:bigint", clustered=True)
    op.create_table(
        "access_name",
        *columns_of("kind"),
        sa.Column("name", sa.String().with_variant(sa.String(collation="C"), "postgresql"), nullable=False),
        *columns_of("organization_id item_id"),
        sa.PrimaryKeyConstraint("kind", "name", "organization_id", "item_id", name=op.f("pk_access_name")),
        sqlite_with_rowid=False,
    )
    _count_records()
    for kind in ("organization", "user", "group", "folder", "document"):
        _name_records(kind)


def _access_log() -> None:
    """Adds the table of the changes of each revision."""
    op.create_table(
        "access_change",
        sa.Column("change_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        *columns_of("revision:bigint kind organization_id item_id detail"),
        sa.PrimaryKeyConstraint("change_id", name=op.f("pk_access_change")),
    )
    create_index("ix_access_change_revision_kind", "access_change", "revision kind")
    add_columns("access_revision", "logged:bool=false")


def _count_records() -> None:
    """Fills ``access_count`` with the number of records of each kind, in each organization and in total."""
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
    """Fills ``access_name`` with the names by which records of a kind are found. Short ids and names are none."""
    connection = op.get_bind()
    insert = sa.text(
        "INSERT INTO access_name (kind, name, organization_id, item_id) VALUES (:kind, :name, :organization, :item)"
    )
    for rows in _pages(connection, f"model_{kind}", _KEYS[kind]):
        named = [
            {"kind": kind, "name": name, "organization": within[0] if within else "", "item": item}
            for *within, item, payload in rows
            for name in sorted(search_names(kind, item, payload))
        ]
        if named:
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
    """Adds tables of workers, run files, and parts and effects of plans, and columns of runs, items and calls."""
    create_table("worker", "worker_id* name started_at:bigint seen_at:bigint leads:bool")
    create_table("run_tally", "status* runs:bigint")
    op.execute(
        "INSERT INTO run_tally (status, runs) SELECT status, count(*) FROM run"
        " WHERE status IN ('done', 'partial', 'held', 'failed', 'cancelled') GROUP BY status"
    )
    create_table("run_file", "run_id* name source content:bytes")
    create_table(
        "plan_part",
        "plan_id* organization_id* first_ordinal:bigint* last_ordinal:bigint phase:int kind action operation"
        " items:bigint",
    )
    op.execute(_PARTS.format(organization="''", which=""))
    within = _PARTS.format(organization="organization_id", which="WHERE kind <> 'organization'")
    op.execute(f"{within}, organization_id")
    create_table("plan_impact", "plan_id* organization_id* gain:bigint lose:bigint change:bigint people:bigint")
    create_index("ix_plan_impact_plan_id_people", "plan_impact", "plan_id people")
    create_index("ix_plan_item_plan_id_item_id_ordinal", "plan_item", "plan_id item_id ordinal")
    create_table(
        "plan_access",
        "plan_id* ordinal:bigint* organization_id kind before after users:bigint resources:bigint pairs:bigint"
        " user_ids resource_ids names",
    )
    add_columns("plan_item", "in_force= was=")
    add_columns(
        "run",
        "held_at:bigint? resumed_at:bigint? decision? decided_at:bigint? decided_by? decision_reason? retry:bool=false"
        " kinds=[] interrupted:bool=false continued_by? asked_by? asked_reason? stages=[] items=[]",
    )
    create_index("ix_run_asked_by", "run", "asked_by run_id", where="asked_by IS NOT NULL")
    add_columns("call", "first_ordinal:bigint=0 code:int? tries:int=0 answer=")
    create_index("ix_call_plan_id_first_ordinal", "call", "plan_id first_ordinal")


def _ledger() -> None:
    """Adds tables of discards and of sent payloads, the findings of verifies, and the index of failures by message."""
    create_table(
        "discarded_item", "ledger_id:int* kind* organization_id* container_id* item_id* fingerprint run_id message"
    )
    create_table("former_payload", "kind* organization_id* item_id* digest* payload", clustered=True)
    add_columns("ledger", "looked_at:bigint? findings={}")
    # Plans of changes read unconfirmed items.
    create_index("ix_ledger_item_unconfirmed", "ledger_item", "ledger_id", where="NOT certain")
    add_columns("item_failure", "failing_since:bigint? message_digest=")
    connection, digest = op.get_bind(), "left(encode(sha256(convert_to(message, 'UTF8')), 'hex'), 32)"
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.create_function("usher_digest", 1, message_digest, deterministic=True)
        digest = "usher_digest(message)"
    op.execute(f"UPDATE item_failure SET message_digest = {digest}")  # noqa: S608 - constants
    item = "kind organization_id container_id item_id deleting"
    create_index("ix_item_failure_listed", "item_failure", f"ledger_id parked {item}")
    create_index("ix_item_failure_alike", "item_failure", f"ledger_id parked message_digest {item}")


def _console() -> None:
    """Adds the tables of the audit log and of the console."""
    create_table("audit", "audit_id:int* at:bigint actor role way address action subject reason outcome request_id")
    for columns in ("actor audit_id", "action audit_id", "at"):
        create_index(f"ix_audit_{columns.replace(' ', '_')}", "audit", columns)
    create_table(
        "console_session", "session_digest* name role credential address browser created_at:bigint seen_at:bigint"
    )
    calls = " ".join(f"calls_{number}:bigint" for number in range(13))
    create_table(
        "node_minute",
        "node* role* minute:bigint* seen_at:bigint version allowed:bigint denied:bigint errors:bigint " + calls,
    )
    create_index("ix_node_minute_minute", "node_minute", "minute")
    op.create_table(
        "examination",
        *columns_of("examination_id:int slot:int? asked_by node started_at:bigint finished_at:bigint? outcome"),
        *columns_of("findings:text"),
        sa.PrimaryKeyConstraint("examination_id", name=op.f("pk_examination")),
        sa.UniqueConstraint("slot", name=op.f("uq_examination_slot")),
    )
