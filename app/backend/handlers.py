"""The operations, a module per resource."""

from app.backend.collaboration import (
    activity_handlers,
    comment_annotation_handlers,
    comment_handlers,
    notification_handlers,
    user_data,
)
from app.backend.document_migrations import migration_handlers
from app.backend.editor import crdt_handlers
from app.backend.http.registry import Registry
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


def all_handlers(search: JudgmentSearcher) -> Registry:
    """A registry with every operation that is built; ``search`` answers those that look for judgments."""
    registry = Registry()
    workspace_handlers.register(registry)
    organization_handlers.register(registry)
    folder_handlers.register(registry)
    document_handlers.register(registry)
    user_handlers.register(registry)
    group_handlers.register(registry)
    provider_config.register(registry)
    permission_handlers.register(registry)
    crdt_handlers.register(registry)
    judgment_handlers.register(registry, search)
    activity_handlers.register(registry)
    notification_handlers.register(registry)
    comment_annotation_handlers.register(registry)
    comment_handlers.register(registry)
    user_data.register(registry)
    token_handlers.register(registry)
    domain_handlers.register(registry)
    email_config_handlers.register(registry)
    migration_handlers.register(registry)
    basic_webhook_handlers.register(registry)
    advanced_webhook_handlers.register(registry)
    return registry
