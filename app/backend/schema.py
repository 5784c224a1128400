"""``METADATA``: all tables of the backend's database. Each package declares its own."""

from app.backend.collaboration import tables as collaboration
from app.backend.document_migrations import tables as document_migrations
from app.backend.editor import tables as editor
from app.backend.judgments import tables as judgments
from app.backend.permissions import tables as permissions
from app.backend.resources import tables as resources
from app.backend.security import tables as security
from app.backend.storage import base
from app.backend.tokens import tables as tokens
from app.backend.webhooks import tables as webhooks
from app.backend.workspaces import tables as workspaces

_TABLES = (
    collaboration,
    document_migrations,
    editor,
    judgments,
    permissions,
    resources,
    security,
    tokens,
    webhooks,
    workspaces,
)
"""Importing these modules declares their tables."""

METADATA = base.METADATA
