"""What does one backend hold of ours, as far as we know?

A ledger belongs to a base URL and an API key. Another one of either is another ledger, which starts empty: nothing is
ever deleted in a backend on the word of another one's ledger.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, func, select, update

from app.database.engine import reading, writing
from app.store.statements import run
from app.store.sync_tables import LedgerItemRow, LedgerRow

Clock = Callable[[], datetime]

_LEDGER = LedgerRow.__table__  # type: ignore[attr-defined]  # SQLModel does not declare it
_ITEM = LedgerItemRow.__table__  # type: ignore[attr-defined]  # as above
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FINGERPRINT = (
    "({row}.digest || '|' || {row}.access_type || '|' || {row}.access_role || '|' "
    "|| CASE WHEN {row}.disabled THEN '1' ELSE '0' END || '|' || {row}.parent_id)"
)
"""What was tried, or would be, as an SQL expression on both databases; ``{row}`` is a table or alias with an item's
columns (``plan_item``, ``ledger_item``). ``item_failure.fingerprint`` holds it: a failure counts against a later plan
only while the same thing would be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One backend's ledger as it stands in the database."""

    ledger_id: int
    base_url: str
    ledger_revision: int
    verified_at: datetime | None

    @property
    def wants_verify(self) -> bool:
        """Whether the backend was never read back as a whole, so that the next run begins with that."""
        return self.verified_at is None


def epoch_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, the form in which times are stored."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_epoch_ms(milliseconds: int) -> datetime:
    """The moment, in UTC, that a stored time means."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def fingerprint(*, digest: str, access_type: str, access_role: str, disabled: bool, parent_id: str) -> str:
    """The same as ``FINGERPRINT``, for one item in memory."""
    return f"{digest}|{access_type}|{access_role}|{int(disabled)}|{parent_id}"


def open_ledger(engine: Engine, base_url: str, api_key: str, clock: Clock) -> Ledger:
    """The ledger of this backend; a new, empty one where there is none. The key itself is not kept."""
    base_url = base_url.rstrip("/")
    key = {"base_url": base_url, "api_key_digest": hashlib.sha256(api_key.encode()).hexdigest()}
    with writing(engine) as connection:
        run(
            connection,
            "INSERT INTO ledger (base_url, api_key_digest, ledger_revision, created_at)"
            " VALUES (:base_url, :api_key_digest, 0, :created_at)"
            " ON CONFLICT (base_url, api_key_digest) DO NOTHING",
            {**key, "created_at": epoch_ms(clock())},
        )
        ledger_id = connection.execute(
            select(_LEDGER.c.ledger_id).where(
                _LEDGER.c.base_url == base_url, _LEDGER.c.api_key_digest == key["api_key_digest"]
            )
        ).scalar_one()
        return read_ledger(connection, ledger_id)


def read_ledger(connection: Connection, ledger_id: int) -> Ledger:
    """The ledger as it stands now. Raises ``LookupError`` where there is none of that id."""
    row = connection.execute(select(_LEDGER).where(_LEDGER.c.ledger_id == ledger_id)).one_or_none()
    if row is None:
        raise LookupError(f"there is no ledger {ledger_id}")
    return Ledger(
        ledger_id=row.ledger_id,
        base_url=row.base_url,
        ledger_revision=row.ledger_revision,
        verified_at=None if row.verified_at is None else from_epoch_ms(row.verified_at),
    )


def move_on(connection: Connection, ledger_id: int) -> int:
    """Moves the ledger's revision on, and gives the new one; to be called in every transaction that changes its items.

    ``gone_at`` is planning's own note and does not count as a change.
    """
    moved: int = connection.execute(
        update(_LEDGER)
        .where(_LEDGER.c.ledger_id == ledger_id)
        .values(ledger_revision=_LEDGER.c.ledger_revision + 1)
        .returning(_LEDGER.c.ledger_revision)
    ).scalar_one()
    return moved


def mark_verified(connection: Connection, ledger_id: int, now: datetime) -> None:
    """Writes down that a verify of the whole backend ended."""
    connection.execute(update(_LEDGER).where(_LEDGER.c.ledger_id == ledger_id).values(verified_at=epoch_ms(now)))


def held_by_kind(engine: Engine, ledger_id: int) -> dict[str, int]:
    """How many items of each kind the backend holds of ours; a kind of which there is none is missing."""
    with reading(engine) as connection:
        rows = connection.execute(
            select(_ITEM.c.kind, func.count().label("items"))
            .where(_ITEM.c.ledger_id == ledger_id)
            .group_by(_ITEM.c.kind)
        )
        return {row.kind: row.items for row in rows}


def forget_failures(
    connection: Connection, ledger_id: int, *, organization_id: str | None = None, parked_only: bool = True
) -> int:
    """Lets parked items be tried again ("someone says retry"); gives how many there were."""
    conditions = ["ledger_id = :ledger_id"]
    if organization_id is not None:
        conditions.append("organization_id = :organization_id")
    if parked_only:
        conditions.append("parked")
    return run(
        connection,
        "DELETE FROM item_failure WHERE {conditions}",
        {"ledger_id": ledger_id, "organization_id": organization_id},
        conditions=" AND ".join(conditions),
    ).rowcount
