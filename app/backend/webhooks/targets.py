"""Targets: where does a delivery go now, and what is sent there?

Asked anew before each attempt: whoever changes a URL, a key or a switch means what is under way, too.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import orjson
from sqlalchemy import Connection

from app.backend.security.vault import Vault
from app.backend.webhooks.config import PROCESSED, RAW, advanced_config, basic_config
from app.backend.webhooks.endpoints import load_endpoint, open_secret
from app.backend.webhooks.payload import Form, Wrapping, body_of
from app.backend.webhooks.queues import Due, Queue
from app.backend.webhooks.signing import naming_headers, signed_headers


@dataclass(frozen=True, slots=True)
class Target:
    """Somebody who gets webhooks. Only an endpoint has a signing secret, only basic webhooks have an auth token."""

    url: str
    form: Form
    wrapping: Wrapping
    auth_token: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    rate_limit: int | None = None

    @property
    def is_endpoint(self) -> bool:
        return bool(self.secret)

    def request(self, due: Due, moment: datetime, entropy: random.Random) -> tuple[Mapping[str, str], bytes]:
        """Headers and body. Raises ``PublicKeyError`` when there is no usable key to encrypt with."""
        body = body_of(due.type, orjson.loads(due.payload), self.form, self.wrapping, entropy)
        if self.secret:
            return signed_headers(self.secret, due.message_id, moment, body), body
        headers = naming_headers(due.message_id, moment)
        return headers | ({"Authorization": f"Bearer {self.auth_token}"} if self.auth_token else {}), body


def load_target(connection: Connection, vault: Vault, queue: Queue) -> Target | None:
    """The target of a queue; None while nothing is to be sent there."""
    if queue.target in {RAW, PROCESSED}:
        basic = basic_config(connection, vault, queue.api_key_id)
        if not basic.in_use or not basic.url(queue.target):
            return None
        form: Form = "raw" if queue.target == RAW else "processed"
        return Target(basic.url(queue.target), form, basic.wrapping, auth_token=basic.auth_token)
    advanced = advanced_config(connection, queue.api_key_id)
    endpoint = load_endpoint(connection, queue.api_key_id, queue.target)
    if advanced is None or not advanced.is_enabled or endpoint is None or endpoint.disabled:
        return None
    secret = open_secret(vault, queue.api_key_id, endpoint)
    return Target(endpoint.url, "raw", advanced.wrapping, secret=secret, rate_limit=endpoint.rate_limit)
