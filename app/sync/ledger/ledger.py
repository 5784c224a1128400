"""The ledger: what one backend holds of ours, as far as we know.

A ledger belongs to a base URL and an API key. Another one of either is another ledger, which starts empty: nothing is
ever deleted in a backend on the word of another one's ledger.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, bindparam, func, select, update

from app.foundation.clock import Clock, epoch_ms, from_epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.statements import run
from app.sync.ledger.tables import LedgerItemRow, LedgerRow

_LEDGER = LedgerRow.__table__
_ITEM = LedgerItemRow.__table__

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
        ledger_id = run(
            connection,
            "SELECT ledger_id FROM ledger WHERE base_url = :base_url AND api_key_digest = :api_key_digest",
            key,
        ).scalar_one()
        return read_ledger(connection, ledger_id)


def is_another_workspace(connection: Connection, base_url: str, api_key: str) -> bool:
    """Whether the last run synchronized another API key of this backend, and this one was never used."""
    used = ledger_in_use(connection)
    if used is None:
        return False
    digest = hashlib.sha256(api_key.encode()).hexdigest()
    rows = run(connection, "SELECT ledger_id, base_url, api_key_digest FROM ledger").all()
    same = [row for row in rows if row.base_url == base_url.rstrip("/")]
    known = any(row.api_key_digest == digest for row in same)
    return not known and any(row.ledger_id == used for row in same)


def ledger_in_use(connection: Connection) -> int | None:
    """The ledger of the last run that got as far as to have one: what a node goes by that knows no credentials."""
    found: int | None = run(
        connection, "SELECT ledger_id FROM run WHERE ledger_id IS NOT NULL ORDER BY run_id DESC LIMIT 1"
    ).scalar()
    if found is None:
        found = run(connection, "SELECT MAX(ledger_id) FROM ledger").scalar()
    return found


_ONE = select(_LEDGER).where(_LEDGER.c.ledger_id == bindparam("of_ledger"))


def read_ledger(connection: Connection, ledger_id: int) -> Ledger:
    """The ledger as it stands now. Raises ``LookupError`` where there is none of that id."""
    row = connection.execute(_ONE, {"of_ledger": ledger_id}).one_or_none()
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


@dataclass(frozen=True, slots=True)
class LastVerify:
    """The last look at what the backend really holds."""

    at: int
    """Epoch milliseconds."""
    findings: Mapping[str, int]
    """missing, changed, adopted, … → how many items."""


def note_findings(connection: Connection, ledger_id: int, findings: Mapping[str, int], now: datetime) -> None:
    """Writes down what a look at the backend, as a whole or in part, has found."""
    connection.execute(
        update(_LEDGER)
        .where(_LEDGER.c.ledger_id == ledger_id)
        .values(looked_at=epoch_ms(now), findings=json.dumps(dict(findings)))
    )


def last_verify(connection: Connection, ledger_id: int) -> LastVerify | None:
    """What the last look at the backend found; None: there was none yet."""
    row = connection.execute(
        select(_LEDGER.c.looked_at, _LEDGER.c.findings).where(_LEDGER.c.ledger_id == ledger_id)
    ).one_or_none()
    if row is None or row.looked_at is None:
        return None
    return LastVerify(row.looked_at, json.loads(row.findings))


def items_by_kind(connection: Connection, ledger_id: int) -> dict[str, int]:
    """How many items of each kind the backend holds of ours; a kind of which there is none is missing."""
    rows = connection.execute(
        select(_ITEM.c.kind, func.count().label("items")).where(_ITEM.c.ledger_id == ledger_id).group_by(_ITEM.c.kind)
    )
    return {row.kind: row.items for row in rows}
