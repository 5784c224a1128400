"""The list of all handlers, one for each operation.

Most handlers run in one transaction (``in_transaction``). Slow validation, such as parsing a key, runs as ``check``
before that transaction, because a write transaction blocks other writers. Handlers that do slow work between reading
and writing, or need several transactions, open their own (``own_transactions``).
"""

from functools import partial

from app.backend.collaboration import (
    activities,
    comment_annotation_handlers,
    comment_handlers,
    migration_handlers,
    notification_handlers,
    user_data,
)
from app.backend.editor import crdt_handlers
from app.backend.http.dispatch import Handler, in_transaction, own_transactions
from app.backend.judgments import judgment_handlers
from app.backend.judgments.judgment_handlers import JudgmentSearcher
from app.backend.permissions import permission_handlers, provider_config
from app.backend.resources import (
    document_handlers,
    folder_handlers,
    group_handlers,
    organization_handlers,
    user_handlers,
)
from app.backend.tokens import token_handlers
from app.backend.webhooks import advanced_handlers as advanced_webhooks
from app.backend.webhooks import basic_handlers as basic_webhooks
from app.backend.workspaces import domain_handlers, email_handlers, workspace_handlers
from app.contract import operations as op

_HANDLERS = (
    own_transactions(op.CREATE_WORKSPACE, workspace_handlers.create_workspace),
    in_transaction(op.GET_WORKSPACE, workspace_handlers.get_workspace),
    own_transactions(op.CREATE_API_KEY, workspace_handlers.create_api_key),
    in_transaction(op.GET_AUTH_TOKENS, workspace_handlers.get_auth_tokens),
    in_transaction(op.RESET_AUTH_TOKEN, workspace_handlers.reset_auth_token),
    in_transaction(op.GET_ORGANIZATIONS_V1, organization_handlers.get_organizations_v1),
    in_transaction(op.GET_ORGANIZATIONS, organization_handlers.get_organizations),
    in_transaction(op.ADD_ORGANIZATIONS, organization_handlers.add_organizations),
    in_transaction(op.UPDATE_ORGANIZATIONS, organization_handlers.update_organizations),
    in_transaction(op.DELETE_ORGANIZATIONS, organization_handlers.delete_organizations),
    in_transaction(op.DISABLE_ORGANIZATIONS, organization_handlers.disable_organizations),
    in_transaction(op.ADD_FOLDER, folder_handlers.add_folder),
    in_transaction(op.UPDATE_FOLDER, folder_handlers.update_folder),
    in_transaction(op.UPDATE_FOLDER_ACCESS, folder_handlers.update_folder_access),
    in_transaction(op.GET_FOLDERS, folder_handlers.get_folders),
    in_transaction(op.DELETE_FOLDER, folder_handlers.delete_folder),
    in_transaction(op.ADD_DOCUMENTS, document_handlers.add_documents),
    in_transaction(op.GET_DOCUMENTS, document_handlers.get_documents),
    in_transaction(op.UPDATE_DOCUMENTS, document_handlers.update_documents),
    in_transaction(op.MOVE_DOCUMENTS, document_handlers.move_documents),
    in_transaction(op.UPDATE_DOCUMENT_ACCESS, document_handlers.update_document_access),
    in_transaction(op.DELETE_DOCUMENTS, document_handlers.delete_documents),
    in_transaction(op.ADD_USERS, user_handlers.add_users),
    in_transaction(op.UPDATE_USERS, user_handlers.update_users),
    in_transaction(op.GET_USERS, user_handlers.get_users),
    in_transaction(op.DELETE_USERS, user_handlers.delete_users),
    in_transaction(op.ADD_GROUPS, group_handlers.add_groups),
    in_transaction(op.ADD_USERS_TO_GROUPS, group_handlers.add_users_to_groups),
    in_transaction(op.DELETE_USERS_FROM_GROUPS, group_handlers.delete_users_from_groups),
    in_transaction(op.GET_PERMISSION_PROVIDER_CONFIG, provider_config.get_permission_provider_config),
    in_transaction(
        op.UPDATE_PERMISSION_PROVIDER_CONFIG,
        provider_config.update_permission_provider_config,
        check=provider_config.check_provider_config,
    ),
    in_transaction(op.ADD_PERMISSIONS, permission_handlers.add_permissions),
    in_transaction(op.REMOVE_PERMISSIONS, permission_handlers.remove_permissions),
    own_transactions(op.GET_PERMISSIONS, permission_handlers.get_permissions),
    in_transaction(op.ADD_CRDT_DATA, crdt_handlers.add_crdt_data),
    in_transaction(op.GET_CRDT_DATA, crdt_handlers.get_crdt_data),
    in_transaction(op.UPDATE_CRDT_DATA, crdt_handlers.update_crdt_data),
    in_transaction(op.GET_ACTIVITY_LOGS, activities.get_activity_logs),
    in_transaction(op.ADD_ACTIVITIES, activities.add_activities),
    in_transaction(op.UPDATE_NOTIFICATIONS, notification_handlers.update_notifications),
    own_transactions(op.ADD_NOTIFICATIONS, notification_handlers.add_notifications),
    in_transaction(op.GET_NOTIFICATIONS, notification_handlers.get_notifications),
    own_transactions(op.ADD_COMMENT_ANNOTATIONS, comment_annotation_handlers.add_comment_annotations),
    in_transaction(op.GET_COMMENT_ANNOTATIONS, comment_annotation_handlers.get_comment_annotations),
    own_transactions(op.UPDATE_COMMENT_ANNOTATIONS, comment_annotation_handlers.update_comment_annotations),
    in_transaction(op.DELETE_COMMENT_ANNOTATIONS, comment_annotation_handlers.delete_comment_annotations),
    own_transactions(op.ADD_COMMENTS, comment_handlers.add_comments),
    in_transaction(op.GET_COMMENTS, comment_handlers.get_comments),
    in_transaction(op.UPDATE_COMMENTS, comment_handlers.update_comments),
    in_transaction(op.DELETE_COMMENTS, comment_handlers.delete_comments),
    in_transaction(op.GET_ALL_USER_DATA, user_data.get_all_user_data),
    own_transactions(op.GENERATE_TOKEN, token_handlers.generate_token),
    own_transactions(op.GENERATE_TOKEN_V2, token_handlers.generate_token_v2),
    own_transactions(op.GENERATE_SIGNATURE, token_handlers.generate_signature),
    own_transactions(op.ADD_DOMAINS, domain_handlers.add_domains),
    in_transaction(op.UPDATE_EMAIL_CONFIG, email_handlers.update_email_config, check=email_handlers.check_email_config),
    in_transaction(op.MIGRATE_DOCUMENTS, migration_handlers.migrate_documents),
    in_transaction(op.MIGRATE_DOCUMENTS_STATUS, migration_handlers.migrate_documents_status),
    in_transaction(op.GET_WEBHOOK_CONFIG, basic_webhooks.get_config),
    in_transaction(op.UPDATE_WEBHOOK_CONFIG, basic_webhooks.update_config, check=basic_webhooks.check_config),
    in_transaction(op.GET_ADVANCED_WEBHOOK_CONFIG, advanced_webhooks.get_config),
    in_transaction(
        op.UPDATE_ADVANCED_WEBHOOK_CONFIG, advanced_webhooks.update_config, check=advanced_webhooks.check_config
    ),
    in_transaction(
        op.CREATE_ADVANCED_WEBHOOK_ENDPOINT, advanced_webhooks.create_endpoint, check=advanced_webhooks.check_endpoint
    ),
    in_transaction(op.LIST_ADVANCED_WEBHOOK_ENDPOINTS, advanced_webhooks.list_endpoints),
    in_transaction(
        op.UPDATE_ADVANCED_WEBHOOK_ENDPOINT, advanced_webhooks.update_endpoint, check=advanced_webhooks.check_endpoint
    ),
    in_transaction(op.DELETE_ADVANCED_WEBHOOK_ENDPOINT, advanced_webhooks.delete_endpoint),
    in_transaction(op.GET_ADVANCED_WEBHOOK_ENDPOINT_SECRET, advanced_webhooks.get_endpoint_secret),
)


def all_handlers(searcher: JudgmentSearcher) -> tuple[Handler, ...]:
    """The handler of each operation. ``searcher`` serves the operations on judgments."""
    return (
        *_HANDLERS,
        in_transaction(op.SEARCH_JUDGMENTS, partial(judgment_handlers.search_judgments, searcher)),
        in_transaction(op.QUERY_JUDGMENTS, partial(judgment_handlers.query_judgments, searcher)),
    )
