"""The ledger: the items that Usher has stored in one backend, as far as they are known.

A ledger belongs to a base URL and an API key. With another URL or key a new, empty ledger begins, so that nothing is
deleted in one backend because of the ledger of another.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, func, select, update

from app.foundation.clock import Clock, epoch_ms, from_epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.statements import run
from app.sync.ledger.items import ItemKey
from app.sync.ledger.tables import LedgerItemRow, LedgerRow

_LEDGER = LedgerRow.__table__
_ITEM = LedgerItemRow.__table__


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledger of one backend."""

    ledger_id: int
    ledger_revision: int
    verified_at: datetime | None

    @property
    def needs_verify(self) -> bool:
        """Whether the backend was never read back completely. The next run does it first."""
        return self.verified_at is None


def open_ledger(engine: Engine, base_url: str, api_key: str, clock: Clock) -> Ledger:
    """The ledger of this backend, created if it does not exist. The API key itself is not stored."""
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
        ledger_id = run(
            connection,
            "SELECT ledger_id FROM ledger WHERE base_url = :base_url AND api_key_digest = :api_key_digest",
            key,
        ).scalar_one()
        return read_ledger(connection, ledger_id)


def is_another_workspace(connection: Connection, base_url: str, api_key: str) -> bool:
    """Whether the last run synchronized another API key of this backend, and this one was never used."""
    digest = hashlib.sha256(api_key.encode()).hexdigest()
    query = "SELECT ledger_id, api_key_digest FROM ledger WHERE base_url = :base_url"
    digests = {row.ledger_id: row.api_key_digest for row in run(connection, query, {"base_url": base_url.rstrip("/")})}
    return digest not in digests.values() and ledger_in_use(connection) in digests


def ledger_in_use(connection: Connection) -> int | None:
    """The ledger of the last run that opened one. Nodes without the credentials use it."""
    ledger_id: int | None = run(
        connection, "SELECT ledger_id FROM run WHERE ledger_id IS NOT NULL ORDER BY run_id DESC LIMIT 1"
    ).scalar()
    if ledger_id is None:
        ledger_id = run(connection, "SELECT MAX(ledger_id) FROM ledger").scalar()
    return ledger_id


def read_ledger(connection: Connection, ledger_id: int) -> Ledger:
    """Reads a ledger. Raises ``LookupError``."""
    row = connection.execute(select(_LEDGER).where(_LEDGER.c.ledger_id == ledger_id)).one_or_none()
    if row is None:
        raise LookupError(f"there is no ledger {ledger_id}")
    return Ledger(
        ledger_id=row.ledger_id,
        ledger_revision=row.ledger_revision,
        verified_at=None if row.verified_at is None else from_epoch_ms(row.verified_at),
    )


def increment_revision(connection: Connection, ledger_id: int) -> None:
    """Increments the ledger's revision. Every transaction that changes its items does this, except for ``gone_at``."""
    run(
        connection,
        "UPDATE ledger SET ledger_revision = ledger_revision + 1 WHERE ledger_id = :ledger_id",
        {"ledger_id": ledger_id},
    )


def mark_verified(connection: Connection, ledger_id: int, now: datetime) -> None:
    """Stores the time at which a complete verify ended."""
    connection.execute(update(_LEDGER).where(_LEDGER.c.ledger_id == ledger_id).values(verified_at=epoch_ms(now)))


@dataclass(frozen=True, slots=True)
class LastVerify:
    """The result of the last verify, complete or not."""

    at: int
    """Epoch milliseconds."""
    findings: Mapping[str, int]
    """missing, changed, adopted, … → number of items."""


def note_findings(connection: Connection, ledger_id: int, findings: Mapping[str, int], now: datetime) -> None:
    """Stores the findings of a verify, complete or not."""
    connection.execute(
        update(_LEDGER)
        .where(_LEDGER.c.ledger_id == ledger_id)
        .values(looked_at=epoch_ms(now), findings=json.dumps(dict(findings)))
    )


def last_verify(connection: Connection, ledger_id: int) -> LastVerify | None:
    """The findings of the last verify. None if there was none."""
    row = connection.execute(
        select(_LEDGER.c.looked_at, _LEDGER.c.findings).where(_LEDGER.c.ledger_id == ledger_id)
    ).one_or_none()
    if row is None or row.looked_at is None:
        return None
    return LastVerify(row.looked_at, json.loads(row.findings))


@dataclass(frozen=True, slots=True)
class ItemState:
    """The state of an item as the backend last accepted it. ``gone_at`` is epoch milliseconds."""

    parent_id: str
    access_type: str
    access_role: str
    disabled: bool
    confirmed: bool
    gone_at: int | None


def item_state(connection: Connection, ledger_id: int, key: ItemKey) -> ItemState | None:
    """The state of an item. None if the ledger does not contain it."""
    columns = _ITEM.c["parent_id", "access_type", "access_role", "disabled", "certain", "gone_at"]
    query = select(*columns).where(
        _ITEM.c.ledger_id == ledger_id, *(_ITEM.c[name] == value for name, value in key._asdict().items())
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else ItemState(*row)


def items_by_kind(connection: Connection, ledger_id: int) -> dict[str, int]:
    """The number of items of each kind. Kinds without items are missing."""
    rows = connection.execute(
        select(_ITEM.c.kind, func.count().label("items")).where(_ITEM.c.ledger_id == ledger_id).group_by(_ITEM.c.kind)
    )
    return {row.kind: row.items for row in rows}
