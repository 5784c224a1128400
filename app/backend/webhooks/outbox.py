"""The outbox: messages written with their deliveries, in the transaction of what they are about."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from app.backend.ids import new_id
from app.backend.storage import json_sets
from app.backend.storage.rows import upsert
from app.backend.webhooks.tables import WEBHOOK_ATTEMPT, WEBHOOK_DELIVERY, WEBHOOK_MESSAGE, WEBHOOK_QUEUE


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
    if not rows:
        return
    connection.execute(
        insert(WEBHOOK_MESSAGE),
        [
            {
                "api_key_id": api_key_id,
                "message_id": message_id,
                "organization_id": message.organization_id,
                "type": message.type,
                "payload": json_sets.dump(message.payload),
                "created_at": now,
            }
            for message_id, message in rows
        ],
    )
    connection.execute(
        insert(WEBHOOK_DELIVERY),
        [
            {
                "api_key_id": api_key_id,
                "message_id": message_id,
                "target": target,
                "number": number,
                "state": "waiting",
                "due_at": now,
                "attempts": 0,
            }
            for number, (message_id, message) in enumerate(rows)
            for target in message.targets
        ],
    )
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
    rows = [
        {
            "api_key_id": api_key_id,
            "target": target,
            "due_at": now,
            "not_before": 0,
            "holder": "",
            "failures": 0,
            "delivered_at": 0,
        }
        # Always in the same order, so that two transactions cannot wait for each other.
        for target in sorted(targets)
    ]
    connection.execute(statement, rows)
