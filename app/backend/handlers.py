"""The list of all handlers."""

from functools import partial

from app.backend.collaboration import (
    activity_handlers,
    comment_annotation_handlers,
    comment_handlers,
    notification_handlers,
    user_data,
)
from app.backend.document_migrations import migration_handlers
from app.backend.editor import crdt_handlers
from app.backend.http.registry import Handler, in_transaction, own_transactions
from app.backend.judgments import judgment_handlers
from app.backend.judgments.search import JudgmentSearcher
from app.backend.permissions import permission_handlers, provider_config
from app.backend.resources import (
    document_handlers,
    folder_handlers,
    group_handlers,
    organization_handlers,
    user_handlers,
)
from app.backend.tokens import token_handlers
from app.backend.webhooks import advanced_webhook_handlers, basic_webhook_handlers
from app.backend.workspaces import domain_handlers, email_config_handlers, workspace_handlers
from app.contract import operations

_HANDLERS = (
    own_transactions(operations.CREATE_WORKSPACE, workspace_handlers.create_workspace),
    in_transaction(operations.GET_WORKSPACE, workspace_handlers.get_workspace),
    own_transactions(operations.CREATE_API_KEY, workspace_handlers.create_api_key),
    in_transaction(operations.GET_AUTH_TOKENS, workspace_handlers.get_auth_tokens),
    in_transaction(operations.RESET_AUTH_TOKEN, workspace_handlers.reset_auth_token),
    in_transaction(operations.GET_ORGANIZATIONS_V1, organization_handlers.get_organizations_v1),
    in_transaction(operations.GET_ORGANIZATIONS, organization_handlers.get_organizations),
    in_transaction(operations.ADD_ORGANIZATIONS, organization_handlers.add_organizations),
    in_transaction(operations.UPDATE_ORGANIZATIONS, organization_handlers.update_organizations),
    in_transaction(operations.DELETE_ORGANIZATIONS, organization_handlers.delete_organizations),
    in_transaction(operations.DISABLE_ORGANIZATIONS, organization_handlers.disable_organizations),
    in_transaction(operations.ADD_FOLDER, folder_handlers.add_folder),
    in_transaction(operations.UPDATE_FOLDER, folder_handlers.update_folder),
    in_transaction(operations.UPDATE_FOLDER_ACCESS, folder_handlers.update_folder_access),
    in_transaction(operations.GET_FOLDERS, folder_handlers.get_folders),
    in_transaction(operations.DELETE_FOLDER, folder_handlers.delete_folder),
    in_transaction(operations.ADD_DOCUMENTS, document_handlers.add_documents),
    in_transaction(operations.GET_DOCUMENTS, document_handlers.get_documents),
    in_transaction(operations.UPDATE_DOCUMENTS, document_handlers.update_documents),
    in_transaction(operations.MOVE_DOCUMENTS, document_handlers.move_documents),
    in_transaction(operations.UPDATE_DOCUMENT_ACCESS, document_handlers.update_document_access),
    in_transaction(operations.DELETE_DOCUMENTS, document_handlers.delete_documents),
    in_transaction(operations.ADD_USERS, user_handlers.add_users),
    in_transaction(operations.UPDATE_USERS, user_handlers.update_users),
    in_transaction(operations.GET_USERS, user_handlers.get_users),
    in_transaction(operations.DELETE_USERS, user_handlers.delete_users),
    in_transaction(operations.ADD_GROUPS, group_handlers.add_groups),
    in_transaction(operations.ADD_USERS_TO_GROUPS, group_handlers.add_users_to_groups),
    in_transaction(operations.DELETE_USERS_FROM_GROUPS, group_handlers.delete_users_from_groups),
    in_transaction(operations.GET_PERMISSION_PROVIDER_CONFIG, provider_config.get_permission_provider_config),
    in_transaction(
        operations.UPDATE_PERMISSION_PROVIDER_CONFIG,
        provider_config.update_permission_provider_config,
        check=provider_config.check_config,
    ),
    in_transaction(operations.ADD_PERMISSIONS, permission_handlers.add_permissions),
    in_transaction(operations.REMOVE_PERMISSIONS, permission_handlers.remove_permissions),
    own_transactions(operations.GET_PERMISSIONS, permission_handlers.get_permissions),
    own_transactions(operations.ADD_CRDT_DATA, crdt_handlers.add_crdt_data),
    in_transaction(operations.GET_CRDT_DATA, crdt_handlers.get_crdt_data),
    own_transactions(operations.UPDATE_CRDT_DATA, crdt_handlers.update_crdt_data),
    in_transaction(operations.GET_ACTIVITY_LOGS, activity_handlers.get_activity_logs),
    in_transaction(operations.ADD_ACTIVITIES, activity_handlers.add_activities),
    in_transaction(operations.UPDATE_NOTIFICATIONS, notification_handlers.update_notifications),
    own_transactions(operations.ADD_NOTIFICATIONS, notification_handlers.add_notifications),
    in_transaction(operations.GET_NOTIFICATIONS, notification_handlers.get_notifications),
    own_transactions(operations.ADD_COMMENT_ANNOTATIONS, comment_annotation_handlers.add_comment_annotations),
    in_transaction(operations.GET_COMMENT_ANNOTATIONS, comment_annotation_handlers.get_comment_annotations),
    own_transactions(operations.UPDATE_COMMENT_ANNOTATIONS, comment_annotation_handlers.update_comment_annotations),
    in_transaction(operations.DELETE_COMMENT_ANNOTATIONS, comment_annotation_handlers.delete_comment_annotations),
    own_transactions(operations.ADD_COMMENTS, comment_handlers.add_comments),
    in_transaction(operations.GET_COMMENTS, comment_handlers.get_comments),
    in_transaction(operations.UPDATE_COMMENTS, comment_handlers.update_comments),
    in_transaction(operations.DELETE_COMMENTS, comment_handlers.delete_comments),
    in_transaction(operations.GET_ALL_USER_DATA, user_data.get_all_user_data),
    own_transactions(operations.GENERATE_TOKEN, token_handlers.generate_token),
    own_transactions(operations.GENERATE_TOKEN_V2, token_handlers.generate_token_v2),
    own_transactions(operations.GENERATE_SIGNATURE, token_handlers.generate_signature),
    own_transactions(operations.ADD_DOMAINS, domain_handlers.add_domains),
    in_transaction(
        operations.UPDATE_EMAIL_CONFIG,
        email_config_handlers.update_email_config,
        check=email_config_handlers.check_config,
    ),
    own_transactions(operations.MIGRATE_DOCUMENTS, migration_handlers.migrate_documents),
    own_transactions(operations.MIGRATE_DOCUMENTS_STATUS, migration_handlers.migrate_documents_status),
    in_transaction(operations.GET_WEBHOOK_CONFIG, basic_webhook_handlers.get_webhook_config),
    in_transaction(
        operations.UPDATE_WEBHOOK_CONFIG,
        basic_webhook_handlers.update_webhook_config,
        check=basic_webhook_handlers.check_config,
    ),
    in_transaction(operations.GET_ADVANCED_WEBHOOK_CONFIG, advanced_webhook_handlers.get_config),
    in_transaction(
        operations.UPDATE_ADVANCED_WEBHOOK_CONFIG,
        advanced_webhook_handlers.update_config,
        check=advanced_webhook_handlers.check_key,
    ),
    in_transaction(
        operations.CREATE_ADVANCED_WEBHOOK_ENDPOINT,
        advanced_webhook_handlers.create_endpoint,
        check=advanced_webhook_handlers.check_endpoint,
    ),
    in_transaction(operations.LIST_ADVANCED_WEBHOOK_ENDPOINTS, advanced_webhook_handlers.list_endpoints),
    in_transaction(
        operations.UPDATE_ADVANCED_WEBHOOK_ENDPOINT,
        advanced_webhook_handlers.update_endpoint,
        check=advanced_webhook_handlers.check_endpoint,
    ),
    in_transaction(operations.DELETE_ADVANCED_WEBHOOK_ENDPOINT, advanced_webhook_handlers.remove_endpoint),
    in_transaction(operations.GET_ADVANCED_WEBHOOK_ENDPOINT_SECRET, advanced_webhook_handlers.get_secret),
)


def all_handlers(search: JudgmentSearcher) -> tuple[Handler, ...]:
    """The handler of each operation. ``search`` serves the operations on judgments."""
    return (
        *_HANDLERS,
        in_transaction(operations.SEARCH_JUDGMENTS, partial(judgment_handlers.search_judgments, search)),
        in_transaction(operations.QUERY_JUDGMENTS, partial(judgment_handlers.query_judgments, search)),
    )
