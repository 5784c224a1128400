"""The operations, a module per resource."""

from app.backend.handlers import (
    activities,
    advanced_webhooks,
    comment_annotations,
    comments,
    crdt,
    documents,
    domains,
    email_config,
    folders,
    groups,
    judgments,
    migrations,
    notifications,
    organizations,
    permissions,
    provider_config,
    tokens,
    user_data,
    users,
    webhooks,
    workspaces,
)
from app.backend.registry import Registry


def all_handlers() -> Registry:
    """A registry with every operation that is built."""
    registry = Registry()
    for module in (
        workspaces,
        organizations,
        folders,
        documents,
        users,
        groups,
        provider_config,
        permissions,
        crdt,
        judgments,
        activities,
        notifications,
        comment_annotations,
        comments,
        user_data,
        tokens,
        domains,
        email_config,
        migrations,
        webhooks,
        advanced_webhooks,
    ):
        module.register(registry)
    return registry
