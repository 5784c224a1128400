# ruff: noqa: S106 - `page_token_field` is the name of a field, no secret.
"""The table of the operations of the API.

The 26 operations of the reference come first, in its order, then the extended ones. Each has a constant with its
``name`` in upper case. ``OPERATIONS`` contains all.

Operations on the data of organizations exist under v1 and v2 with the same bodies, except ``organizations/get``: its
versions are two operations (v1 returns everything, v2 pages). ``auth/...`` differs between v1 and v2, and
``workspace/...`` exists only under v2.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

from app.contract import activities as act
from app.contract import comments as com
from app.contract import crdt, judgments, limits, tokens, workspace
from app.contract import documents as doc
from app.contract import folders as fol
from app.contract import groups as grp
from app.contract import notifications as ntf
from app.contract import organizations as org
from app.contract import permissions as prm
from app.contract import users as usr
from app.contract import webhooks as whk
from app.contract.base import ItemResult, NoParameters
from app.contract.errors import Status
from app.contract.operation import AnyOperation, AuthLevel, Operation, Tier

_EXT = Tier.EXTENDED
_PRECONDITION = (Status.FAILED_PRECONDITION,)
_NOT_FOUND = (Status.NOT_FOUND,)

ITEMS: TypeAdapter[dict[str, ItemResult]] = TypeAdapter(dict[str, ItemResult])
"""The outcome of each item, by its id."""
USERS: TypeAdapter[list[usr.User] | dict[str, list[usr.User]]] = TypeAdapter(list[usr.User] | dict[str, list[usr.User]])
"""Users, or users by document id."""
# Ignores data that the reference does not promise.
NOTHING: TypeAdapter[None] = TypeAdapter(Annotated[None, BeforeValidator(lambda _: None)])

# fmt: off
# One row per operation; the formatter would put every cell on its own line.

# --- The reference's 26 ---

GENERATE_TOKEN = Operation(
    "generate_token", "Generate Token", "/v1/auth/token/get",
    tokens.GenerateTokenRequest, TypeAdapter(tokens.GeneratedToken),
    "Creates a JWT for a client, valid for 48 hours.",
    auth=AuthLevel.BODY, is_read=True,
)
RESET_AUTH_TOKEN = Operation(
    "reset_auth_token", "Reset Auth Token", "/v2/workspace/authtoken/reset",
    tokens.ResetAuthTokenRequest, TypeAdapter(tokens.ResetAuthTokenResult), "Replaces the auth token of an API key.",
    auth=AuthLevel.W, is_repeatable=False, errors=_NOT_FOUND,
)
GET_ORGANIZATIONS_V1 = Operation(
    "get_organizations_v1", "Get Organizations (v1)", "/v1/organizations/get",
    org.GetOrganizationsV1Request, TypeAdapter(list[org.Organization]), "Reads all organizations, or at most 30 by id.",
    is_read=True, items_field="organizationIds", max_items=limits.IDS_PER_READ,
)
GET_ORGANIZATIONS = Operation(
    "get_organizations", "Get Organizations (v2)", "/v2/organizations/get",
    org.GetOrganizationsRequest, TypeAdapter(list[org.Organization]), "Reads organizations by page.",
    is_read=True, items_field="organizationIds", page_token_field="nextPageToken",
)
ADD_USERS = Operation(
    "add_users", "Add Users", "/v1/users/add",
    usr.AddUsersRequest, ITEMS, "Adds users to an organization, a folder or a document.",
    items_field="users", counterpart="update_users", roles_in_other_version=True, errors=_NOT_FOUND,
)
UPDATE_USERS = Operation(
    "update_users", "Update Users", "/v1/users/update",
    usr.UpdateUsersRequest, ITEMS, "Updates the metadata and role of users of an organization, a folder or a document.",
    items_field="users", counterpart="add_users", roles_in_other_version=True, errors=_NOT_FOUND,
)
DELETE_DOCUMENTS = Operation(
    "delete_documents", "Delete Documents", "/v1/organizations/documents/delete",
    doc.DeleteDocumentsRequest, ITEMS, "Deletes documents. One that is missing already counts as deleted.",
    items_field="documentIds", errors=_NOT_FOUND,
)
CREATE_ADVANCED_WEBHOOK_ENDPOINT = Operation(
    "create_advanced_webhook_endpoint", "Create Advanced Webhook Endpoint",
    "/v2/workspace/advancedwebhook/endpoints/create",
    whk.CreateEndpointRequest, TypeAdapter(whk.Endpoint), "Creates a webhook endpoint with its own signing secret.",
    is_repeatable=False, errors=(Status.FAILED_PRECONDITION, Status.ALREADY_EXISTS),
)
GET_ADVANCED_WEBHOOK_ENDPOINT_SECRET = Operation(
    "get_advanced_webhook_endpoint_secret", "Get Advanced Webhook Endpoint Secret",
    "/v2/workspace/advancedwebhook/endpoints/secret/get",
    whk.GetEndpointSecretRequest, TypeAdapter(whk.EndpointSecret), "Reads the signing secret of a webhook endpoint.",
    is_read=True, errors=(Status.NOT_FOUND, Status.FAILED_PRECONDITION),
)
GET_ACTIVITY_LOGS = Operation(
    "get_activity_logs", "Get Activity Logs", "/v2/activities/get",
    act.GetActivityLogsRequest, TypeAdapter(list[act.Activity]), "Reads activity records by page.",
    is_read=True, page_token_field="pageToken",
)
CREATE_WORKSPACE = Operation(
    "create_workspace", "Create Workspace", "/v2/workspace/create",
    workspace.CreateWorkspaceRequest, TypeAdapter(workspace.Workspace),
    "Creates a workspace with an API key. Public, limited by IP address.",
    auth=AuthLevel.NONE, is_repeatable=False, errors=(Status.PERMISSION_DENIED, Status.ALREADY_EXISTS),
)
SEARCH_JUDGMENTS = Operation(
    "search_judgments", "Search Judgments", "/v2/memory/search",
    judgments.SearchJudgmentsRequest, TypeAdapter(judgments.JudgmentSearch), "Finds review decisions by meaning.",
    is_read=True, bare_result=True,
)
GET_ADVANCED_WEBHOOK_CONFIG = Operation(
    "get_advanced_webhook_config", "Get Advanced Webhook Config", "/v2/workspace/advancedwebhookconfig/get",
    NoParameters, TypeAdapter(whk.AdvancedWebhookConfig), "Reads the configuration of advanced webhooks.",
    is_read=True, errors=_PRECONDITION,
)
ADD_CRDT_DATA = Operation(
    "add_crdt_data", "Add CRDT Data", "/v2/crdt/add",
    crdt.AddCrdtDataRequest, NOTHING, "Sets the initial content of an editor.",
    has_data=False, errors=(Status.ALREADY_EXISTS, Status.NOT_FOUND),
)
DELETE_USERS_FROM_GROUPS = Operation(
    "delete_users_from_groups", "Delete Users from Groups", "/v2/organizations/usergroups/users/delete",
    grp.DeleteUsersFromGroupsRequest, ITEMS, "Removes users from a group.",
    items_field="userIds", errors=_NOT_FOUND,
)
ADD_USERS_TO_GROUPS = Operation(
    "add_users_to_groups", "Add Users to Groups", "/v1/organizations/usergroups/users/add",
    grp.AddUsersToGroupsRequest, ITEMS, "Adds users to a group.",
    items_field="userIds", errors=_NOT_FOUND,
)
GET_PERMISSION_PROVIDER_CONFIG = Operation(
    "get_permission_provider_config", "Get Permission Provider Config",
    "/v2/workspace/permissionproviderconfig/get",
    NoParameters, TypeAdapter(prm.PermissionProviderConfig), "Reads the configuration of the permission provider.",
    is_read=True,
)
GET_USERS = Operation(
    "get_users", "Get Users", "/v2/users/get",
    usr.GetUsersRequest, USERS, "Reads the users of an organization, a folder, a document or all documents, by page.",
    is_read=True, items_field="userIds", max_items=limits.IDS_PER_READ, page_token_field="nextPageToken",
    errors=_NOT_FOUND,
)
GET_ALL_USER_DATA = Operation(
    "get_all_user_data", "Get All User Data", "/v1/users/data/get",
    usr.GetAllUserDataRequest, TypeAdapter(usr.UserData),
    "Reads everything that a user created or takes part in, by page.",
    is_read=True, page_token_field="nextPageToken", errors=_NOT_FOUND,
)
DELETE_USERS = Operation(
    "delete_users", "Delete Users", "/v2/users/delete",
    usr.DeleteUsersRequest, ITEMS,
    "Removes users from an organization with all that is in it, from a folder or from a document.",
    items_field="userIds", errors=_NOT_FOUND,
)
UPDATE_FOLDER = Operation(
    "update_folder", "Update Folder", "/v2/organizations/folders/update",
    fol.UpdateFolderRequest, ITEMS, "Renames and moves folders.",
    items_field="folders", counterpart="add_folder", is_ordered=True, errors=_NOT_FOUND,
)
ADD_FOLDER = Operation(
    "add_folder", "Add Folder", "/v1/organizations/folders/add",
    fol.AddFolderRequest, ITEMS, "Adds folders.",
    items_field="folders", counterpart="update_folder", roles_in_other_version=True, is_ordered=True, errors=_NOT_FOUND,
)
UPDATE_WEBHOOK_CONFIG = Operation(
    "update_webhook_config", "Update Webhook Config", "/v2/workspace/webhookconfig/update",
    whk.UpdateWebhookConfigRequest, TypeAdapter(whk.WebhookConfig), "Configures basic webhooks.",
)
GET_WEBHOOK_CONFIG = Operation(
    "get_webhook_config", "Get Webhook Config", "/v2/workspace/webhookconfig/get",
    NoParameters, TypeAdapter(whk.WebhookConfig), "Reads the configuration of basic webhooks.",
    is_read=True,
)
UPDATE_NOTIFICATIONS = Operation(
    "update_notifications", "Update Notifications", "/v1/notifications/update",
    ntf.UpdateNotificationsRequest, ITEMS, "Changes notifications and marks them as read.",
    items_field="notifications",
)
MIGRATE_DOCUMENTS_STATUS = Operation(
    "migrate_documents_status", "Migrate Documents Status", "/v2/organizations/documents/migrate/status",
    doc.MigrateDocumentsStatusRequest, TypeAdapter(doc.MigrationStatus), "Reports the progress of a migration.",
    is_read=True, errors=_NOT_FOUND,
)

# --- Extended: reconciliation ---

ADD_ORGANIZATIONS = Operation(
    "add_organizations", "Add Organizations", "/v2/organizations/add",
    org.AddOrganizationsRequest, ITEMS, "Adds organizations.",
    tier=_EXT, items_field="organizations", counterpart="update_organizations",
)
UPDATE_ORGANIZATIONS = Operation(
    "update_organizations", "Update Organizations", "/v2/organizations/update",
    org.UpdateOrganizationsRequest, ITEMS, "Updates the metadata of organizations.",
    tier=_EXT, items_field="organizations", counterpart="add_organizations",
)
DELETE_ORGANIZATIONS = Operation(
    "delete_organizations", "Delete Organizations", "/v2/organizations/delete",
    org.DeleteOrganizationsRequest, ITEMS, "Deletes organizations with everything in them.",
    tier=_EXT, items_field="organizationIds", probed_by="update_organizations",
)
DISABLE_ORGANIZATIONS = Operation(
    "disable_organizations", "Disable Organizations", "/v2/organizations/access/disablestate/update",
    org.DisableOrganizationsRequest, ITEMS, "Disables organizations, or enables them again.",
    tier=_EXT, items_field="organizationIds", probe={"disabled": False},
)
GET_FOLDERS = Operation(
    "get_folders", "Get Folders", "/v2/organizations/folders/get",
    fol.GetFoldersRequest, TypeAdapter(list[fol.Folder]), "Reads the folder tree, or a part of it.",
    tier=_EXT, is_read=True, probe={"maxDepth": 0}, errors=_NOT_FOUND,
)
DELETE_FOLDER = Operation(
    "delete_folder", "Delete Folder", "/v2/organizations/folders/delete",
    fol.DeleteFolderRequest, NOTHING, "Deletes a folder with its documents and subfolders.",
    tier=_EXT, probed_by="get_folders", errors=_NOT_FOUND,
)
UPDATE_FOLDER_ACCESS = Operation(
    "update_folder_access", "Update Folder Access", "/v2/organizations/folders/access/update",
    fol.UpdateFolderAccessRequest, ITEMS, "Sets the access type of folders, or makes them inherit it.",
    tier=_EXT, items_field="folderIds", probe={"inheritFromParent": True}, errors=_NOT_FOUND,
)
ADD_DOCUMENTS = Operation(
    "add_documents", "Add Documents", "/v2/organizations/documents/add",
    doc.AddDocumentsRequest, ITEMS, "Adds documents, in a folder or at the top of the tree.",
    tier=_EXT, items_field="documents", counterpart="update_documents", errors=_NOT_FOUND,
)
UPDATE_DOCUMENTS = Operation(
    "update_documents", "Update Documents", "/v2/organizations/documents/update",
    doc.UpdateDocumentsRequest, ITEMS, "Updates the metadata of documents.",
    tier=_EXT, items_field="documents", counterpart="add_documents", errors=_NOT_FOUND,
)
GET_DOCUMENTS = Operation(
    "get_documents", "Get Documents", "/v2/organizations/documents/get",
    doc.GetDocumentsRequest, TypeAdapter(list[doc.Document]), "Reads documents by page.",
    tier=_EXT, is_read=True, items_field="documentIds", max_items=limits.IDS_PER_READ, page_token_field="pageToken",
    errors=_NOT_FOUND,
)
MOVE_DOCUMENTS = Operation(
    "move_documents", "Move Documents", "/v2/organizations/documents/move",
    doc.MoveDocumentsRequest, NOTHING, "Moves documents to a folder, or to the top of the tree.",
    tier=_EXT, has_data=False, items_field="documentIds", max_items=limits.MOVE_DOCUMENTS,
    probe={"folderId": fol.ROOT_FOLDER_ID}, errors=_NOT_FOUND,
)
UPDATE_DOCUMENT_ACCESS = Operation(
    "update_document_access", "Update Document Access", "/v2/organizations/documents/access/update",
    doc.UpdateDocumentAccessRequest, ITEMS, "Sets the access type of documents.",
    tier=_EXT, items_field="documentIds", probe={"accessType": "restricted"}, errors=_NOT_FOUND,
)
MIGRATE_DOCUMENTS = Operation(
    "migrate_documents", "Migrate Documents", "/v2/organizations/documents/migrate",
    doc.MigrateDocumentsRequest, TypeAdapter(doc.MigrationStarted), "Starts to move a document's data to another id.",
    tier=_EXT, is_repeatable=False, errors=(Status.NOT_FOUND, Status.ALREADY_EXISTS),
)
ADD_GROUPS = Operation(
    "add_groups", "Add Groups", "/v2/organizations/usergroups/add",
    grp.AddGroupsRequest, ITEMS, "Adds user groups.",
    tier=_EXT, items_field="organizationUserGroups", errors=_NOT_FOUND,
)
ADD_PERMISSIONS = Operation(
    "add_permissions", "Add Permissions", "/v2/auth/permissions/add",
    prm.AddPermissionsRequest, NOTHING, "Grants a user access to resources, permanently or temporarily.",
    tier=_EXT, has_data=False, errors=_NOT_FOUND,
)
GET_PERMISSIONS = Operation(
    "get_permissions", "Get Permissions", "/v2/auth/permissions/get",
    prm.GetPermissionsRequest, TypeAdapter(dict[str, prm.UserPermissions]),
    "Reports the permissions of users. Asks the permission provider if one is in use.",
    tier=_EXT, is_read=True, items_field="userIds",
)
REMOVE_PERMISSIONS = Operation(
    "remove_permissions", "Remove Permissions", "/v2/auth/permissions/remove",
    prm.RemovePermissionsRequest, NOTHING, "Removes a user's permissions on resources.",
    tier=_EXT, has_data=False, errors=_NOT_FOUND,
)
GENERATE_SIGNATURE = Operation(
    "generate_signature", "Generate Signature", "/v2/auth/generate_signature",
    prm.GenerateSignatureRequest, TypeAdapter(prm.Signature),
    "Signs the results of a permission-provider response.",
    tier=_EXT, is_read=True,
)
UPDATE_PERMISSION_PROVIDER_CONFIG = Operation(
    "update_permission_provider_config", "Update Permission Provider Config",
    "/v2/workspace/permissionproviderconfig/update",
    prm.UpdatePermissionProviderConfigRequest, TypeAdapter(prm.PermissionProviderConfig),
    "Configures the permission provider.",
    tier=_EXT,
)
GENERATE_TOKEN_V2 = Operation(
    "generate_token_v2", "Generate Token (v2)", "/v2/auth/generate_token",
    tokens.GenerateTokenV2Request, TypeAdapter(tokens.GeneratedToken),
    "Creates a JWT for a client and grants its user permissions.",
    tier=_EXT, errors=_NOT_FOUND,
)

# --- Extended: workspace ---

GET_WORKSPACE = Operation(
    "get_workspace", "Get Workspace", "/v2/workspace/get",
    NoParameters, TypeAdapter(workspace.Workspace), "Reads the workspace with its API keys.",
    auth=AuthLevel.W, tier=_EXT, is_read=True,
)
GET_AUTH_TOKENS = Operation(
    "get_auth_tokens", "Get Auth Tokens", "/v2/workspace/authtokens/get",
    tokens.GetAuthTokensRequest, TypeAdapter(tokens.AuthTokens), "Reads the auth tokens of an API key.",
    auth=AuthLevel.W, tier=_EXT, is_read=True, errors=_NOT_FOUND,
)
CREATE_API_KEY = Operation(
    "create_api_key", "Create API Key", "/v2/workspace/apikey/create",
    workspace.CreateApiKeyRequest, TypeAdapter(workspace.CreatedApiKey), "Creates another API key in the workspace.",
    auth=AuthLevel.W, tier=_EXT, is_repeatable=False,
)
ADD_DOMAINS = Operation(
    "add_domains", "Add Domains", "/v2/workspace/domains/add",
    workspace.AddDomainsRequest, TypeAdapter(workspace.AddedDomains), "Allows further domains to use the API key.",
    tier=_EXT, items_field="domains", max_items=limits.DOMAINS_PER_CALL,
)
UPDATE_EMAIL_CONFIG = Operation(
    "update_email_config", "Update Email Config", "/v2/workspace/emailconfig/update",
    workspace.UpdateEmailConfigRequest, TypeAdapter(workspace.EmailConfig), "Configures notification emails.",
    tier=_EXT,
)
UPDATE_ADVANCED_WEBHOOK_CONFIG = Operation(
    "update_advanced_webhook_config", "Update Advanced Webhook Config",
    "/v2/workspace/advancedwebhookconfig/update",
    whk.UpdateAdvancedWebhookConfigRequest, TypeAdapter(whk.AdvancedWebhookConfig),
    "Configures advanced webhooks; the first call enables them.",
    tier=_EXT, errors=_PRECONDITION,
)
LIST_ADVANCED_WEBHOOK_ENDPOINTS = Operation(
    "list_advanced_webhook_endpoints", "List Advanced Webhook Endpoints",
    "/v2/workspace/advancedwebhook/endpoints/get",
    whk.ListEndpointsRequest, TypeAdapter(whk.EndpointList), "Reads webhook endpoints by page.",
    tier=_EXT, is_read=True, errors=_PRECONDITION,
)
UPDATE_ADVANCED_WEBHOOK_ENDPOINT = Operation(
    "update_advanced_webhook_endpoint", "Update Advanced Webhook Endpoint",
    "/v2/workspace/advancedwebhook/endpoints/update",
    whk.UpdateEndpointRequest, TypeAdapter(whk.Endpoint), "Changes a webhook endpoint.",
    tier=_EXT, errors=(Status.NOT_FOUND, Status.FAILED_PRECONDITION, Status.ALREADY_EXISTS),
)
DELETE_ADVANCED_WEBHOOK_ENDPOINT = Operation(
    "delete_advanced_webhook_endpoint", "Delete Advanced Webhook Endpoint",
    "/v2/workspace/advancedwebhook/endpoints/delete",
    whk.DeleteEndpointRequest, TypeAdapter(whk.DeletedEndpoint), "Deletes a webhook endpoint.",
    tier=_EXT, errors=(Status.NOT_FOUND, Status.FAILED_PRECONDITION),
)

# --- Extended: feature data ---

ADD_COMMENT_ANNOTATIONS = Operation(
    "add_comment_annotations", "Add Comment Annotations", "/v2/commentannotations/add",
    com.AddCommentAnnotationsRequest, ITEMS, "Adds comment threads to a document.",
    tier=_EXT, is_repeatable=False, items_field="commentAnnotations", errors=_NOT_FOUND,
)
GET_COMMENT_ANNOTATIONS = Operation(
    "get_comment_annotations", "Get Comment Annotations", "/v2/commentannotations/get",
    com.GetCommentAnnotationsRequest, TypeAdapter(list[com.CommentAnnotation]), "Reads comment threads by page.",
    tier=_EXT, is_read=True, page_token_field="nextPageToken",
)
UPDATE_COMMENT_ANNOTATIONS = Operation(
    "update_comment_annotations", "Update Comment Annotations", "/v2/commentannotations/update",
    com.UpdateCommentAnnotationsRequest, ITEMS, "Changes comment threads.",
    tier=_EXT, items_field="annotationIds", errors=_NOT_FOUND,
)
DELETE_COMMENT_ANNOTATIONS = Operation(
    "delete_comment_annotations", "Delete Comment Annotations", "/v2/commentannotations/delete",
    com.DeleteCommentAnnotationsRequest, ITEMS, "Deletes comment threads.",
    tier=_EXT, items_field="annotationIds", errors=_NOT_FOUND,
)
ADD_COMMENTS = Operation(
    "add_comments", "Add Comments", "/v2/commentannotations/comments/add",
    com.AddCommentsRequest, ITEMS, "Adds comments to a thread.",
    tier=_EXT, is_repeatable=False, items_field="commentData", errors=_NOT_FOUND,
)
GET_COMMENTS = Operation(
    "get_comments", "Get Comments", "/v2/commentannotations/comments/get",
    com.GetCommentsRequest, TypeAdapter(list[com.Comment]), "Reads the comments of a thread by page.",
    tier=_EXT, is_read=True, page_token_field="nextPageToken", errors=_NOT_FOUND,
)
UPDATE_COMMENTS = Operation(
    "update_comments", "Update Comments", "/v2/commentannotations/comments/update",
    com.UpdateCommentsRequest, ITEMS, "Changes comments.",
    tier=_EXT, items_field="commentIds", errors=_NOT_FOUND,
)
DELETE_COMMENTS = Operation(
    "delete_comments", "Delete Comments", "/v2/commentannotations/comments/delete",
    com.DeleteCommentsRequest, ITEMS, "Deletes comments of a thread.",
    tier=_EXT, items_field="commentIds", errors=_NOT_FOUND,
)
ADD_ACTIVITIES = Operation(
    "add_activities", "Add Activities", "/v2/activities/add",
    act.AddActivitiesRequest, ITEMS, "Adds activity records; one whose id exists already is replaced.",
    tier=_EXT, items_field="activities", errors=_NOT_FOUND,
)
ADD_NOTIFICATIONS = Operation(
    "add_notifications", "Add Notifications", "/v2/notifications/add",
    ntf.AddNotificationsRequest, ITEMS, "Notifies users about something in a document.",
    tier=_EXT, is_repeatable=False, errors=(Status.NOT_FOUND, Status.ALREADY_EXISTS),
)
GET_NOTIFICATIONS = Operation(
    "get_notifications", "Get Notifications", "/v2/notifications/get",
    ntf.GetNotificationsRequest, TypeAdapter(list[ntf.Notification]), "Reads notifications by page.",
    tier=_EXT, is_read=True, page_token_field="nextPageToken",
)
GET_CRDT_DATA = Operation(
    "get_crdt_data", "Get CRDT Data", "/v2/crdt/get",
    crdt.GetCrdtDataRequest, TypeAdapter(list[crdt.CrdtData]), "Reads the content of a document's editors.",
    tier=_EXT, is_read=True, errors=_NOT_FOUND,
)
UPDATE_CRDT_DATA = Operation(
    "update_crdt_data", "Update CRDT Data", "/v2/crdt/update",
    crdt.UpdateCrdtDataRequest, NOTHING, "Replaces the content of an editor.",
    tier=_EXT, has_data=False, errors=_NOT_FOUND,
)
QUERY_JUDGMENTS = Operation(
    "query_judgments", "Query Judgments", "/v2/memory/judgments/query",
    judgments.QueryJudgmentsRequest, TypeAdapter(list[judgments.Judgment]),
    "Finds review decisions by their metadata, newest first.",
    tier=_EXT, is_read=True,
)

# fmt: on

OPERATIONS: tuple[AnyOperation, ...] = tuple(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, Operation)
)
"""Every operation, in the order above."""

_BY_NAME: Mapping[str, AnyOperation] = MappingProxyType({op.name: op for op in OPERATIONS})


def by_name(name: str) -> AnyOperation:
    """The operation of that name. Raises ``KeyError``."""
    return _BY_NAME[name]
