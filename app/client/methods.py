"""One typed method per operation of the backend.

Generated from the table in ``app/contract/operations.py`` by ``python -m app.client.generate``: change the table, not
this file.
"""

from abc import ABC, abstractmethod
from typing import TypeVar

from app.contract import operations
from app.contract.activities import Activity, AddActivitiesRequest, GetActivityLogsRequest
from app.contract.advanced_webhooks import (
    AdvancedWebhookConfig,
    CreateEndpointRequest,
    DeletedEndpoint,
    DeleteEndpointRequest,
    Endpoint,
    EndpointList,
    EndpointSecret,
    GetEndpointSecretRequest,
    ListEndpointsRequest,
    UpdateAdvancedWebhookConfigRequest,
    UpdateEndpointRequest,
)
from app.contract.base import ItemResult, NoParameters, Request
from app.contract.comments import (
    AddCommentAnnotationsRequest,
    AddCommentsRequest,
    Comment,
    CommentAnnotation,
    DeleteCommentAnnotationsRequest,
    DeleteCommentsRequest,
    GetCommentAnnotationsRequest,
    GetCommentsRequest,
    UpdateCommentAnnotationsRequest,
    UpdateCommentsRequest,
)
from app.contract.crdt import AddCrdtDataRequest, CrdtData, GetCrdtDataRequest, UpdateCrdtDataRequest
from app.contract.documents import (
    AddDocumentsRequest,
    DeleteDocumentsRequest,
    Document,
    GetDocumentsRequest,
    MigrateDocumentsRequest,
    MigrateDocumentsStatusRequest,
    MigrationStarted,
    MigrationStatus,
    MoveDocumentsRequest,
    UpdateDocumentAccessRequest,
    UpdateDocumentsRequest,
)
from app.contract.envelope import Answer
from app.contract.folders import (
    AddFolderRequest,
    DeleteFolderRequest,
    Folder,
    GetFoldersRequest,
    UpdateFolderAccessRequest,
    UpdateFolderRequest,
)
from app.contract.groups import AddGroupsRequest, AddUsersToGroupsRequest, DeleteUsersFromGroupsRequest
from app.contract.judgments import Judgment, JudgmentSearch, QueryJudgmentsRequest, SearchJudgmentsRequest
from app.contract.notifications import (
    AddNotificationsRequest,
    GetNotificationsRequest,
    Notification,
    UpdateNotificationsRequest,
)
from app.contract.operation import Operation
from app.contract.organizations import (
    AddOrganizationsRequest,
    DeleteOrganizationsRequest,
    DisableOrganizationsRequest,
    GetOrganizationsRequest,
    GetOrganizationsV1Request,
    Organization,
    UpdateOrganizationsRequest,
)
from app.contract.permissions import (
    AddPermissionsRequest,
    GenerateSignatureRequest,
    GetPermissionsRequest,
    PermissionProviderConfig,
    RemovePermissionsRequest,
    Signature,
    UpdatePermissionProviderConfigRequest,
    UserPermissions,
)
from app.contract.tokens import (
    AuthTokens,
    GeneratedToken,
    GenerateTokenRequest,
    GenerateTokenV2Request,
    GetAuthTokensRequest,
    ResetAuthTokenRequest,
    ResetAuthTokenResult,
)
from app.contract.userdata import GetAllUserDataRequest, UserData
from app.contract.users import AddUsersRequest, DeleteUsersRequest, GetUsersRequest, UpdateUsersRequest, User
from app.contract.webhooks import UpdateWebhookConfigRequest, WebhookConfig
from app.contract.workspace import (
    AddDomainsRequest,
    AddedDomains,
    CreateApiKeyRequest,
    CreatedApiKey,
    CreateWorkspaceRequest,
    EmailConfig,
    UpdateEmailConfigRequest,
    Workspace,
)

RequestT = TypeVar("RequestT", bound=Request)
ResultT = TypeVar("ResultT")


class OperationMethods(ABC):
    """The methods; whoever inherits from it provides ``call``. ``twin`` uses the path under the other version of the
    API."""

    @abstractmethod
    def call(
        self, operation: Operation[RequestT, ResultT], request: RequestT, *, twin: bool = False
    ) -> Answer[ResultT]:
        """One call of the backend. Raises ``ClientError``."""

    def generate_token(self, request: GenerateTokenRequest) -> Answer[GeneratedToken]:
        """Generate Token: makes a JWT with which a client signs its user in. It is valid for 48 hours."""
        return self.call(operations.GENERATE_TOKEN, request)

    def reset_auth_token(self, request: ResetAuthTokenRequest) -> Answer[ResetAuthTokenResult]:
        """Reset Auth Token: replaces the auth token of an API key."""
        return self.call(operations.RESET_AUTH_TOKEN, request)

    def get_organizations_v1(self, request: GetOrganizationsV1Request) -> Answer[list[Organization]]:
        """Get Organizations (v1): reads all organizations, or at most 30 by id."""
        return self.call(operations.GET_ORGANIZATIONS_V1, request)

    def get_organizations(self, request: GetOrganizationsRequest) -> Answer[list[Organization]]:
        """Get Organizations (v2): reads organizations by page."""
        return self.call(operations.GET_ORGANIZATIONS, request)

    def add_users(self, request: AddUsersRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Add Users: adds users to an organization, a folder or a document."""
        return self.call(operations.ADD_USERS, request, twin=twin)

    def update_users(self, request: UpdateUsersRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Update Users: updates the metadata and role of users of an organization, a folder or a document."""
        return self.call(operations.UPDATE_USERS, request, twin=twin)

    def delete_documents(self, request: DeleteDocumentsRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Delete Documents: deletes documents. One that is missing already counts as deleted."""
        return self.call(operations.DELETE_DOCUMENTS, request, twin=twin)

    def create_advanced_webhook_endpoint(self, request: CreateEndpointRequest) -> Answer[Endpoint]:
        """Create Advanced Webhook Endpoint: makes a webhook endpoint with a signing secret of its own."""
        return self.call(operations.CREATE_ADVANCED_WEBHOOK_ENDPOINT, request)

    def get_advanced_webhook_endpoint_secret(self, request: GetEndpointSecretRequest) -> Answer[EndpointSecret]:
        """Get Advanced Webhook Endpoint Secret: reads the signing secret of a webhook endpoint."""
        return self.call(operations.GET_ADVANCED_WEBHOOK_ENDPOINT_SECRET, request)

    def get_activity_logs(self, request: GetActivityLogsRequest, *, twin: bool = False) -> Answer[list[Activity]]:
        """Get Activity Logs: reads activity records by page."""
        return self.call(operations.GET_ACTIVITY_LOGS, request, twin=twin)

    def create_workspace(self, request: CreateWorkspaceRequest) -> Answer[Workspace]:
        """Create Workspace: makes a workspace with an API key. Public, limited by IP address."""
        return self.call(operations.CREATE_WORKSPACE, request)

    def search_judgments(self, request: SearchJudgmentsRequest, *, twin: bool = False) -> Answer[JudgmentSearch]:
        """Search Judgments: finds review decisions by meaning."""
        return self.call(operations.SEARCH_JUDGMENTS, request, twin=twin)

    def get_advanced_webhook_config(self) -> Answer[AdvancedWebhookConfig]:
        """Get Advanced Webhook Config: reads the configuration of advanced webhooks."""
        return self.call(operations.GET_ADVANCED_WEBHOOK_CONFIG, NoParameters())

    def add_crdt_data(self, request: AddCrdtDataRequest, *, twin: bool = False) -> Answer[None]:
        """Add CRDT Data: gives an editor its first content."""
        return self.call(operations.ADD_CRDT_DATA, request, twin=twin)

    def delete_users_from_groups(
        self, request: DeleteUsersFromGroupsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Delete Users from Groups: takes users out of a group."""
        return self.call(operations.DELETE_USERS_FROM_GROUPS, request, twin=twin)

    def add_users_to_groups(
        self, request: AddUsersToGroupsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Add Users to Groups: puts users into a group."""
        return self.call(operations.ADD_USERS_TO_GROUPS, request, twin=twin)

    def get_permission_provider_config(self) -> Answer[PermissionProviderConfig]:
        """Get Permission Provider Config: reads where permission questions go."""
        return self.call(operations.GET_PERMISSION_PROVIDER_CONFIG, NoParameters())

    def get_users(self, request: GetUsersRequest, *, twin: bool = False) -> Answer[list[User] | dict[str, list[User]]]:
        """Get Users: reads the users of an organization, a folder, a document or all documents, by page."""
        return self.call(operations.GET_USERS, request, twin=twin)

    def get_all_user_data(self, request: GetAllUserDataRequest, *, twin: bool = False) -> Answer[UserData]:
        """Get All User Data: reads everything that a user made or takes part in, by page."""
        return self.call(operations.GET_ALL_USER_DATA, request, twin=twin)

    def delete_users(self, request: DeleteUsersRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Delete Users: removes users from an organization with all that is in it, from a folder or from a document."""
        return self.call(operations.DELETE_USERS, request, twin=twin)

    def update_folder(self, request: UpdateFolderRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Update Folder: renames and moves folders."""
        return self.call(operations.UPDATE_FOLDER, request, twin=twin)

    def add_folder(self, request: AddFolderRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Add Folder: adds folders."""
        return self.call(operations.ADD_FOLDER, request, twin=twin)

    def update_webhook_config(self, request: UpdateWebhookConfigRequest) -> Answer[WebhookConfig]:
        """Update Webhook Config: configures basic webhooks."""
        return self.call(operations.UPDATE_WEBHOOK_CONFIG, request)

    def get_webhook_config(self) -> Answer[WebhookConfig]:
        """Get Webhook Config: reads the configuration of basic webhooks."""
        return self.call(operations.GET_WEBHOOK_CONFIG, NoParameters())

    def update_notifications(
        self, request: UpdateNotificationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Update Notifications: changes notifications and marks them as read."""
        return self.call(operations.UPDATE_NOTIFICATIONS, request, twin=twin)

    def migrate_documents_status(
        self, request: MigrateDocumentsStatusRequest, *, twin: bool = False
    ) -> Answer[MigrationStatus]:
        """Migrate Documents Status: reports the progress of a migration."""
        return self.call(operations.MIGRATE_DOCUMENTS_STATUS, request, twin=twin)

    def add_organizations(
        self, request: AddOrganizationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Add Organizations: adds organizations."""
        return self.call(operations.ADD_ORGANIZATIONS, request, twin=twin)

    def update_organizations(
        self, request: UpdateOrganizationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Update Organizations: updates the metadata of organizations."""
        return self.call(operations.UPDATE_ORGANIZATIONS, request, twin=twin)

    def delete_organizations(
        self, request: DeleteOrganizationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Delete Organizations: deletes organizations with everything in them."""
        return self.call(operations.DELETE_ORGANIZATIONS, request, twin=twin)

    def disable_organizations(
        self, request: DisableOrganizationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Disable Organizations: disables organizations, or enables them again."""
        return self.call(operations.DISABLE_ORGANIZATIONS, request, twin=twin)

    def get_folders(self, request: GetFoldersRequest, *, twin: bool = False) -> Answer[list[Folder]]:
        """Get Folders: reads the folder tree, or a part of it."""
        return self.call(operations.GET_FOLDERS, request, twin=twin)

    def delete_folder(self, request: DeleteFolderRequest, *, twin: bool = False) -> Answer[None]:
        """Delete Folder: deletes a folder with its documents and subfolders."""
        return self.call(operations.DELETE_FOLDER, request, twin=twin)

    def update_folder_access(
        self, request: UpdateFolderAccessRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Update Folder Access: sets the access type of folders, or lets them inherit."""
        return self.call(operations.UPDATE_FOLDER_ACCESS, request, twin=twin)

    def add_documents(self, request: AddDocumentsRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Add Documents: adds documents, in a folder or at the top of the tree."""
        return self.call(operations.ADD_DOCUMENTS, request, twin=twin)

    def update_documents(self, request: UpdateDocumentsRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Update Documents: updates the metadata of documents."""
        return self.call(operations.UPDATE_DOCUMENTS, request, twin=twin)

    def get_documents(self, request: GetDocumentsRequest, *, twin: bool = False) -> Answer[list[Document]]:
        """Get Documents: reads documents by page."""
        return self.call(operations.GET_DOCUMENTS, request, twin=twin)

    def move_documents(self, request: MoveDocumentsRequest, *, twin: bool = False) -> Answer[None]:
        """Move Documents: moves documents to a folder, or to the top of the tree."""
        return self.call(operations.MOVE_DOCUMENTS, request, twin=twin)

    def update_document_access(
        self, request: UpdateDocumentAccessRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Update Document Access: sets the access type of documents."""
        return self.call(operations.UPDATE_DOCUMENT_ACCESS, request, twin=twin)

    def migrate_documents(self, request: MigrateDocumentsRequest, *, twin: bool = False) -> Answer[MigrationStarted]:
        """Migrate Documents: starts to move a document's data to another id."""
        return self.call(operations.MIGRATE_DOCUMENTS, request, twin=twin)

    def add_groups(self, request: AddGroupsRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Add Groups: adds user groups."""
        return self.call(operations.ADD_GROUPS, request, twin=twin)

    def add_permissions(self, request: AddPermissionsRequest) -> Answer[None]:
        """Add Permissions: gives a user access to resources, permanently or for a time."""
        return self.call(operations.ADD_PERMISSIONS, request)

    def get_permissions(self, request: GetPermissionsRequest) -> Answer[dict[str, UserPermissions]]:
        """Get Permissions: reports what users may do; asks the permission provider when one is in use."""
        return self.call(operations.GET_PERMISSIONS, request)

    def remove_permissions(self, request: RemovePermissionsRequest) -> Answer[None]:
        """Remove Permissions: takes away a user's permissions on resources."""
        return self.call(operations.REMOVE_PERMISSIONS, request)

    def generate_signature(self, request: GenerateSignatureRequest) -> Answer[Signature]:
        """Generate Signature: signs the results of a permission-provider answer that travels through a browser."""
        return self.call(operations.GENERATE_SIGNATURE, request)

    def update_permission_provider_config(
        self, request: UpdatePermissionProviderConfigRequest
    ) -> Answer[PermissionProviderConfig]:
        """Update Permission Provider Config: configures where permission questions go."""
        return self.call(operations.UPDATE_PERMISSION_PROVIDER_CONFIG, request)

    def generate_token_v2(self, request: GenerateTokenV2Request) -> Answer[GeneratedToken]:
        """Generate Token (v2): makes a JWT for a client and gives its user permissions."""
        return self.call(operations.GENERATE_TOKEN_V2, request)

    def get_workspace(self) -> Answer[Workspace]:
        """Get Workspace: reads the workspace with its API keys."""
        return self.call(operations.GET_WORKSPACE, NoParameters())

    def get_auth_tokens(self, request: GetAuthTokensRequest) -> Answer[AuthTokens]:
        """Get Auth Tokens: reads the auth tokens of an API key."""
        return self.call(operations.GET_AUTH_TOKENS, request)

    def create_api_key(self, request: CreateApiKeyRequest) -> Answer[CreatedApiKey]:
        """Create API Key: makes another API key in the workspace."""
        return self.call(operations.CREATE_API_KEY, request)

    def add_domains(self, request: AddDomainsRequest) -> Answer[AddedDomains]:
        """Add Domains: allows further domains to use the API key."""
        return self.call(operations.ADD_DOMAINS, request)

    def update_email_config(self, request: UpdateEmailConfigRequest) -> Answer[EmailConfig]:
        """Update Email Config: configures notification emails."""
        return self.call(operations.UPDATE_EMAIL_CONFIG, request)

    def update_advanced_webhook_config(
        self, request: UpdateAdvancedWebhookConfigRequest
    ) -> Answer[AdvancedWebhookConfig]:
        """Update Advanced Webhook Config: configures advanced webhooks; the first call enables them."""
        return self.call(operations.UPDATE_ADVANCED_WEBHOOK_CONFIG, request)

    def list_advanced_webhook_endpoints(self, request: ListEndpointsRequest) -> Answer[EndpointList]:
        """List Advanced Webhook Endpoints: reads webhook endpoints by page."""
        return self.call(operations.LIST_ADVANCED_WEBHOOK_ENDPOINTS, request)

    def update_advanced_webhook_endpoint(self, request: UpdateEndpointRequest) -> Answer[Endpoint]:
        """Update Advanced Webhook Endpoint: changes a webhook endpoint."""
        return self.call(operations.UPDATE_ADVANCED_WEBHOOK_ENDPOINT, request)

    def delete_advanced_webhook_endpoint(self, request: DeleteEndpointRequest) -> Answer[DeletedEndpoint]:
        """Delete Advanced Webhook Endpoint: deletes a webhook endpoint."""
        return self.call(operations.DELETE_ADVANCED_WEBHOOK_ENDPOINT, request)

    def add_comment_annotations(
        self, request: AddCommentAnnotationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Add Comment Annotations: adds comment threads to a document."""
        return self.call(operations.ADD_COMMENT_ANNOTATIONS, request, twin=twin)

    def get_comment_annotations(
        self, request: GetCommentAnnotationsRequest, *, twin: bool = False
    ) -> Answer[list[CommentAnnotation]]:
        """Get Comment Annotations: reads comment threads by page."""
        return self.call(operations.GET_COMMENT_ANNOTATIONS, request, twin=twin)

    def update_comment_annotations(
        self, request: UpdateCommentAnnotationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Update Comment Annotations: changes comment threads."""
        return self.call(operations.UPDATE_COMMENT_ANNOTATIONS, request, twin=twin)

    def delete_comment_annotations(
        self, request: DeleteCommentAnnotationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Delete Comment Annotations: deletes comment threads."""
        return self.call(operations.DELETE_COMMENT_ANNOTATIONS, request, twin=twin)

    def add_comments(self, request: AddCommentsRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Add Comments: adds comments to a thread."""
        return self.call(operations.ADD_COMMENTS, request, twin=twin)

    def get_comments(self, request: GetCommentsRequest, *, twin: bool = False) -> Answer[list[Comment]]:
        """Get Comments: reads the comments of a thread by page."""
        return self.call(operations.GET_COMMENTS, request, twin=twin)

    def update_comments(self, request: UpdateCommentsRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Update Comments: changes comments."""
        return self.call(operations.UPDATE_COMMENTS, request, twin=twin)

    def delete_comments(self, request: DeleteCommentsRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Delete Comments: deletes comments of a thread."""
        return self.call(operations.DELETE_COMMENTS, request, twin=twin)

    def add_activities(self, request: AddActivitiesRequest, *, twin: bool = False) -> Answer[dict[str, ItemResult]]:
        """Add Activities: adds activity records; one whose id exists already is replaced."""
        return self.call(operations.ADD_ACTIVITIES, request, twin=twin)

    def add_notifications(
        self, request: AddNotificationsRequest, *, twin: bool = False
    ) -> Answer[dict[str, ItemResult]]:
        """Add Notifications: notifies users about something in a document."""
        return self.call(operations.ADD_NOTIFICATIONS, request, twin=twin)

    def get_notifications(self, request: GetNotificationsRequest, *, twin: bool = False) -> Answer[list[Notification]]:
        """Get Notifications: reads notifications by page."""
        return self.call(operations.GET_NOTIFICATIONS, request, twin=twin)

    def get_crdt_data(self, request: GetCrdtDataRequest, *, twin: bool = False) -> Answer[list[CrdtData]]:
        """Get CRDT Data: reads the content of a document's editors."""
        return self.call(operations.GET_CRDT_DATA, request, twin=twin)

    def update_crdt_data(self, request: UpdateCrdtDataRequest, *, twin: bool = False) -> Answer[None]:
        """Update CRDT Data: replaces the content of an editor."""
        return self.call(operations.UPDATE_CRDT_DATA, request, twin=twin)

    def query_judgments(self, request: QueryJudgmentsRequest, *, twin: bool = False) -> Answer[list[Judgment]]:
        """Query Judgments: finds review decisions by their metadata, newest first."""
        return self.call(operations.QUERY_JUDGMENTS, request, twin=twin)
