# ruff: noqa: S608 - SQL is put together from constants of this module alone; data travels in parameters.
"""Which items could not be brought about, how often, and when are they tried again?

An item that fails rests for a while before another run tries it, each time longer; after ``PARKED_AFTER`` failures in a
row it is parked until what it should be changes, or someone says retry (``app.store.ledger.forget_failures``). Failures
to write and to delete an item are counted apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from sqlalchemy import Connection, Engine, select, text

from app.database.engine import is_sqlite, reading
from app.store.ledger import FINGERPRINT
from app.store.sync_tables import ItemFailureRow

PARKED_AFTER = 10
FIRST_PAUSE_MS = 60_000
LONGEST_PAUSE_MS = 6 * 3600 * 1000

_TRIED = FINGERPRINT.replace("{row}", "p")
_FAILURE = ItemFailureRow.__table__  # type: ignore[attr-defined]  # SQLModel does not declare it


def pause_ms(failures: int, random: Random) -> int:
    """How long an item rests after so many failures: doubling, with jitter so that many do not come back at once."""
    pause: int = min(FIRST_PAUSE_MS << min(failures - 1, 20), LONGEST_PAUSE_MS)
    return round(pause * random.uniform(0.8, 1.2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An item that could not be brought about."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str
    deleting: bool
    failures: int
    retry_at: int
    parked: bool
    message: str


def any_failures(connection: Connection, ledger_id: int) -> bool:
    """Whether anything is remembered as failed."""
    query = select(_FAILURE.c.failures).where(_FAILURE.c.ledger_id == ledger_id).limit(1)
    return connection.execute(query).first() is not None


def failures(engine: Engine, ledger_id: int, *, parked_only: bool = False, limit: int = 100) -> list[Failure]:
    """What failed, the most stubborn first."""
    query = select(*[_FAILURE.c[name] for name in Failure.__dataclass_fields__]).where(
        _FAILURE.c.ledger_id == ledger_id
    )
    if parked_only:
        query = query.where(_FAILURE.c.parked)
    query = query.order_by(_FAILURE.c.failures.desc(), _FAILURE.c.kind, _FAILURE.c.item_id).limit(limit)
    with reading(engine) as connection:
        return [Failure(**row._asdict()) for row in connection.execute(query)]


def note_failures(
    connection: Connection,
    *,
    ledger_id: int,
    plan_id: str,
    messages: Mapping[int, str],
    now_ms: int,
    random: Random,
) -> None:
    """Counts one more failure for each of the plan's items, given with its message by ordinal."""
    if not messages:
        return
    rows = connection.execute(
        text(
            f"""
            SELECT p.ordinal, p.kind, p.organization_id, p.container_id, p.item_id, p.action = 'delete' AS deleting,
                   {_TRIED} AS fingerprint,
                   CASE WHEN f.fingerprint = {_TRIED} THEN f.failures ELSE 0 END AS before
            FROM plan_item p
            LEFT JOIN item_failure f ON f.ledger_id = :ledger_id AND f.kind = p.kind
                AND f.organization_id = p.organization_id AND f.container_id = p.container_id
                AND f.item_id = p.item_id AND f.deleting = (p.action = 'delete')
            WHERE p.plan_id = :plan_id AND p.ordinal IN {ordinals_sql(connection)}
            """
        ),
        {"ledger_id": ledger_id, "plan_id": plan_id, "ordinals": ordinals_json(list(messages))},
    ).all()
    # Two operations on one thing count as one failure: the last message stands.
    counted = {
        (row.kind, row.organization_id, row.container_id, row.item_id, bool(row.deleting)): {
            "ledger_id": ledger_id,
            "kind": row.kind,
            "organization_id": row.organization_id,
            "container_id": row.container_id,
            "item_id": row.item_id,
            "deleting": bool(row.deleting),
            "fingerprint": row.fingerprint,
            "failures": row.before + 1,
            "retry_at": now_ms + pause_ms(row.before + 1, random),
            "parked": row.before + 1 >= PARKED_AFTER,
            "message": messages[row.ordinal],
        }
        for row in rows
    }
    if not counted:
        return
    connection.execute(
        text(
            """
            INSERT INTO item_failure (ledger_id, kind, organization_id, container_id, item_id, deleting, fingerprint,
                                      failures, retry_at, parked, message)
            VALUES (:ledger_id, :kind, :organization_id, :container_id, :item_id, :deleting, :fingerprint,
                    :failures, :retry_at, :parked, :message)
            ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id, deleting) DO UPDATE
            SET fingerprint = excluded.fingerprint, failures = excluded.failures, retry_at = excluded.retry_at,
                parked = excluded.parked, message = excluded.message
            """
        ),
        list(counted.values()),
    )


def forget_failures(connection: Connection, *, ledger_id: int, plan_id: str, ordinals: Sequence[int]) -> None:
    """The items succeeded. One of whose operations another one failed or is still to come keeps its count."""
    connection.execute(
        text(
            f"""
            DELETE FROM item_failure
            WHERE (ledger_id, kind, organization_id, container_id, item_id, deleting) IN (
                SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id,
                       p.action = 'delete'
                FROM plan_item p
                WHERE p.plan_id = :plan_id AND p.ordinal IN {ordinals_sql(connection)}
                AND NOT EXISTS (
                    SELECT 1 FROM plan_item o WHERE o.plan_id = p.plan_id AND o.kind = p.kind
                    AND o.organization_id = p.organization_id AND o.container_id = p.container_id
                    AND o.item_id = p.item_id AND o.ordinal <> p.ordinal
                    AND (o.action = 'delete') = (p.action = 'delete')
                    AND o.status IN ('planned', 'failed', 'waiting', 'parked')
                )
            )
            """
        ),
        {"ledger_id": ledger_id, "plan_id": plan_id, "ordinals": ordinals_json(ordinals)},
    )


def ordinals_sql(connection: Connection) -> str:
    """The ordinals in the one parameter ``:ordinals``, as a subquery in brackets."""
    if is_sqlite(connection):
        return "(SELECT value FROM json_each(:ordinals))"
    return "(SELECT jsonb_array_elements_text(CAST(:ordinals AS jsonb))::bigint)"


def ordinals_json(ordinals: Sequence[int]) -> str:
    """The value of the parameter ``:ordinals``."""
    return f"[{','.join(map(str, ordinals))}]"
