"""The disabling of an endpoint that this server stops sending to."""

import random

import structlog
from sqlalchemy import Connection, update

from app.backend.webhooks.endpoints import load_endpoints
from app.backend.webhooks.outbox import Outgoing, post
from app.backend.webhooks.tables import WEBHOOK_ENDPOINT

DISABLED_TYPE = "webhook_endpoint.disabled"
"""The type of the message that tells the other endpoints. It is on no channel."""


def disable_endpoint(
    connection: Connection, api_key_id: str, endpoint_id: str, *, reason: str, now: int, entropy: random.Random
) -> None:
    """Disables the endpoint and reports it: in its record, in the log, and to the API key's other endpoints."""
    table = WEBHOOK_ENDPOINT.c
    changed = connection.execute(
        update(WEBHOOK_ENDPOINT)
        .where(table.api_key_id == api_key_id, table.endpoint_id == endpoint_id, table.disabled.is_(False))
        .values(disabled=True, disabled_reason=reason, updated_at=now)
    )
    if changed.rowcount == 0:
        return
    told = [
        endpoint.endpoint_id for endpoint in load_endpoints(connection, api_key_id) if endpoint.wants(DISABLED_TYPE, ())
    ]
    raw = {"endpointId": endpoint_id, "reason": reason, "metadata": {"apiKey": api_key_id}}
    payload = {"at": now, "template": "A webhook endpoint was disabled.", "told": [], "raw": raw}
    post(connection, api_key_id, [Outgoing(DISABLED_TYPE, payload, told)], now, entropy)
    log = structlog.stdlib.get_logger(__name__)
    log.warning("webhook_endpoint_disabled", endpoint=endpoint_id, reason=reason)
