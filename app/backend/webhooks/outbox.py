"""How does a message get on its way? Written with its deliveries, in the transaction of what it tells about."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert
from sqlalchemy.dialects import postgresql, sqlite

from app.backend import json_sets
from app.backend.call import new_id
from app.backend.schema import WEBHOOK_DELIVERY, WEBHOOK_LANE, WEBHOOK_MESSAGE
from app.database.engine import is_sqlite


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message, and the targets that it is for."""

    type: str
    payload: Mapping[str, object]
    targets: Sequence[str]


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


def wake(connection: Connection, api_key_id: str, targets: set[str], now: int) -> None:
    """Lets a worker look into the lanes of these targets."""
    if not targets:
        return
    dialect = sqlite if is_sqlite(connection) else postgresql
    statement = dialect.insert(WEBHOOK_LANE)
    statement = statement.on_conflict_do_update(
        index_elements=["api_key_id", "target"],
        set_={"due_at": statement.excluded.due_at},
        # A worker that settles the lane meanwhile is waited for even when there is nothing to change.
        where=WEBHOOK_LANE.c.due_at.is_(None) | (WEBHOOK_LANE.c.due_at > statement.excluded.due_at),
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
