"""Webhooks: how they are configured, and what is on its way.

A message is one event; a delivery is a message that has to reach one target; an attempt is one try to do so. A target
is an endpoint's id, or one of the two addresses of basic webhooks. All that one target is to get goes through its
queue, in which one worker at a time works. Times are epoch milliseconds, secrets are encrypted (``*_sealed``).
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import METADATA, BackendTable


class WebhookConfigRow(BackendTable, table=True):
    """Basic webhooks of an API key. ``config`` is JSON: what was set, by wire name, without the auth token."""

    __tablename__ = "webhook_config"

    api_key_id: str = Field(primary_key=True)
    in_use: bool
    config: str
    token_sealed: str = ""
    """Empty when there is no token."""
    updated_at: int = Field(sa_type=BigInteger)


class AdvancedWebhookConfigRow(BackendTable, table=True):
    """Advanced webhooks of an API key."""

    __tablename__ = "advanced_webhook_config"

    api_key_id: str = Field(primary_key=True)
    is_enabled: bool
    encrypt_data: bool
    encode_data: bool
    public_key: str
    enable_data_protection: bool
    updated_at: int = Field(sa_type=BigInteger)


class WebhookEndpointRow(BackendTable, table=True):
    """``filter_types``, ``channels`` and ``own_data`` (its ``metadata``) are JSON; null where they were not given."""

    __tablename__ = "webhook_endpoint"
    __table_args__ = (
        Index("ix_webhook_endpoint_order", "api_key_id", "created_at", "endpoint_id"),
        Index("ux_webhook_endpoint_uid", "api_key_id", "uid", unique=True),
    )

    api_key_id: str = Field(primary_key=True)
    endpoint_id: str = Field(primary_key=True)
    url: str
    description: str | None = None
    filter_types: str | None = None
    channels: str | None = None
    disabled: bool = False
    disabled_reason: str = ""
    """Why this server disabled it; empty when it was not this server."""
    rate_limit: int | None = None
    uid: str | None = None
    own_data: str | None = None
    secret_sealed: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class WebhookMessageRow(BackendTable, table=True):
    """One event. ``payload`` is the JSON object from which each target's body is made when it is sent."""

    __tablename__ = "webhook_message"
    __table_args__ = (
        Index("ix_webhook_message_time", "created_at"),
        Index("ix_webhook_message_organization", "api_key_id", "organization_id"),
    )

    api_key_id: str = Field(primary_key=True)
    message_id: str = Field(primary_key=True)
    organization_id: str = ""
    """Where it happened; empty for what is of no organization."""
    type: str
    payload: str
    created_at: int = Field(sa_type=BigInteger)


class WebhookDeliveryRow(BackendTable, table=True):
    """``state`` is ``waiting``, ``delivered`` or ``failed`` (given up). ``number`` keeps the order of what was written
    in the same moment.
    """

    __tablename__ = "webhook_delivery"
    __table_args__ = (Index("ix_webhook_delivery_due", "api_key_id", "target", "due_at", "number"),)

    api_key_id: str = Field(primary_key=True)
    message_id: str = Field(primary_key=True)
    target: str = Field(primary_key=True)
    number: int
    state: str = "waiting"
    due_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it is to be tried next; null once that is over."""
    attempts: int = 0
    first_failed_at: int | None = Field(default=None, sa_type=BigInteger)


class WebhookAttemptRow(BackendTable, table=True):
    """One try. ``status_code`` is null when there was no answer; ``problem`` is empty when it went well."""

    __tablename__ = "webhook_attempt"

    api_key_id: str = Field(primary_key=True)
    message_id: str = Field(primary_key=True)
    target: str = Field(primary_key=True)
    number: int = Field(primary_key=True)
    attempted_at: int = Field(sa_type=BigInteger)
    duration_ms: int
    status_code: int | None = None
    problem: str = ""


class WebhookQueueRow(BackendTable, table=True):
    """The way to one target. A worker may take it when ``due_at`` and ``not_before`` have both come."""

    __tablename__ = "webhook_lane"
    __table_args__ = (Index("ix_webhook_lane_due", "due_at", "not_before"),)

    api_key_id: str = Field(primary_key=True)
    target: str = Field(primary_key=True)
    due_at: int | None = Field(default=None, sa_type=BigInteger)
    """When the first of its deliveries is due; null when there is none, or nobody to send it to."""
    not_before: int = Field(default=0, sa_type=BigInteger)
    """The end of a worker's lease, of a pause after failures, or of the gap that a rate limit asks for."""
    holder: str = ""
    """Whose lease it is; empty when nobody works in it."""
    failures: int = 0
    """Failed attempts since the last one that went well."""
    delivered_at: int = Field(default=0, sa_type=BigInteger)
    """When something last got through."""


WEBHOOK_CONFIG = METADATA.tables[WebhookConfigRow.__tablename__]
ADVANCED_WEBHOOK_CONFIG = METADATA.tables[AdvancedWebhookConfigRow.__tablename__]
WEBHOOK_ENDPOINT = METADATA.tables[WebhookEndpointRow.__tablename__]
WEBHOOK_MESSAGE = METADATA.tables[WebhookMessageRow.__tablename__]
WEBHOOK_DELIVERY = METADATA.tables[WebhookDeliveryRow.__tablename__]
WEBHOOK_ATTEMPT = METADATA.tables[WebhookAttemptRow.__tablename__]
WEBHOOK_QUEUE = METADATA.tables[WebhookQueueRow.__tablename__]
