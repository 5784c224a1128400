"""The tables of the self-hosted backend's database in 1.0.0. They never change."""

from app.foundation.database.new_tables import create_index, create_table


def create() -> None:
    create_table(
        "activity",
        "api_key_id* organization_id* activity_id* document_id target_entity_id user_id feature_type action_type"
        " payload happened_at:bigint",
    )
    create_index("ix_activity_action", "activity", "api_key_id organization_id action_type happened_at activity_id")
    create_index("ix_activity_document", "activity", "api_key_id organization_id document_id happened_at activity_id")
    create_index("ix_activity_feature", "activity", "api_key_id organization_id feature_type happened_at activity_id")
    create_index(
        "ix_activity_target", "activity", "api_key_id organization_id target_entity_id happened_at activity_id"
    )
    create_index("ix_activity_time", "activity", "api_key_id organization_id happened_at activity_id")
    create_index("ix_activity_user", "activity", "api_key_id organization_id user_id happened_at activity_id")

    create_table(
        "advanced_webhook_config",
        "api_key_id* is_enabled:bool encrypt_data:bool encode_data:bool public_key enable_data_protection:bool"
        " updated_at:bigint",
    )
    create_table("api_key", "api_key_id* workspace_id name type created_at:bigint")
    create_index("ix_api_key_workspace_id", "api_key", "workspace_id")

    create_table("auth_token", "api_key_id* fingerprint* token_sealed name domains created_at:bigint")
    create_table(
        "comment",
        "api_key_id* organization_id* annotation_id* comment_id* author_id number:bigint payload created_at:bigint"
        " updated_at:bigint",
    )
    create_index("ix_comment_author", "comment", "api_key_id organization_id annotation_id author_id")
    create_index("ix_comment_order", "comment", "api_key_id organization_id annotation_id created_at number comment_id")

    create_table(
        "comment_annotation",
        "api_key_id* organization_id* annotation_id* document_id location_id type assigned_to comment_bytes:bigint"
        " payload created_at:bigint updated_at:bigint",
    )
    create_index(
        "ix_comment_annotation_document",
        "comment_annotation",
        "api_key_id organization_id document_id created_at annotation_id",
    )
    create_index(
        "ix_comment_annotation_location",
        "comment_annotation",
        "api_key_id organization_id location_id created_at annotation_id",
    )
    create_index(
        "ix_comment_annotation_time", "comment_annotation", "api_key_id organization_id created_at annotation_id"
    )

    create_table(
        "document",
        "api_key_id* organization_id* document_id* folder_id own_access_type? payload created_at:bigint"
        " updated_at:bigint",
        clustered=True,
    )
    create_index(
        "ix_document_api_key_id_organization_id_folder_id_document_id",
        "document",
        "api_key_id organization_id folder_id document_id",
    )

    create_table(
        "document_migration",
        "api_key_id* migration_id* organization_id document_id new_document_id status open:bool lease_owner"
        " lease_until:bigint tries:int created_at:bigint updated_at:bigint",
    )
    create_index("ix_document_migration_from", "document_migration", "api_key_id organization_id document_id")
    create_index("ix_document_migration_open", "document_migration", "open lease_until")
    create_index("ix_document_migration_to", "document_migration", "api_key_id organization_id new_document_id")

    create_table(
        "editor_data",
        "api_key_id* organization_id* document_id* editor_id* type content_key state:bytes created_at:bigint"
        " updated_at:bigint",
    )
    create_table("email_config", "api_key_id* in_use:bool payload key_sealed updated_at:bigint")
    create_table(
        "folder",
        "api_key_id* organization_id* folder_id* parent_folder_id ancestors depth:int own_access_type? access_type"
        " payload created_at:bigint updated_at:bigint",
        clustered=True,
    )
    create_index(
        "ix_folder_api_key_id_organization_id_parent_folder_id", "folder", "api_key_id organization_id parent_folder_id"
    )

    create_table("group_member", "api_key_id* organization_id* group_id* user_id* created_at:bigint", clustered=True)
    create_index(
        "ix_group_member_api_key_id_organization_id_user_id", "group_member", "api_key_id organization_id user_id"
    )

    create_table(
        "judgment",
        "api_key_id* seq:bigint* record_id organization_id document_id annotation_id decision judge_type content_type"
        " reviewer_id embedder payload created_at:bigint",
        clustered=True,
    )
    create_index("ix_judgment_document", "judgment", "api_key_id organization_id document_id")
    create_index("ix_judgment_record", "judgment", "api_key_id record_id", unique=True)
    create_index("ix_judgment_thread", "judgment", "api_key_id organization_id annotation_id created_at seq")

    create_table("judgment_state", "api_key_id* last_seq:bigint generation:bigint", clustered=True)
    create_table("judgment_vector", "api_key_id* embedding_type* seq:bigint* vector:bytes", clustered=True)
    create_table("key_check", "name* sealed")
    create_table(
        "notification",
        "api_key_id* organization_id* notification_id* document_id location_id readers:bigint payload"
        " created_at:bigint updated_at:bigint",
    )
    create_index(
        "ix_notification_document", "notification", "api_key_id organization_id document_id created_at notification_id"
    )
    create_index(
        "ix_notification_location", "notification", "api_key_id organization_id location_id created_at notification_id"
    )
    create_index("ix_notification_time", "notification", "api_key_id organization_id created_at notification_id")

    create_table(
        "notification_user",
        "api_key_id* organization_id* notification_id* user_id* document_id created_at:bigint read_at:bigint?"
        " persists:bool",
        clustered=True,
    )
    create_index(
        "ix_notification_user_document",
        "notification_user",
        "api_key_id organization_id user_id document_id created_at notification_id",
    )
    create_index(
        "ix_notification_user_time",
        "notification_user",
        "api_key_id organization_id user_id created_at notification_id",
    )

    create_table(
        "organization",
        "api_key_id* organization_id* disabled:bool payload created_at:bigint updated_at:bigint",
        clustered=True,
    )
    create_table("owner", "email_key* owner_id root_workspace_id created_at:bigint")
    create_table("provider_config", "api_key_id* in_use:bool url token_sealed updated_at:bigint")
    create_table(
        "reaction",
        "api_key_id* organization_id* reaction_id* document_id annotation_id comment_id user_id payload"
        " created_at:bigint",
    )
    create_index("ix_reaction_comment", "reaction", "api_key_id organization_id annotation_id comment_id")
    create_index("ix_reaction_document", "reaction", "api_key_id organization_id document_id")
    create_index("ix_reaction_user", "reaction", "api_key_id organization_id user_id created_at reaction_id")

    create_table(
        "recording",
        "api_key_id* organization_id* recording_id* document_id user_id payload created_at:bigint",
    )
    create_index("ix_recording_document", "recording", "api_key_id organization_id document_id")
    create_index("ix_recording_user", "recording", "api_key_id organization_id user_id created_at recording_id")

    create_table("signing_key", "api_key_id* key_id* public_key private_sealed created_at:bigint retired_at:bigint?")
    create_table("thread_user", "api_key_id* organization_id* user_id* annotation_id*", clustered=True)
    create_index("ix_thread_user_annotation", "thread_user", "api_key_id organization_id annotation_id")

    create_table(
        "user_entry",
        "api_key_id* organization_id* level* container_id* user_id* access_role expires_at:bigint? payload"
        " created_at:bigint updated_at:bigint",
        clustered=True,
    )
    create_index(
        "ix_user_entry_api_key_id_user_id_organization_id_level_container_id",
        "user_entry",
        "api_key_id user_id organization_id level container_id",
    )

    create_table(
        "user_group",
        "api_key_id* organization_id* group_id* payload created_at:bigint updated_at:bigint",
        clustered=True,
    )
    create_table(
        "webhook_attempt",
        "api_key_id* message_id* target* number:int* attempted_at:bigint duration_ms:int status_code:int? problem",
    )
    create_table("webhook_config", "api_key_id* in_use:bool config token_sealed updated_at:bigint")
    create_table(
        "webhook_delivery",
        "api_key_id* message_id* target* number:int state due_at:bigint? attempts:int first_failed_at:bigint?",
    )
    create_index("ix_webhook_delivery_due", "webhook_delivery", "api_key_id target due_at number")

    create_table(
        "webhook_endpoint",
        "api_key_id* endpoint_id* url description? filter_types? channels? disabled:bool disabled_reason"
        " rate_limit:int? uid? own_data? secret_sealed created_at:bigint updated_at:bigint",
    )
    create_index("ix_webhook_endpoint_order", "webhook_endpoint", "api_key_id created_at endpoint_id")
    create_index("ux_webhook_endpoint_uid", "webhook_endpoint", "api_key_id uid", unique=True)

    create_table(
        "webhook_lane",
        "api_key_id* target* due_at:bigint? not_before:bigint holder failures:int delivered_at:bigint",
    )
    create_index("ix_webhook_lane_due", "webhook_lane", "due_at not_before")

    create_table("webhook_message", "api_key_id* message_id* type payload created_at:bigint")
    create_index("ix_webhook_message_time", "webhook_message", "created_at")

    create_table(
        "workspace",
        "workspace_id* email_key name owner_email owner_name owner_avatar token_fingerprint token_sealed"
        " created_at:bigint",
    )
    create_index("ix_workspace_email_key", "workspace", "email_key")

    create_table("workspace_attempt", "address* attempt_id* attempted_at:bigint")
    create_index("ix_workspace_attempt_attempted_at", "workspace_attempt", "attempted_at")
