"""One item: what the ledger holds of it, and how often telling it failed."""

from dataclasses import dataclass

from sqlalchemy import Connection

from app.foundation.database.statements import run

_ITEM = """
SELECT parent_id, access_type, access_role, disabled, certain, gone_at FROM ledger_item
WHERE ledger_id = :ledger_id AND kind = :kind AND organization_id = :organization_id AND container_id = :container_id
  AND item_id = :item_id
"""
_FAILURES = """
SELECT deleting, failures, parked, retry_at, message FROM item_failure
WHERE ledger_id = :ledger_id AND kind = :kind AND organization_id = :organization_id AND container_id = :container_id
  AND item_id = :item_id
ORDER BY deleting
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemIdentity:
    """Which item is meant; the parts that its kind has not are empty."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What the backend holds of an item, as it last accepted it. ``gone_at`` is epoch milliseconds."""

    parent_id: str
    access_type: str
    access_role: str
    disabled: bool
    confirmed: bool
    gone_at: int | None


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """Why the backend did not take it. ``retry_at`` is epoch milliseconds."""

    deleting: bool
    failures: int
    parked: bool
    retry_at: int
    message: str


def holding_of(connection: Connection, ledger_id: int, item: ItemIdentity) -> Holding | None:
    """What the ledger has of it; None: nothing."""
    row = run(connection, _ITEM, _keys(ledger_id, item)).one_or_none()
    if row is None:
        return None
    return Holding(row.parent_id, row.access_type, row.access_role, bool(row.disabled), bool(row.certain), row.gone_at)


def failures_of(connection: Connection, ledger_id: int, item: ItemIdentity) -> list[ItemFailure]:
    """What writing or deleting it failed with, while it is not settled."""
    return [
        ItemFailure(bool(row.deleting), row.failures, bool(row.parked), row.retry_at, row.message)
        for row in run(connection, _FAILURES, _keys(ledger_id, item))
    ]


def _keys(ledger_id: int, item: ItemIdentity) -> dict[str, object]:
    return {
        "ledger_id": ledger_id,
        "kind": item.kind,
        "organization_id": item.organization_id,
        "container_id": item.container_id,
        "item_id": item.item_id,
    }
