"""The outbox of webhooks: writes messages with their deliveries, in the transaction of what they report."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection, delete, select, update

from app.backend.collaboration.notifications import recipients
from app.backend.events import Event, EventContext
from app.backend.ids import new_id
from app.backend.storage import json_sets
from app.backend.storage.rows import insert_rows, upsert
from app.backend.webhooks.config import advanced_config, basic_config
from app.backend.webhooks.endpoints import load_endpoints
from app.backend.webhooks.payload import channels_of, payload_of
from app.backend.webhooks.tables import (
    WEBHOOK_ATTEMPT,
    WEBHOOK_DELIVERY,
    WEBHOOK_ENDPOINT,
    WEBHOOK_MESSAGE,
    WEBHOOK_QUEUE,
)

DISABLED_TYPE = "webhook_endpoint.disabled"
"""The type of the message that tells the other endpoints. It is on no channel."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message, and the targets that it is for."""

    type: str
    payload: Mapping[str, object]
    targets: Sequence[str]
    organization_id: str = ""
    """Where it happened; empty for what is of no organization."""


def post(
    connection: Connection, api_key_id: str, messages: Sequence[Outgoing], now: int, entropy: random.Random
) -> None:
    """Writes messages of one API key; those without a target are dropped."""
    rows = [(f"msg_{new_id(entropy)}", message) for message in messages if message.targets]
    written = [
        {
            "api_key_id": api_key_id,
            "message_id": message_id,
            "organization_id": message.organization_id,
            "type": message.type,
            "payload": json_sets.dump(message.payload),
            "created_at": now,
        }
        for message_id, message in rows
    ]
    insert_rows(connection, WEBHOOK_MESSAGE, written)
    deliveries = [
        {"api_key_id": api_key_id, "message_id": message_id, "target": target, "number": number, "due_at": now}
        for number, (message_id, message) in enumerate(rows)
        for target in message.targets
    ]
    insert_rows(connection, WEBHOOK_DELIVERY, deliveries)
    wake(connection, api_key_id, {target for _, message in rows for target in message.targets}, now)


def forget_messages(connection: Connection, api_key_id: str, organization_ids: Collection[str]) -> None:
    """Deletes the messages of these organizations, whether or not they were sent."""
    message = WEBHOOK_MESSAGE.c
    of_them = (message.api_key_id == api_key_id) & message.organization_id.in_(
        json_sets.texts(connection, organization_ids)
    )
    gone = select(message.message_id).where(of_them)
    for table in (WEBHOOK_ATTEMPT, WEBHOOK_DELIVERY):
        connection.execute(delete(table).where(table.c.api_key_id == api_key_id, table.c.message_id.in_(gone)))
    connection.execute(delete(WEBHOOK_MESSAGE).where(of_them))


def wake(connection: Connection, api_key_id: str, targets: set[str], now: int) -> None:
    """Lets a worker look into the queues of these targets."""
    if not targets:
        return
    statement = upsert(connection, WEBHOOK_QUEUE)
    statement = statement.on_conflict_do_update(
        index_elements=["api_key_id", "target"],
        set_={"due_at": statement.excluded.due_at},
        # A worker that settles the queue meanwhile is waited for even when there is nothing to change.
        where=WEBHOOK_QUEUE.c.due_at.is_(None) | (WEBHOOK_QUEUE.c.due_at > statement.excluded.due_at),
    )
    # Always in the same order, so that two transactions cannot wait for each other.
    rows = [{"api_key_id": api_key_id, "target": target, "due_at": now} for target in sorted(targets)]
    connection.execute(statement, rows)


def send_webhooks(connection: Connection, context: EventContext, events: Sequence[Event]) -> None:
    """An event sink: a message for each event that somebody wants to be told about."""
    api_key_id = context.api_key_id
    told_of = [event for event in events if event.kind.has_webhook]
    basic = basic_config(connection, context.vault, api_key_id)
    advanced = advanced_config(connection, api_key_id)
    endpoints = load_endpoints(connection, api_key_id) if advanced is not None and advanced.is_enabled else []
    wanted: list[tuple[Event, list[str]]] = []
    for event in told_of:
        channels = channels_of(event)
        targets = basic.targets(event.type)
        targets += [endpoint.endpoint_id for endpoint in endpoints if endpoint.wants(event.type, channels)]
        if targets:
            wanted.append((event, targets))
    if not wanted:
        return
    told = recipients(connection, context, [event for event, _ in wanted])
    messages = [
        Outgoing(event.type, payload_of(event, api_key_id, context.now, users), targets, event.organization_id)
        for (event, targets), users in zip(wanted, told, strict=True)
    ]
    post(connection, api_key_id, messages, context.now, context.entropy)


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
