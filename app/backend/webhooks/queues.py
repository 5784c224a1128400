"""Queues of deliveries: which may a worker send now, and what becomes of them?

A worker leases a queue: until the lease ends nobody else sends to its target. What a worker that dies leaves behind is
taken up by another one when its lease has run out, and sent again under the same message id.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, case, delete, func, insert, select, tuple_, update

from app.backend.webhooks.sender import Outcome
from app.backend.webhooks.tables import WEBHOOK_ATTEMPT, WEBHOOK_DELIVERY, WEBHOOK_MESSAGE, WEBHOOK_QUEUE
from app.backend.webhooks.turns import Waiting
from app.foundation.database.engine import is_sqlite, reading, writing

LEASE_MS = 90_000
"""How long a queue waits for a worker that died."""
_QUEUE = WEBHOOK_QUEUE.c
_DELIVERY = WEBHOOK_DELIVERY.c
_HAS_FAILED = case((_QUEUE.failures > 0, 1), else_=0)
_FORGOTTEN_AT_ONCE = 200
_QUEUES_AT_ONCE = 10_000
_TRIES = 3
"""Of the API keys for which something is due: another process may have been there first."""

Choose = Callable[[Sequence[Waiting]], Sequence[str]]
"""Which of the API keys have a turn, in order (see ``turns``)."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that a worker holds, as it was when it was taken."""

    api_key_id: str
    target: str
    holder: str
    leased_until: int
    failures: int
    delivered_at: int


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery to be tried. ``payload`` is JSON."""

    message_id: str
    type: str
    payload: str
    attempts: int
    first_failed_at: int | None


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt: when it began, and how it went."""

    at: int
    outcome: Outcome


def claim(engine: Engine, holder: str, now: int, choose: Choose) -> Queue | None:
    """A queue that something is due in, leased to ``holder``; None when there is none for which it may be.

    Of an API key's queues the one that has waited for a worker for longest, those that failed last after the others.
    """
    ready = (
        select(_QUEUE.api_key_id, _HAS_FAILED.label("failed"), _QUEUE.not_before)
        .where(_QUEUE.due_at <= now, _QUEUE.not_before <= now)
        .order_by(_QUEUE.due_at)
        .limit(_QUEUES_AT_ONCE)
        .subquery()
    )
    with reading(engine) as connection:
        # To look costs nothing; to write would hold up SQLite's other writers at every look.
        rows = connection.execute(
            select(ready.c.api_key_id, func.min(ready.c.failed), func.min(ready.c.not_before)).group_by(
                ready.c.api_key_id
            )
        ).all()
    for api_key_id in choose([Waiting(key, bool(has_failed), since) for key, has_failed, since in rows])[:_TRIES]:
        queue = _lease(engine, holder, now, api_key_id)
        if queue is not None:
            return queue
    return None


def _lease(engine: Engine, holder: str, now: int, api_key_id: str) -> Queue | None:
    leased_until = now + LEASE_MS
    ready = (_QUEUE.api_key_id == api_key_id, _QUEUE.due_at <= now, _QUEUE.not_before <= now)
    with writing(engine) as connection:
        first = select(_QUEUE.target).where(*ready).order_by(_HAS_FAILED, _QUEUE.not_before).limit(1)
        if not is_sqlite(connection):
            first = first.with_for_update(skip_locked=True)
        target = connection.scalar(first)
        if target is None:
            return None
        row = connection.execute(
            update(WEBHOOK_QUEUE)
            .where(_QUEUE.api_key_id == api_key_id, _QUEUE.target == target)
            .values(not_before=leased_until, holder=holder)
            .returning(_QUEUE.failures, _QUEUE.delivered_at)
        ).one()
    return Queue(api_key_id, target, holder, leased_until, row.failures, row.delivered_at)


def next_due(connection: Connection, queue: Queue, now: int) -> Due | None:
    """What has been due for longest in the queue."""
    same = (WEBHOOK_MESSAGE.c.api_key_id == _DELIVERY.api_key_id) & (
        WEBHOOK_MESSAGE.c.message_id == _DELIVERY.message_id
    )
    row = connection.execute(
        select(
            _DELIVERY.message_id,
            WEBHOOK_MESSAGE.c.type,
            WEBHOOK_MESSAGE.c.payload,
            _DELIVERY.attempts,
            _DELIVERY.first_failed_at,
        )
        .join_from(WEBHOOK_DELIVERY, WEBHOOK_MESSAGE, same)
        .where(*_in_queue(queue), _DELIVERY.due_at <= now)
        .order_by(_DELIVERY.due_at, _DELIVERY.number)
        .limit(1)
    ).one_or_none()
    return None if row is None else Due(*row)


def record_success(connection: Connection, queue: Queue, due: Due, tried: Tried) -> None:
    """The delivery is done, also when another worker has taken the queue over meanwhile."""
    _record(connection, queue, due, tried, {"state": "delivered", "due_at": None})


def record_failure(
    connection: Connection,
    queue: Queue,
    due: Due,
    tried: Tried,
    *,
    next_at: int | None,
    first_failed_at: int,
) -> None:
    """The attempt failed; the next one is at ``next_at``, or never."""
    values = {
        "state": "failed" if next_at is None else "waiting",
        "due_at": next_at,
        "first_failed_at": first_failed_at,
    }
    _record(connection, queue, due, tried, values)


def hold(connection: Connection, queue: Queue) -> bool:
    """Keeps everybody else from the queue until the transaction ends. False when its lease was lost.

    Who writes a message, or changes its target, holds the queue until that transaction ends: after this, all that
    it wrote is seen.
    """
    return connection.execute(select(_QUEUE.target).where(*_mine(queue)).with_for_update()).one_or_none() is not None


def release(
    connection: Connection, queue: Queue, *, not_before: int, failures: int, delivered_at: int, parked: bool
) -> None:
    """Gives a held queue back. ``parked``: there is nobody to send to, until ``outbox.wake``."""
    first = (
        select(_DELIVERY.due_at)
        .where(*_in_queue(queue), _DELIVERY.due_at.is_not(None))
        .order_by(_DELIVERY.due_at)
        .limit(1)
    )
    connection.execute(
        update(WEBHOOK_QUEUE)
        .where(*_mine(queue))
        .values(
            due_at=None if parked else connection.scalar(first),
            not_before=not_before,
            holder="",
            failures=failures,
            delivered_at=delivered_at,
        )
    )


def remove_queue(connection: Connection, api_key_id: str, target: str) -> None:
    """Forgets a target and whatever was to be sent to it."""
    connection.execute(delete(WEBHOOK_QUEUE).where(_QUEUE.api_key_id == api_key_id, _QUEUE.target == target))
    connection.execute(
        delete(WEBHOOK_DELIVERY).where(
            _DELIVERY.api_key_id == api_key_id, _DELIVERY.target == target, _DELIVERY.due_at.is_not(None)
        )
    )


def begin_anew(connection: Connection, api_key_id: str, target: str) -> None:
    """Forgets that sending to a target has failed; what waits for it keeps its number of attempts."""
    queue = (_QUEUE.api_key_id == api_key_id, _QUEUE.target == target)
    connection.execute(update(WEBHOOK_QUEUE).where(*queue).values(failures=0))
    # A pause is over; a worker that is at work is not interrupted.
    connection.execute(update(WEBHOOK_QUEUE).where(*queue, _QUEUE.holder == "").values(not_before=0))
    connection.execute(
        update(WEBHOOK_DELIVERY)
        .where(_DELIVERY.api_key_id == api_key_id, _DELIVERY.target == target, _DELIVERY.due_at.is_not(None))
        .values(first_failed_at=None)
    )


def waiting_targets(connection: Connection, api_key_id: str) -> set[str]:
    """The targets of an API key that have a queue."""
    return set(connection.scalars(select(_QUEUE.target).where(_QUEUE.api_key_id == api_key_id)))


def forget(engine: Engine, before: int) -> int:
    """Deletes some of the messages from before then, with all that hangs on them; how many."""
    message = WEBHOOK_MESSAGE.c
    with reading(engine) as connection:
        old = connection.execute(
            select(message.api_key_id, message.message_id)
            .where(message.created_at < before)
            .order_by(message.created_at)
            .limit(_FORGOTTEN_AT_ONCE)
        ).all()
    if old:
        _delete_messages(engine, old)
    return len(old)


def _delete_messages(engine: Engine, old: Sequence[Any]) -> None:
    keys = [{"key": row.api_key_id, "message": row.message_id} for row in old]
    with writing(engine) as connection:
        for table in (WEBHOOK_ATTEMPT, WEBHOOK_DELIVERY, WEBHOOK_MESSAGE):
            named = tuple_(table.c.api_key_id, table.c.message_id) == tuple_(bindparam("key"), bindparam("message"))
            connection.execute(delete(table).where(named), keys)


def _record(connection: Connection, queue: Queue, due: Due, tried: Tried, values: Mapping[str, object]) -> None:
    number = connection.scalar(
        update(WEBHOOK_DELIVERY)
        .where(
            _DELIVERY.api_key_id == queue.api_key_id,
            _DELIVERY.message_id == due.message_id,
            _DELIVERY.target == queue.target,
            _DELIVERY.state == "waiting",
        )
        .values(attempts=_DELIVERY.attempts + 1, **values)
        .returning(_DELIVERY.attempts)
    )
    if number is None:
        # Its endpoint was deleted meanwhile, or another worker got it through.
        return
    connection.execute(
        insert(WEBHOOK_ATTEMPT).values(
            api_key_id=queue.api_key_id,
            message_id=due.message_id,
            target=queue.target,
            number=number,
            attempted_at=tried.at,
            duration_ms=tried.outcome.duration_ms,
            status_code=tried.outcome.status_code,
            problem=tried.outcome.problem,
        )
    )


def _in_queue(queue: Queue) -> tuple[Any, ...]:
    return (_DELIVERY.api_key_id == queue.api_key_id, _DELIVERY.target == queue.target)


def _mine(queue: Queue) -> tuple[Any, ...]:
    return (_QUEUE.api_key_id == queue.api_key_id, _QUEUE.target == queue.target, _QUEUE.holder == queue.holder)
