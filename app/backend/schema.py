"""Which tables does the backend's database have? All of them, as SQLAlchemy Core tables, and the ``METADATA`` for
migrations.
"""

from app.backend import editor_data_tables, migration_tables, resource_tables, signing_tables, workspace_tables
from app.backend.base import METADATA
from app.backend.features import feature_tables
from app.backend.judgments import tables as judgment_tables
from app.backend.webhooks import tables as webhook_tables

__all__ = [
    "ACTIVITY",
    "ADVANCED_WEBHOOK_CONFIG",
    "API_KEY",
    "AUTH_TOKEN",
    "COMMENT",
    "COMMENT_ANNOTATION",
    "DOCUMENT",
    "DOCUMENT_MIGRATION",
    "EDITOR_DATA",
    "EMAIL_CONFIG",
    "FOLDER",
    "GROUP_MEMBER",
    "JUDGMENT",
    "JUDGMENT_STATE",
    "JUDGMENT_VECTOR",
    "KEY_CHECK",
    "METADATA",
    "NOTIFICATION",
    "NOTIFICATION_USER",
    "ORGANIZATION",
    "OWNER",
    "PROVIDER_CONFIG",
    "REACTION",
    "RECORDING",
    "REMOVED_USER",
    "SIGNING_KEY",
    "THREAD_USER",
    "USER_ENTRY",
    "USER_GROUP",
    "WEBHOOK_ATTEMPT",
    "WEBHOOK_CONFIG",
    "WEBHOOK_DELIVERY",
    "WEBHOOK_ENDPOINT",
    "WEBHOOK_LANE",
    "WEBHOOK_MESSAGE",
    "WORKSPACE",
    "WORKSPACE_ATTEMPT",
]


OWNER = METADATA.tables[workspace_tables.OwnerRow.__tablename__]
WORKSPACE = METADATA.tables[workspace_tables.WorkspaceRow.__tablename__]
API_KEY = METADATA.tables[workspace_tables.ApiKeyRow.__tablename__]
AUTH_TOKEN = METADATA.tables[workspace_tables.AuthTokenRow.__tablename__]
PROVIDER_CONFIG = METADATA.tables[workspace_tables.ProviderConfigRow.__tablename__]
EMAIL_CONFIG = METADATA.tables[workspace_tables.EmailConfigRow.__tablename__]
SIGNING_KEY = METADATA.tables[signing_tables.SigningKeyRow.__tablename__]
WORKSPACE_ATTEMPT = METADATA.tables[workspace_tables.WorkspaceAttemptRow.__tablename__]
KEY_CHECK = METADATA.tables[workspace_tables.KeyCheckRow.__tablename__]
ORGANIZATION = METADATA.tables[resource_tables.OrganizationRow.__tablename__]
FOLDER = METADATA.tables[resource_tables.FolderRow.__tablename__]
DOCUMENT = METADATA.tables[resource_tables.DocumentRow.__tablename__]
DOCUMENT_MIGRATION = METADATA.tables[migration_tables.DocumentMigrationRow.__tablename__]
USER_ENTRY = METADATA.tables[resource_tables.UserEntryRow.__tablename__]
USER_GROUP = METADATA.tables[resource_tables.UserGroupRow.__tablename__]
GROUP_MEMBER = METADATA.tables[resource_tables.GroupMemberRow.__tablename__]
EDITOR_DATA = METADATA.tables[editor_data_tables.EditorDataRow.__tablename__]
JUDGMENT = METADATA.tables[judgment_tables.JudgmentRow.__tablename__]
JUDGMENT_VECTOR = METADATA.tables[judgment_tables.JudgmentVectorRow.__tablename__]
JUDGMENT_STATE = METADATA.tables[judgment_tables.JudgmentStateRow.__tablename__]
ACTIVITY = METADATA.tables[feature_tables.ActivityRow.__tablename__]
COMMENT = METADATA.tables[feature_tables.CommentRow.__tablename__]
COMMENT_ANNOTATION = METADATA.tables[feature_tables.CommentAnnotationRow.__tablename__]
NOTIFICATION = METADATA.tables[feature_tables.NotificationRow.__tablename__]
NOTIFICATION_USER = METADATA.tables[feature_tables.NotificationUserRow.__tablename__]
REACTION = METADATA.tables[feature_tables.ReactionRow.__tablename__]
RECORDING = METADATA.tables[feature_tables.RecordingRow.__tablename__]
REMOVED_USER = METADATA.tables[feature_tables.RemovedUserRow.__tablename__]
THREAD_USER = METADATA.tables[feature_tables.ThreadUserRow.__tablename__]
ADVANCED_WEBHOOK_CONFIG = METADATA.tables[webhook_tables.AdvancedWebhookConfigRow.__tablename__]
WEBHOOK_ATTEMPT = METADATA.tables[webhook_tables.WebhookAttemptRow.__tablename__]
WEBHOOK_CONFIG = METADATA.tables[webhook_tables.WebhookConfigRow.__tablename__]
WEBHOOK_DELIVERY = METADATA.tables[webhook_tables.WebhookDeliveryRow.__tablename__]
WEBHOOK_ENDPOINT = METADATA.tables[webhook_tables.WebhookEndpointRow.__tablename__]
WEBHOOK_LANE = METADATA.tables[webhook_tables.WebhookLaneRow.__tablename__]
WEBHOOK_MESSAGE = METADATA.tables[webhook_tables.WebhookMessageRow.__tablename__]
