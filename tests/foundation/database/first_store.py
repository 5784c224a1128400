"""The tables of Usher's own database in 1.0.0. They never change."""

import sqlalchemy as sa
from alembic import op

from app.foundation.database.new_tables import create_index, create_table


def create() -> None:
    create_table(
        "access_context_grant",
        "organization_id* user_id* organization_user_group_id* field* value* document_id* expires_at:bigint?",
        clustered=True,
    )
    create_table(
        "access_document", "organization_id* document_id* folder_id access_type payload digest", clustered=True
    )
    create_index("ix_access_document_organization_id_folder_id", "access_document", "organization_id folder_id")

    create_table(
        "access_folder", "organization_id* folder_id* parent_folder_id access_type payload digest", clustered=True
    )
    create_index(
        "ix_access_folder_organization_id_parent_folder_id", "access_folder", "organization_id parent_folder_id"
    )

    create_table(
        "access_grant",
        "organization_id* folder_id* document_id* user_id* organization_user_group_id* access_role expires_at:bigint?",
        clustered=True,
    )
    create_index(
        "ix_access_grant_of_groups",
        "access_grant",
        "organization_id folder_id document_id organization_user_group_id access_role expires_at",
        where="user_id = ''",
    )
    create_index(
        "ix_access_grant_organization_id_organization_user_group_id",
        "access_grant",
        "organization_id organization_user_group_id",
    )
    create_index(
        "ix_access_grant_user_id_organization_id_folder_id_document_id_access_role_expires_at",
        "access_grant",
        "user_id organization_id folder_id document_id access_role expires_at",
    )

    create_table("access_group", "organization_id* organization_user_group_id* payload digest")
    create_table(
        "access_group_member", "organization_id* organization_user_group_id* user_id* member_group_id*", clustered=True
    )
    create_index(
        "ix_access_group_member_organization_id_member_group_id_organization_user_group_id",
        "access_group_member",
        "organization_id member_group_id organization_user_group_id",
    )
    create_index(
        "ix_access_group_member_organization_id_user_id_organization_user_group_id",
        "access_group_member",
        "organization_id user_id organization_user_group_id",
    )
    create_index("ix_access_group_member_user_id_organization_id", "access_group_member", "user_id organization_id")

    create_table("access_membership", "organization_id* user_id* access_role expires_at:bigint?", clustered=True)
    create_index("ix_access_membership_user_id_organization_id", "access_membership", "user_id organization_id")

    create_table("access_organization", "organization_id* access_type disabled:bool payload digest")
    create_table("access_revision", "revision:bigint* created_at:bigint changes")
    create_table("access_user", "user_id* disabled:bool payload digest", clustered=True)
    create_table(
        "call", "call_id:int* run_id plan_id ledger_id:int operation ordinals sent_at:bigint settled_at:bigint?"
    )
    create_index("ix_call_settled_at", "call", "settled_at")

    create_table(
        "concern", "concern_key* cause about fingerprint size:bigint says run_id? since_at:bigint told_at:bigint"
    )
    create_table("deleted_item", "ledger_id:int* kind* organization_id* container_id* item_id*")
    op.create_table(
        "directory_source",
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("reads_begun", sa.BigInteger(), nullable=False),
        sa.Column("read_in_force", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("last_verdict", sa.String(), nullable=False),
        sa.Column("last_reason", sa.String(), nullable=False),
        sa.Column("last_read_at", sa.BigInteger(), nullable=True),
        sa.Column("last_good_at", sa.BigInteger(), nullable=True),
        sa.Column("last_complete_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("source_id", name=op.f("pk_directory_source")),
        sa.UniqueConstraint("name", name=op.f("uq_directory_source_name")),
    )
    create_table("directory_state", "state_id:int* generation:bigint merged_generation:bigint merge_problems:bigint")
    create_table(
        "item_failure",
        "ledger_id:int* kind* organization_id* container_id* item_id* deleting:bool* fingerprint failures:int"
        " retry_at:bigint parked:bool message",
    )
    create_table(
        "ledger", "ledger_id:int* base_url api_key_digest ledger_revision:bigint created_at:bigint verified_at:bigint?"
    )
    create_index("ix_ledger_base_url_api_key_digest", "ledger", "base_url api_key_digest", unique=True)

    create_table(
        "ledger_item",
        "ledger_id:int* kind* organization_id* container_id* item_id* digest parent_id access_type access_role"
        " disabled:bool certain:bool gone_at:bigint?",
    )
    create_index("ix_ledger_item_gone", "ledger_item", "ledger_id gone_at", where="gone_at IS NOT NULL")
    create_index("ix_ledger_item_ledger_id_kind_item_id", "ledger_item", "ledger_id kind item_id")
    create_index(
        "ix_ledger_item_ledger_id_organization_id_kind_parent_id",
        "ledger_item",
        "ledger_id organization_id kind parent_id",
    )

    create_table(
        "notification",
        "message_id* channel* body created_at:bigint tries:int next_try_at:bigint? delivered_at:bigint? problem",
    )
    create_index("ix_notification_waiting", "notification", "next_try_at", where="next_try_at IS NOT NULL")

    create_table(
        "observed_item",
        "ledger_id:int* kind* organization_id* container_id* item_id* parent_id access_type access_role disabled:bool"
        " payload known",
    )
    create_table(
        "plan",
        "plan_id* ledger_id:int revision:bigint ledger_revision:bigint plan_hash created_at:bigint organization_ids"
        " user_ids limits",
    )
    create_table(
        "plan_item",
        "plan_id* ordinal:bigint* phase:int action kind organization_id container_id item_id operation scope digest"
        " parent_id access_type access_role disabled:bool payload reason covered_by:bigint? status message",
    )
    create_index("ix_plan_item_plan_id_covered_by", "plan_item", "plan_id covered_by")
    create_index(
        "ix_plan_item_plan_id_kind_organization_id_container_id_item_id",
        "plan_item",
        "plan_id kind organization_id container_id item_id",
    )
    create_index("ix_plan_item_plan_id_status_ordinal", "plan_item", "plan_id status ordinal")

    create_table(
        "run",
        "run_id* trigger status dry_run:bool verify:bool allow_deletes:bool organization_ids user_ids ledger_id:int?"
        " requested_plan_id? plan_id? revision:bigint? requested_at:bigint started_at:bigint? finished_at:bigint?"
        " held_until:bigint? approved_at:bigint? cancel_requested:bool worker? error? counts calls:int report",
    )
    create_index("ix_run_requested_at", "run", "requested_at")
    create_index("ix_run_status_requested_at", "run", "status requested_at")

    create_table("run_key", "idempotency_key* run_id")
    create_index("ix_run_key_run_id", "run_key", "run_id")

    create_table(
        "source_context_grant",
        "organization_id* user_id* organization_user_group_id* field* value* document_id* expires_at:bigint?"
        " source_id:int* place:text",
        clustered=True,
    )
    create_table(
        "source_document",
        "organization_id* document_id* folder_id access_type payload digest source_id:int* place:text",
        clustered=True,
    )
    create_table(
        "source_folder",
        "organization_id* folder_id* parent_folder_id access_type payload digest source_id:int* place:text",
        clustered=True,
    )
    create_index(
        "ix_source_folder_organization_id_parent_folder_id", "source_folder", "organization_id parent_folder_id"
    )

    create_table(
        "source_grant",
        "organization_id* folder_id* document_id* user_id* organization_user_group_id* access_role expires_at:bigint?"
        " source_id:int* place:text",
        clustered=True,
    )
    create_table(
        "source_group",
        "organization_id* organization_user_group_id* payload digest source_id:int* place:text",
        clustered=True,
    )
    create_table(
        "source_group_member",
        "organization_id* organization_user_group_id* user_id* member_group_id* source_id:int* place:text",
        clustered=True,
    )
    create_table(
        "source_membership",
        "organization_id* user_id* access_role expires_at:bigint? source_id:int* place:text",
        clustered=True,
    )
    create_table(
        "source_organization",
        "organization_id* access_type disabled:bool payload digest source_id:int* place:text",
        clustered=True,
    )
    create_table("source_user", "user_id* disabled:bool payload digest source_id:int* place:text", clustered=True)
    create_table("untold_item", "ledger_id:int* operation* plain:bool* kind* organization_id* container_id* item_id*")
