"""Loads the target of a queue, and builds its signed requests.

The target is loaded for each attempt, so that a change of its URL, key or state applies to waiting deliveries.
"""

import random
from dataclasses import dataclass, field
from datetime import datetime

import orjson
from sqlalchemy import Connection
from standardwebhooks import Webhook

from app.backend.security.vault import Vault
from app.backend.webhooks.config import PROCESSED, RAW, advanced_config, basic_config
from app.backend.webhooks.endpoints import load_endpoint, open_secret
from app.backend.webhooks.payload import BodyOptions, body_of
from app.backend.webhooks.queues import Delivery, Queue


@dataclass(frozen=True, slots=True)
class Target:
    """A URL of basic webhooks, which may have an auth token, or an endpoint, which has a signing secret."""

    url: str
    options: BodyOptions
    processed: bool = False
    auth_token: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    rate_limit: int | None = None

    @property
    def is_endpoint(self) -> bool:
        return bool(self.secret)

    def request(self, delivery: Delivery, now: datetime, entropy: random.Random) -> tuple[dict[str, str], bytes]:
        """Headers and body. Raises ``PublicKeyError`` if the body cannot be encrypted."""
        payload = orjson.loads(delivery.payload)
        body = body_of(delivery.type, payload, self.options, entropy, processed=self.processed)
        headers = {"webhook-id": delivery.message_id, "webhook-timestamp": str(int(now.timestamp()))}
        if self.secret:
            headers["webhook-signature"] = Webhook(self.secret).sign(delivery.message_id, now, body.decode())
        if self.auth_token:
            headers["Authorization"] = f"Bearer {self.auth_token}"
        return headers, body


def load_target(connection: Connection, vault: Vault, queue: Queue) -> Target | None:
    """The target of a queue, or None while it is disabled."""
    if queue.target in {RAW, PROCESSED}:
        basic = basic_config(connection, vault, queue.api_key_id)
        if queue.target not in basic.targets:
            return None
        url, processed = basic.url(queue.target), queue.target == PROCESSED
        return Target(url, basic.body_options, processed=processed, auth_token=basic.auth_token)
    advanced = advanced_config(connection, queue.api_key_id)
    endpoint = load_endpoint(connection, queue.api_key_id, queue.target)
    if advanced is None or not advanced.is_enabled or endpoint is None or endpoint.disabled:
        return None
    secret = open_secret(vault, queue.api_key_id, endpoint)
    return Target(endpoint.url, advanced, secret=secret, rate_limit=endpoint.rate_limit)
