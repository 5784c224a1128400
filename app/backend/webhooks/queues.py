"""The delivery queues in the database, one per target.

A worker leases a queue, and no other worker sends to its target until the lease ends. If the worker dies, another one
takes over after the lease, and sends the unrecorded message again with the same id.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, bindparam, case, delete, select, tuple_, update

from app.backend.webhooks.sender import Outcome
from app.backend.webhooks.tables import WEBHOOK_DELIVERY, WEBHOOK_MESSAGE, WEBHOOK_QUEUE
from app.foundation.database.engine import reading, writing

LEASE_MS = 90_000
_QUEUE = WEBHOOK_QUEUE.c
_DELIVERY = WEBHOOK_DELIVERY.c
_DELETE_BATCH = 200


@dataclass(frozen=True, slots=True)
class Queue:
    """A leased queue, with its state at the start of the lease."""

    api_key_id: str
    target: str
    holder: str
    leased_until: int
    failures: int
    delivered_at: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A due delivery. ``payload`` is JSON."""

    message_id: str
    type: str
    payload: str
    attempts: int
    first_failed_at: int | None


class DeliveryAttempt(NamedTuple):
    """An attempt to deliver a message. ``started_at`` is epoch milliseconds."""

    delivery: Delivery
    started_at: int
    outcome: Outcome


def claim(engine: Engine, holder: str, now: int) -> Queue | None:
    """Leases a queue with a due delivery to ``holder``: queues without failures first, then by ``not_before``, so
    that a queue goes to the end after each lease."""
    first = (
        select(_QUEUE.api_key_id, _QUEUE.target)
        .where(_QUEUE.due_at <= now, _QUEUE.not_before <= now)
        .order_by(case((_QUEUE.failures > 0, 1), else_=0), _QUEUE.not_before)
        .limit(1)
    )
    # A read, because each write would block SQLite's other writers.
    with reading(engine) as connection:
        if connection.execute(first).one_or_none() is None:
            return None
    leased_until = now + LEASE_MS
    with writing(engine) as connection:
        found = connection.execute(first.with_for_update(skip_locked=True)).one_or_none()
        if found is None:
            return None
        row = connection.execute(
            update(WEBHOOK_QUEUE)
            .where(_QUEUE.api_key_id == found.api_key_id, _QUEUE.target == found.target)
            .values(not_before=leased_until, holder=holder)
            .returning(_QUEUE.failures, _QUEUE.delivered_at)
        ).one()
    return Queue(found.api_key_id, found.target, holder, leased_until, row.failures, row.delivered_at)


def next_delivery(connection: Connection, queue: Queue, now: int) -> Delivery | None:
    """The delivery that has been due longest."""
    message = WEBHOOK_MESSAGE.c
    same_message = (message.api_key_id == _DELIVERY.api_key_id) & (message.message_id == _DELIVERY.message_id)
    columns = (_DELIVERY.message_id, message.type, message.payload, _DELIVERY.attempts, _DELIVERY.first_failed_at)
    row = connection.execute(
        select(*columns)
        .join_from(WEBHOOK_DELIVERY, WEBHOOK_MESSAGE, same_message)
        .where(*_in_queue(queue.api_key_id, queue.target), _DELIVERY.due_at <= now)
        .order_by(_DELIVERY.due_at, _DELIVERY.number)
        .limit(1)
    ).one_or_none()
    return None if row is None else Delivery(*row)


def record_attempt(
    connection: Connection,
    queue: Queue,
    attempt: DeliveryAttempt,
    *,
    next_at: int | None = None,
    first_failed_at: int | None = None,
) -> None:
    """Stores an attempt, even if the lease was lost. A failure without ``next_at`` ends the delivery."""
    if attempt.outcome.problem:
        state = "failed" if next_at is None else "waiting"
        values = {"state": state, "due_at": next_at, "first_failed_at": first_failed_at}
    else:
        values = {"state": "delivered", "due_at": None}
    connection.execute(
        update(WEBHOOK_DELIVERY)
        .where(
            *_in_queue(queue.api_key_id, queue.target),
            _DELIVERY.message_id == attempt.delivery.message_id,
            # Else the endpoint was deleted, or another worker delivered the message.
            _DELIVERY.state == "waiting",
        )
        .values(attempts=_DELIVERY.attempts + 1, **values)
    )


def lock(connection: Connection, queue: Queue) -> bool:
    """Locks the queue until the transaction ends. Returns False if the lease was lost.

    Transactions that write messages or change the target lock the queue too, so their changes are visible afterwards.
    """
    return connection.execute(select(_QUEUE.target).where(*_held(queue)).with_for_update()).one_or_none() is not None


def release(
    connection: Connection, queue: Queue, *, not_before: int, failures: int, delivered_at: int, parked: bool
) -> None:
    """Ends the lease of a locked queue. A parked queue has a disabled target, and waits for ``outbox.wake``."""
    next_due = (
        select(_DELIVERY.due_at)
        .where(*_in_queue(queue.api_key_id, queue.target), _DELIVERY.due_at.is_not(None))
        .order_by(_DELIVERY.due_at)
        .limit(1)
    )
    connection.execute(
        update(WEBHOOK_QUEUE)
        .where(*_held(queue))
        .values(
            due_at=None if parked else connection.scalar(next_due),
            not_before=not_before,
            holder="",
            failures=failures,
            delivered_at=delivered_at,
        )
    )


def remove_queue(connection: Connection, api_key_id: str, target: str) -> None:
    """Deletes a queue with its waiting deliveries."""
    connection.execute(delete(WEBHOOK_QUEUE).where(_QUEUE.api_key_id == api_key_id, _QUEUE.target == target))
    connection.execute(delete(WEBHOOK_DELIVERY).where(*_in_queue(api_key_id, target), _DELIVERY.due_at.is_not(None)))


def reset_failures(connection: Connection, api_key_id: str, target: str) -> None:
    """Clears the failures of a target and ends its pause. Waiting deliveries keep their number of attempts."""
    queue = (_QUEUE.api_key_id == api_key_id, _QUEUE.target == target)
    connection.execute(update(WEBHOOK_QUEUE).where(*queue).values(failures=0))
    # For a held queue the column is the end of the lease.
    connection.execute(update(WEBHOOK_QUEUE).where(*queue, _QUEUE.holder == "").values(not_before=0))
    connection.execute(
        update(WEBHOOK_DELIVERY)
        .where(*_in_queue(api_key_id, target), _DELIVERY.due_at.is_not(None))
        .values(first_failed_at=None)
    )


def queued_targets(connection: Connection, api_key_id: str) -> set[str]:
    """The targets of an API key that have a queue."""
    return set(connection.scalars(select(_QUEUE.target).where(_QUEUE.api_key_id == api_key_id)))


def delete_old_messages(engine: Engine, before: int) -> int:
    """Deletes a batch of messages older than ``before``, with their deliveries. Returns how many."""
    message = WEBHOOK_MESSAGE.c
    with reading(engine) as connection:
        old = connection.execute(
            select(message.api_key_id, message.message_id)
            .where(message.created_at < before)
            .order_by(message.created_at)
            .limit(_DELETE_BATCH)
        ).all()
    if old:
        # Sorted, so that two processes cannot deadlock.
        keys = [{"key": row.api_key_id, "message": row.message_id} for row in sorted(old)]
        with writing(engine) as connection:
            for table in (WEBHOOK_DELIVERY, WEBHOOK_MESSAGE):
                key = tuple_(table.c.api_key_id, table.c.message_id) == tuple_(bindparam("key"), bindparam("message"))
                connection.execute(delete(table).where(key), keys)
    return len(old)


def _in_queue(api_key_id: str, target: str) -> tuple[Any, ...]:
    return (_DELIVERY.api_key_id == api_key_id, _DELIVERY.target == target)


def _held(queue: Queue) -> tuple[Any, ...]:
    return (_QUEUE.api_key_id == queue.api_key_id, _QUEUE.target == queue.target, _QUEUE.holder == queue.holder)
