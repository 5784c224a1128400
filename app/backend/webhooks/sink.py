"""The event sink that sends webhooks."""

from collections.abc import Sequence

from sqlalchemy import Connection

from app.backend.collaboration.notifications import recipients
from app.backend.events import Event, Occasion
from app.backend.webhooks.config import advanced_config, basic_config
from app.backend.webhooks.endpoints import load_endpoints
from app.backend.webhooks.outbox import Outgoing, post
from app.backend.webhooks.payload import channels_of, payload_of


def send_webhooks(connection: Connection, occasion: Occasion, events: Sequence[Event]) -> None:
    """An event sink: a message for each event that somebody wants to be told about."""
    api_key_id = occasion.api_key_id
    told_of = [event for event in events if event.kind.has_webhook]
    basic = basic_config(connection, occasion.vault, api_key_id)
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
    told = recipients(connection, occasion, [event for event, _ in wanted])
    messages = [
        Outgoing(event.type, payload_of(event, api_key_id, occasion.now, users), targets, event.organization_id)
        for (event, targets), users in zip(wanted, told, strict=True)
    ]
    post(connection, api_key_id, messages, occasion.now, occasion.entropy)
