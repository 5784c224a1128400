"""Tables of webhooks: configurations, messages and queues.

A message is one event. A delivery is a message for one target, which is the id of an endpoint or one of the two URLs of
basic webhooks. Each target has a queue, which one worker at a time leases. Times are epoch milliseconds. ``*_sealed``
columns are encrypted.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import KeyTable


class WebhookConfigRow(KeyTable, table=True):
    """Basic webhooks of an API key. ``config`` is JSON with the fields that were set, without the auth token."""

    in_use: bool
    config: str
    token_sealed: str = ""
    """Empty for no token."""
    updated_at: int = Field(sa_type=BigInteger)


class AdvancedWebhookConfigRow(KeyTable, table=True):
    """Advanced webhooks of an API key."""

    is_enabled: bool
    encrypt_data: bool
    encode_data: bool
    public_key: str
    enable_data_protection: bool
    updated_at: int = Field(sa_type=BigInteger)


class WebhookEndpointRow(KeyTable, table=True):
    """An endpoint. ``filter_types``, ``channels`` and ``own_data`` (``metadata`` on the wire) are JSON or null."""

    __table_args__ = (
        Index("ix_webhook_endpoint_order", "api_key_id", "created_at", "endpoint_id"),
        Index("ux_webhook_endpoint_uid", "api_key_id", "uid", unique=True),
    )

    endpoint_id: str = Field(primary_key=True)
    url: str
    description: str | None = None
    filter_types: str | None = None
    channels: str | None = None
    disabled: bool = False
    disabled_reason: str = ""
    """The reason if this server disabled it, else empty."""
    rate_limit: int | None = None
    uid: str | None = None
    own_data: str | None = None
    secret_sealed: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class WebhookMessageRow(KeyTable, table=True):
    """One event. ``payload`` is the JSON object from which the bodies are built."""

    __table_args__ = (
        Index("ix_webhook_message_time", "created_at"),
        Index("ix_webhook_message_organization", "api_key_id", "organization_id"),
    )

    message_id: str = Field(primary_key=True)
    organization_id: str = ""
    """Empty for a message about the API key."""
    type: str
    payload: str
    created_at: int = Field(sa_type=BigInteger)


class WebhookDeliveryRow(KeyTable, table=True):
    """The delivery of a message to one target. ``number`` orders deliveries with the same ``due_at``."""

    __table_args__ = (Index("ix_webhook_delivery_due", "api_key_id", "target", "due_at", "number"),)

    message_id: str = Field(primary_key=True)
    target: str = Field(primary_key=True)
    number: int
    state: str = "waiting"
    """``waiting``, ``delivered`` or ``failed`` (given up)."""
    due_at: int | None = Field(default=None, sa_type=BigInteger)
    """The time of the next attempt. Null if the delivery is not waiting."""
    attempts: int = 0
    first_failed_at: int | None = Field(default=None, sa_type=BigInteger)


class WebhookQueueRow(KeyTable, table=True):
    """The queue of one target. A worker may lease it after both ``due_at`` and ``not_before``.

    The table is still named ``webhook_lane``.
    """

    __tablename__ = "webhook_lane"
    __table_args__ = (Index("ix_webhook_lane_due", "due_at", "not_before"),)

    target: str = Field(primary_key=True)
    due_at: int | None = Field(default=None, sa_type=BigInteger)
    """The time of its first delivery. Null if there is none, or the target is disabled."""
    not_before: int = Field(default=0, sa_type=BigInteger)
    """The end of a lease, of a pause after failures, or of a pause for the rate limit."""
    holder: str = ""
    """The worker with the lease, or empty."""
    failures: int = 0
    """Failed attempts since the last success."""
    delivered_at: int = Field(default=0, sa_type=BigInteger)
    """The time of the last success."""


WEBHOOK_CONFIG = WebhookConfigRow.__table__
ADVANCED_WEBHOOK_CONFIG = AdvancedWebhookConfigRow.__table__
WEBHOOK_ENDPOINT = WebhookEndpointRow.__table__
WEBHOOK_MESSAGE = WebhookMessageRow.__table__
WEBHOOK_DELIVERY = WebhookDeliveryRow.__table__
WEBHOOK_QUEUE = WebhookQueueRow.__table__
