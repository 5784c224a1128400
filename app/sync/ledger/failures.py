"""Failed items: how often each failed, and when it is retried.

The rules: ``app/sync/ledger/README.md``, "Failures".

Writes and deletes of an item are counted separately. ``failure_lists.py`` shows the failures to operators.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from collections.abc import Mapping, Sequence
from hashlib import sha256
from random import Random

from sqlalchemy import Connection

from app.foundation.database.statements import json_list, json_lists, run
from app.sync.ledger.items import FINGERPRINT, IS_SELECTED, ITEM_KINDS, ItemKey

PARKED_AFTER = 10
"""An item that failed so often is parked: it is not retried until it changes or an operator retries it."""
FIRST_PAUSE_MS = 60_000
"""The pause after the first failure."""
LONGEST_PAUSE_MS = 6 * 3600 * 1000
"""The maximum of later pauses."""

_TRIED = FINGERPRINT.replace("{row}", "p")


def pause_ms(failures: int, random: Random) -> int:
    """The pause after a number of failures. It doubles with each, with jitter."""
    pause: int = min(FIRST_PAUSE_MS << min(failures - 1, 20), LONGEST_PAUSE_MS)
    return round(pause * random.uniform(0.8, 1.2))


def any_failures(connection: Connection, ledger_id: int) -> bool:
    """Whether any item has failed."""
    query = "SELECT 1 FROM item_failure WHERE ledger_id = :ledger_id LIMIT 1"
    return run(connection, query, {"ledger_id": ledger_id}).first() is not None


def message_digest(message: str) -> str:
    """The indexed form of a message."""
    return sha256(message.encode()).hexdigest()[:32]


def forget_settled(connection: Connection, ledger_id: int, plan_id: str) -> int:
    """Removes the failures of items that a complete plan does not contain, and returns their number."""
    return run(
        connection,
        """
        DELETE FROM item_failure WHERE ledger_id = :ledger_id AND NOT EXISTS (
            SELECT 1 FROM plan_item p WHERE p.plan_id = :plan_id AND p.kind = item_failure.kind
            AND p.organization_id = item_failure.organization_id AND p.container_id = item_failure.container_id
            AND p.item_id = item_failure.item_id AND (p.action = 'delete') = item_failure.deleting)
        """,
        {"ledger_id": ledger_id, "plan_id": plan_id},
    ).rowcount


def note_failures(
    connection: Connection, *, ledger_id: int, plan_id: str, messages: Mapping[int, str], now_ms: int, random: Random
) -> None:
    """Adds one failure to each item. ``messages``: by ordinal in the plan."""
    if not messages:
        return
    rows = run(
        connection,
        f"""
        SELECT p.ordinal, p.kind, p.organization_id, p.container_id, p.item_id, p.action = 'delete' AS deleting,
               {_TRIED} AS fingerprint,
               CASE WHEN f.fingerprint = {_TRIED} THEN f.failures ELSE 0 END AS before,
               CASE WHEN f.fingerprint = {_TRIED} THEN f.failing_since END AS since
        FROM plan_item p
        LEFT JOIN item_failure f ON f.ledger_id = :ledger_id AND f.kind = p.kind
            AND f.organization_id = p.organization_id AND f.container_id = p.container_id
            AND f.item_id = p.item_id AND f.deleting = (p.action = 'delete')
        WHERE p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals)) ORDER BY p.ordinal
        """,
        {"ledger_id": ledger_id, "plan_id": plan_id, "ordinals": json_list(messages)},
    ).all()
    # Two operations on one item count as one failure, with the last message.
    counted = {
        (row.kind, row.organization_id, row.container_id, row.item_id, bool(row.deleting)): {
            **row._asdict(),
            "ledger_id": ledger_id,
            "deleting": bool(row.deleting),
            "failures": row.before + 1,
            "retry_at": now_ms + pause_ms(row.before + 1, random),
            "parked": row.before + 1 >= PARKED_AFTER,
            "message": messages[row.ordinal],
            "message_digest": message_digest(messages[row.ordinal]),
            "failing_since": now_ms if row.since is None else row.since,
        }
        for row in rows
    }
    if not counted:
        return
    run(
        connection,
        """
        INSERT INTO item_failure (ledger_id, kind, organization_id, container_id, item_id, deleting, fingerprint,
                                  failures, retry_at, parked, message, message_digest, failing_since)
        VALUES (:ledger_id, :kind, :organization_id, :container_id, :item_id, :deleting, :fingerprint,
                :failures, :retry_at, :parked, :message, :message_digest, :failing_since)
        ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id, deleting) DO UPDATE
        SET fingerprint = excluded.fingerprint, failures = excluded.failures, retry_at = excluded.retry_at,
            parked = excluded.parked, message = excluded.message, message_digest = excluded.message_digest,
            failing_since = excluded.failing_since
        """,
        list(counted.values()),
    )


_RETRIED = """
SELECT parked, COUNT(*) AS items FROM item_failure
WHERE ledger_id = :ledger_id AND (parked OR retry_at > :now) AND kind IN (@list(kinds)) AND {is_selected} AND EXISTS (
  SELECT 1 FROM plan_item p WHERE p.plan_id = :plan_id AND p.kind = item_failure.kind
    AND p.organization_id = item_failure.organization_id AND p.container_id = item_failure.container_id
    AND p.item_id = item_failure.item_id AND p.status = 'planned' AND p.covered_by IS NULL
    AND (p.action = 'delete') = item_failure.deleting)
GROUP BY parked
"""


def count_retried(
    connection: Connection,
    *,
    ledger_id: int,
    plan_id: str,
    now_ms: int,
    kinds: Sequence[str],
    items: Sequence[ItemKey],
) -> tuple[int, int]:
    """The numbers of waiting and of parked items that the plan retries, of these kinds and items, or of all.

    Their failures keep counting, so that regular retries end in parking.
    """
    parameters = {"ledger_id": ledger_id, "plan_id": plan_id, "now": now_ms, "kinds": json_list(kinds or ITEM_KINDS)}
    is_selected = IS_SELECTED.replace("{row}", "item_failure") if items else "TRUE"
    rows = run(connection, _RETRIED, parameters | {"selected_items": json_lists(items)}, is_selected=is_selected)
    numbers = {bool(row.parked): row.items for row in rows}
    return numbers.get(False, 0), numbers.get(True, 0)


def forget_failures(connection: Connection, *, ledger_id: int, plan_id: str, ordinals: Sequence[int]) -> None:
    """Removes the failures of items that succeeded, unless another of their operations failed or is still planned."""
    run(
        connection,
        """
        DELETE FROM item_failure
        WHERE (ledger_id, kind, organization_id, container_id, item_id, deleting) IN (
            SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id,
                   p.action = 'delete'
            FROM plan_item p
            WHERE p.plan_id = :plan_id AND p.ordinal IN (@numbers(ordinals))
            AND NOT EXISTS (
                SELECT 1 FROM plan_item o WHERE o.plan_id = p.plan_id AND o.kind = p.kind
                AND o.organization_id = p.organization_id AND o.container_id = p.container_id
                AND o.item_id = p.item_id AND o.ordinal <> p.ordinal
                AND (o.action = 'delete') = (p.action = 'delete')
                AND o.status IN ('planned', 'failed', 'waiting', 'parked')
            )
        )
        """,
        {"ledger_id": ledger_id, "plan_id": plan_id, "ordinals": json_list(ordinals)},
    )
