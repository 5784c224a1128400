"""All tables of the backend's database, as SQLAlchemy Core tables, and the ``METADATA`` for migrations.

Each stands with its room; this gathers them for whoever needs all.
"""

from app.backend.collaboration.tables import (
    ACTIVITY,
    COMMENT,
    COMMENT_ANNOTATION,
    NOTIFICATION,
    NOTIFICATION_USER,
    REACTION,
    RECORDING,
    THREAD_USER,
)
from app.backend.document_migrations.tables import DOCUMENT_MIGRATION
from app.backend.editor.tables import EDITOR_DATA
from app.backend.judgments.tables import JUDGMENT, JUDGMENT_STATE, JUDGMENT_VECTOR
from app.backend.permissions.tables import PROVIDER_CONFIG
from app.backend.resources.tables import (
    DOCUMENT,
    FOLDER,
    GROUP_MEMBER,
    ORGANIZATION,
    REMOVED_USER,
    USER_ENTRY,
    USER_GROUP,
)
from app.backend.security.tables import API_KEY, AUTH_TOKEN, KEY_CHECK, WORKSPACE
from app.backend.storage.base import METADATA
from app.backend.tokens.tables import SIGNING_KEY
from app.backend.webhooks.tables import (
    ADVANCED_WEBHOOK_CONFIG,
    WEBHOOK_ATTEMPT,
    WEBHOOK_CONFIG,
    WEBHOOK_DELIVERY,
    WEBHOOK_ENDPOINT,
    WEBHOOK_MESSAGE,
    WEBHOOK_QUEUE,
)
from app.backend.workspaces.tables import EMAIL_CONFIG, OWNER, WORKSPACE_ATTEMPT

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
    "WEBHOOK_MESSAGE",
    "WEBHOOK_QUEUE",
    "WORKSPACE",
    "WORKSPACE_ATTEMPT",
]
