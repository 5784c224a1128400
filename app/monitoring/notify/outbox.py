"""The outbox: open concerns, and the messages about them that are still to be sent.

A message is stored in the same transaction as the change of its concern. So only one of several workers reports it, and
a crash neither loses nor repeats it. To send a message, a worker takes a lease on it by moving its next try into the
future. If the worker dies, the message is tried again after the lease.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, text, update

from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.database.engine import is_sqlite
from app.monitoring.notify.concerns import Cause, Concern
from app.monitoring.notify.tables import ChannelMessageRow, ConcernRow

_CONCERN = ConcernRow.__table__
_MESSAGE = ChannelMessageRow.__table__
_CAUSES = [cause.value for cause in Cause]

_BATCH = 20
"""Messages that are read at once."""
_WATCH_LOCK = 0x75736865725F77
"""The PostgreSQL advisory lock that prevents two workers from reporting the same change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessage:
    """A message that is due on one channel."""

    message_id: str
    channel: str
    body: str
    tries: int
    """The number of previous tries."""


def lock_watch(connection: Connection) -> None:
    """Waits until no other transaction compares concerns. SQLite needs no lock: it has one writer at a time."""
    if not is_sqlite(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _WATCH_LOCK})


def open_concerns(connection: Connection) -> dict[str, Concern]:
    """The concerns that are not over, by key, as last reported, without advice and without causes of later versions."""
    return {
        row.concern_key: Concern(
            cause=Cause(row.cause),
            about=row.about,
            fingerprint=row.fingerprint,
            size=row.size,
            summary=row.says,
            advice="",
            since=from_epoch_ms(row.since_at),
            run_id=row.run_id,
        )
        for row in connection.execute(select(_CONCERN).where(_CONCERN.c.cause.in_(_CAUSES)))
    }


def store_concern(connection: Connection, concern: Concern, now_ms: int) -> None:
    """Inserts or replaces a reported concern."""
    delete_concern(connection, concern.key)
    connection.execute(
        insert(_CONCERN).values(
            concern_key=concern.key,
            cause=concern.cause.value,
            about=concern.about,
            fingerprint=concern.fingerprint,
            size=concern.size,
            says=concern.summary,
            run_id=concern.run_id,
            since_at=epoch_ms(concern.since),
            told_at=now_ms,
        )
    )


def delete_concern(connection: Connection, concern_key: str) -> None:
    connection.execute(delete(_CONCERN).where(_CONCERN.c.concern_key == concern_key))


def add_message(connection: Connection, message_id: str, body: str, channels: Collection[str], now_ms: int) -> None:
    """Stores a message for each channel, due now."""
    for channel in channels:
        message = {"message_id": message_id, "channel": channel, "body": body, "created_at": now_ms}
        connection.execute(insert(_MESSAGE).values(**message, tries=0, next_try_at=now_ms, problem=""))


def due_messages(connection: Connection, channels: Collection[str], now_ms: int) -> list[WaitingMessage]:
    """The first messages whose next try is due, oldest first."""
    rows = connection.execute(
        select(_MESSAGE)
        .where(_MESSAGE.c.next_try_at <= now_ms, _MESSAGE.c.channel.in_(channels))
        .order_by(_MESSAGE.c.created_at, _MESSAGE.c.message_id)
        .limit(_BATCH)
    )
    return [
        WaitingMessage(message_id=row.message_id, channel=row.channel, body=row.body, tries=row.tries) for row in rows
    ]


def take_lease(connection: Connection, message: WaitingMessage, until: int) -> bool:
    """Takes a lease on a message. False: another worker has taken it. It is due again at ``until`` unless settled."""
    updated = connection.execute(
        update(_MESSAGE)
        .where(
            _MESSAGE.c.message_id == message.message_id,
            _MESSAGE.c.channel == message.channel,
            _MESSAGE.c.tries == message.tries,
            _MESSAGE.c.next_try_at.is_not(None),
        )
        .values(tries=message.tries + 1, next_try_at=until)
    )
    return bool(updated.rowcount)


def settle(
    connection: Connection, message: WaitingMessage, *, delivered_at: int | None, next_try_at: int | None, problem: str
) -> None:
    """Stores the outcome of a try: delivered, to be retried, or (without either time) given up."""
    connection.execute(
        update(_MESSAGE)
        .where(_MESSAGE.c.message_id == message.message_id, _MESSAGE.c.channel == message.channel)
        .values(delivered_at=delivered_at, next_try_at=next_try_at, problem=problem)
    )


def clean_up(connection: Connection, channels: Sequence[str], before_ms: int) -> None:
    """Deletes settled messages older than ``before_ms``, and all messages of channels that are no longer configured."""
    settled = _MESSAGE.c.next_try_at.is_(None) & (_MESSAGE.c.created_at < before_ms)
    connection.execute(delete(_MESSAGE).where(settled | _MESSAGE.c.channel.not_in(channels)))


def message_counts(connection: Connection) -> dict[str, int]:
    """The number of stored messages that are ``waiting``, ``delivered`` and ``given_up``."""
    counts = select(func.count(), func.count(_MESSAGE.c.next_try_at), func.count(_MESSAGE.c.delivered_at))
    total, waiting, delivered = connection.execute(counts.select_from(_MESSAGE)).one()
    return {"waiting": waiting, "delivered": delivered, "given_up": total - waiting - delivered}
