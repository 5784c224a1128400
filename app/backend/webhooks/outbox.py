"""The outbox: writes webhook messages and their deliveries in the transaction of the events."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection, delete, select, update

from app.backend.collaboration.notifications import recipients
from app.backend.events import Event, EventContext
from app.backend.ids import new_id
from app.backend.storage import json_columns
from app.backend.storage.rows import among, insert_rows, upsert
from app.backend.webhooks.config import advanced_config, basic_config
from app.backend.webhooks.endpoints import load_endpoints
from app.backend.webhooks.payload import channels_of, payload_of, stored_payload
from app.backend.webhooks.tables import WEBHOOK_DELIVERY, WEBHOOK_ENDPOINT, WEBHOOK_MESSAGE, WEBHOOK_QUEUE

_log = structlog.stdlib.get_logger(__name__)

DISABLED_TYPE = "webhook_endpoint.disabled"
"""The type of the message to the other endpoints when one is disabled. It has no channel."""


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """A message and its targets."""

    type: str
    payload: Mapping[str, object]
    targets: Sequence[str]
    organization_id: str = ""
    """Empty for a message about the API key."""


def send_webhooks(connection: Connection, context: EventContext, events: Sequence[Event]) -> None:
    """An event sink that writes a message for each event with a target."""
    api_key_id = context.api_key_id
    basic = basic_config(connection, context.vault, api_key_id)
    advanced = advanced_config(connection, api_key_id)
    endpoints = load_endpoints(connection, api_key_id) if advanced is not None and advanced.is_enabled else []
    targeted: list[tuple[Event, list[str]]] = []
    for event in events:
        channels = channels_of(event)
        targets = basic.targets if basic.triggers.get(event.type) else []
        targets += [endpoint.endpoint_id for endpoint in endpoints if endpoint.accepts(event.type, channels)]
        if targets:
            targeted.append((event, targets))
    if not targeted:
        return
    users_to_notify = recipients(connection, context, [event for event, _ in targeted])
    messages = [
        WebhookMessage(event.type, payload_of(event, api_key_id, context.now, users), targets, event.organization_id)
        for (event, targets), users in zip(targeted, users_to_notify, strict=True)
    ]
    post(connection, api_key_id, messages, context.now, context.entropy)


def post(
    connection: Connection, api_key_id: str, messages: Sequence[WebhookMessage], now: int, entropy: random.Random
) -> None:
    """Writes messages of one API key. Drops those without a target."""
    identified = [(f"msg_{new_id(entropy)}", message) for message in messages if message.targets]
    rows = [
        {
            "api_key_id": api_key_id,
            "message_id": message_id,
            "organization_id": message.organization_id,
            "type": message.type,
            "payload": json_columns.dump(message.payload),
            "created_at": now,
        }
        for message_id, message in identified
    ]
    insert_rows(connection, WEBHOOK_MESSAGE, rows)
    deliveries = [
        {"api_key_id": api_key_id, "message_id": message_id, "target": target, "number": number, "due_at": now}
        for number, (message_id, message) in enumerate(identified)
        for target in message.targets
    ]
    insert_rows(connection, WEBHOOK_DELIVERY, deliveries)
    wake(connection, api_key_id, {target for _, message in identified for target in message.targets}, now)


def wake(connection: Connection, api_key_id: str, targets: Collection[str], now: int) -> None:
    """Makes the queues of these targets due."""
    if not targets:
        return
    statement = upsert(connection, WEBHOOK_QUEUE)
    statement = statement.on_conflict_do_update(
        index_elements=["api_key_id", "target"],
        set_={"due_at": statement.excluded.due_at},
        # The upsert locks the row, also without a change. So it waits for a worker that releases the queue.
        where=WEBHOOK_QUEUE.c.due_at.is_(None) | (WEBHOOK_QUEUE.c.due_at > statement.excluded.due_at),
    )
    # Sorted, so that two transactions cannot deadlock.
    rows = [{"api_key_id": api_key_id, "target": target, "due_at": now} for target in sorted(targets)]
    connection.execute(statement, rows)


def delete_messages_of_organizations(
    connection: Connection, api_key_id: str, organization_ids: Collection[str]
) -> None:
    """Deletes the messages of these organizations, sent or not."""
    message = WEBHOOK_MESSAGE.c
    of_organizations = (message.api_key_id == api_key_id) & among(connection, message.organization_id, organization_ids)
    message_ids = select(message.message_id).where(of_organizations)
    in_messages = (WEBHOOK_DELIVERY.c.api_key_id == api_key_id) & WEBHOOK_DELIVERY.c.message_id.in_(message_ids)
    connection.execute(delete(WEBHOOK_DELIVERY).where(in_messages))
    connection.execute(delete(WEBHOOK_MESSAGE).where(of_organizations))


def disable_endpoint(
    connection: Connection, api_key_id: str, endpoint_id: str, *, reason: str, now: int, entropy: random.Random
) -> None:
    """Disables an endpoint. Reports it in the endpoint's record, in the log, and to the API key's other endpoints."""
    table = WEBHOOK_ENDPOINT.c
    changed = connection.execute(
        update(WEBHOOK_ENDPOINT)
        .where(table.api_key_id == api_key_id, table.endpoint_id == endpoint_id, table.disabled.is_(False))
        .values(disabled=True, disabled_reason=reason, updated_at=now)
    )
    if changed.rowcount == 0:
        return
    endpoints = load_endpoints(connection, api_key_id)
    targets = [endpoint.endpoint_id for endpoint in endpoints if endpoint.accepts(DISABLED_TYPE, ())]
    raw = {"endpointId": endpoint_id, "reason": reason, "metadata": {"apiKey": api_key_id}}
    payload = stored_payload(now, "A webhook endpoint was disabled.", [], raw)
    post(connection, api_key_id, [WebhookMessage(DISABLED_TYPE, payload, targets)], now, entropy)
    _log.warning("webhook_endpoint_disabled", endpoint=endpoint_id, reason=reason)
