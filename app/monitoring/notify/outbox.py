"""The outbox: open concerns, and messages about them that are to be sent.

A message is stored in the transaction that finds the concern new, changed or over. So one of several workers reports
it, and a crash neither loses nor repeats it. A worker takes a message by moving its next try on; if it dies, the
message is retried.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, text, update

from app.access.record_tables import core_table
from app.foundation.database.engine import is_sqlite
from app.monitoring.notify.tables import ChannelMessageRow, ConcernRow

_CONCERN = core_table(ConcernRow)
_NOTIFICATION = core_table(ChannelMessageRow)

_WATCH_LOCK = 0x75736865725F77
"""PostgreSQL advisory lock under which what is new is found, so that two workers do not both find it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenConcern:
    """A matter as people were last told of it. Times are epoch milliseconds."""

    concern_key: str
    cause: str
    about: str
    fingerprint: str
    size: int
    says: str
    run_id: str | None
    since_at: int
    told_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessage:
    """A message that is due on one channel."""

    message_id: str
    channel: str
    body: str
    tries: int
    """How often it was tried before."""


def one_watch_at_a_time(connection: Connection) -> None:
    """Waits until no other transaction looks for what is new; on SQLite a writing transaction is alone anyway."""
    if not is_sqlite(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _WATCH_LOCK})


def open_concerns(connection: Connection) -> dict[str, OpenConcern]:
    """The matters that people were told of and that are not over, by their keys."""
    return {row.concern_key: OpenConcern(**row._asdict()) for row in connection.execute(select(_CONCERN))}


def remember(connection: Connection, concern: OpenConcern) -> None:
    """Notes what people are told of a matter, instead of what they were told before."""
    forget(connection, concern.concern_key)
    values = {name: getattr(concern, name) for name in OpenConcern.__dataclass_fields__}
    connection.execute(insert(_CONCERN).values(values))


def forget(connection: Connection, concern_key: str) -> None:
    """The matter is over."""
    connection.execute(delete(_CONCERN).where(_CONCERN.c.concern_key == concern_key))


def put(connection: Connection, message_id: str, body: str, channels: Collection[str], now_ms: int) -> None:
    """Sends a message on its way along each channel."""
    for channel in channels:
        connection.execute(
            insert(_NOTIFICATION).values(
                message_id=message_id,
                channel=channel,
                body=body,
                created_at=now_ms,
                tries=0,
                next_try_at=now_ms,
                problem="",
            )
        )


def due(connection: Connection, channels: Collection[str], now_ms: int, limit: int = 20) -> list[WaitingMessage]:
    """Messages whose next try is due, in the order in which they were written."""
    rows = connection.execute(
        select(_NOTIFICATION)
        .where(_NOTIFICATION.c.next_try_at <= now_ms, _NOTIFICATION.c.channel.in_(channels))
        .order_by(_NOTIFICATION.c.created_at, _NOTIFICATION.c.message_id)
        .limit(limit)
    )
    return [
        WaitingMessage(message_id=row.message_id, channel=row.channel, body=row.body, tries=row.tries) for row in rows
    ]


def take(connection: Connection, waiting: WaitingMessage, again_at: int) -> bool:
    """Whether the try is the caller's: one of several workers gets it; it is due again unless its end is noted."""
    taken = connection.execute(
        update(_NOTIFICATION)
        .where(
            _NOTIFICATION.c.message_id == waiting.message_id,
            _NOTIFICATION.c.channel == waiting.channel,
            _NOTIFICATION.c.tries == waiting.tries,
            _NOTIFICATION.c.next_try_at.is_not(None),
        )
        .values(tries=waiting.tries + 1, next_try_at=again_at)
    )
    return bool(taken.rowcount)


def settle(
    connection: Connection, waiting: WaitingMessage, *, delivered_at: int | None, next_try_at: int | None, problem: str
) -> None:
    """How the try ended: delivered, to be tried again, or (with neither time) given up."""
    connection.execute(
        update(_NOTIFICATION)
        .where(_NOTIFICATION.c.message_id == waiting.message_id, _NOTIFICATION.c.channel == waiting.channel)
        .values(delivered_at=delivered_at, next_try_at=next_try_at, problem=problem)
    )


def clear_up(connection: Connection, channels: Sequence[str], before_ms: int) -> None:
    """Forgets messages that ended that long ago, and those along channels that are no more."""
    ended = _NOTIFICATION.c.next_try_at.is_(None) & (_NOTIFICATION.c.created_at < before_ms)
    connection.execute(delete(_NOTIFICATION).where(ended | _NOTIFICATION.c.channel.not_in(channels)))


def message_counts(connection: Connection) -> dict[str, int]:
    """``waiting``, ``delivered`` and ``given_up`` → how many messages that are remembered."""
    waiting = func.count(_NOTIFICATION.c.next_try_at)
    delivered = func.count(_NOTIFICATION.c.delivered_at)
    row = connection.execute(select(func.count(), waiting, delivered).select_from(_NOTIFICATION)).one()
    total, waits, arrived = (int(number) for number in row)
    return {"waiting": waits, "delivered": arrived, "given_up": total - waits - arrived}
