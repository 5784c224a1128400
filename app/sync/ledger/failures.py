"""Failed items: how often each failed, and when it is retried.

The rules: ``app/sync/ledger/README.md``, "Failures".

Writes and deletes of an item are counted separately.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from sqlalchemy import Connection, Row

from app.foundation.database.statements import json_list, run
from app.sync.ledger.ledger import FINGERPRINT, ITEM_KINDS, ItemKey, selected_items

PARKED_AFTER = 10
FIRST_PAUSE_MS = 60_000
LONGEST_PAUSE_MS = 6 * 3600 * 1000

_TRIED = FINGERPRINT.replace("{row}", "p")


def pause_ms(failures: int, random: Random) -> int:
    """The pause after a number of failures. It doubles with each, with jitter."""
    pause: int = min(FIRST_PAUSE_MS << min(failures - 1, 20), LONGEST_PAUSE_MS)
    return round(pause * random.uniform(0.8, 1.2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An item that failed. ``retry_at`` is epoch milliseconds."""

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
    """Whether any item has failed."""
    query = "SELECT 1 FROM item_failure WHERE ledger_id = :ledger_id LIMIT 1"
    return run(connection, query, {"ledger_id": ledger_id}).first() is not None


@dataclass(frozen=True, slots=True)
class FailureCount:
    """The number of items of one kind that wait for a retry, or are parked."""

    kind: str
    parked: bool
    items: int
    since: int | None
    """When the first of them failed first, in epoch milliseconds; None if unknown."""


_NO_LIMIT = 1 << 62


def _first(columns: str) -> str:
    """A query for the first ``limit`` failures, parked or not. It reads a range of the index for each kind: with a list
    of kinds, PostgreSQL would read all of them."""
    ranges = (
        f"SELECT {columns} FROM item_failure f @by(ix_item_failure_listed)"
        f" WHERE f.ledger_id = :ledger_id AND f.parked = :parked AND f.kind = '{kind}'"
        for kind in ITEM_KINDS
    )
    return f"{' UNION ALL '.join(ranges)} LIMIT :most"


_SHOWN = ", ".join(f"f.{name}" for name in Failure.__dataclass_fields__)

_COUNTED = f"""
SELECT kind, COUNT(*) AS items, MIN(failing_since) AS since FROM ({_first("f.kind, f.failing_since")}) AS failed
GROUP BY kind ORDER BY kind
"""

_WORST = f"""
SELECT * FROM ({_first(_SHOWN)}) AS failed
ORDER BY failures DESC, kind, organization_id, container_id, item_id, deleting LIMIT 1
"""


def count_failures(connection: Connection, ledger_id: int, *, limit: int | None = None) -> list[FailureCount]:
    """The number of failed items of each kind. Counts at most ``limit`` that wait, and ``limit`` that are parked."""
    counts = [
        FailureCount(row.kind, parked, row.items, row.since)
        for parked in (False, True)
        for row in run(connection, _COUNTED, _parameters(ledger_id, parked=parked, limit=limit))
    ]
    return sorted(counts, key=lambda group: (group.kind, group.parked))


def _parameters(ledger_id: int, *, parked: bool, limit: int | None) -> dict[str, object]:
    return {"ledger_id": ledger_id, "parked": parked, "most": _NO_LIMIT if limit is None else limit}


_OF_ITEM = f"""
SELECT {_SHOWN} FROM item_failure f
WHERE f.ledger_id = :ledger_id AND f.kind = :kind AND f.organization_id = :organization_id
  AND f.container_id = :container_id AND f.item_id = :item_id
ORDER BY f.deleting
"""

_NUMBER = f"SELECT COUNT(*) FROM ({_first('f.kind')}) AS counted"


def count_parked(connection: Connection, ledger_id: int, *, limit: int) -> int:
    """The number of parked items, counted up to ``limit``."""
    return int(run(connection, _NUMBER, _parameters(ledger_id, parked=True, limit=limit)).scalar_one())


def worst_failure(connection: Connection, ledger_id: int, *, parked: bool, limit: int | None = None) -> Failure | None:
    """The item that failed most often, of the first ``limit`` that are parked, or that wait."""
    row = run(connection, _WORST, _parameters(ledger_id, parked=parked, limit=limit)).first()
    return None if row is None else _failure(row)


def _failure(row: Row[Any]) -> Failure:
    return Failure(**{**row._asdict(), "deleting": bool(row.deleting), "parked": bool(row.parked)})


def failures_of(connection: Connection, ledger_id: int, key: ItemKey) -> list[Failure]:
    """The failures of one item: writing it, deleting it, or both."""
    return [_failure(row) for row in run(connection, _OF_ITEM, {"ledger_id": ledger_id, **key._asdict()})]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """What failures have in common; None for any value."""

    kind: str | None = None
    organization_id: str | None = None
    message: str | None = None


MAX_GROUPED = 10_000
"""The maximum of failures that are grouped."""

_GROUPS = f"""
SELECT kind, organization_id, message, COUNT(*) AS items, MIN(failing_since) AS since
FROM ({_first("f.kind, f.organization_id, f.message, f.failing_since")}) AS failed
GROUP BY kind, organization_id, message ORDER BY COUNT(*) DESC, kind, organization_id, message LIMIT :limit
"""


def failure_groups(
    connection: Connection, ledger_id: int, *, parked: bool, limit: int
) -> list[tuple[FailureGroup, int, int | None]]:
    """Groups of failures by kind, organization and message, the largest first, each with its number of items and the
    time of its first failure. Groups the first ``MAX_GROUPED`` failures."""
    return [
        (FailureGroup(kind=row.kind, organization_id=row.organization_id, message=row.message), row.items, row.since)
        for row in run(
            connection, _GROUPS, {**_parameters(ledger_id, parked=parked, limit=MAX_GROUPED), "limit": limit}
        )
    ]


_WITHIN = ("organization_id", "container_id", "item_id", "deleting")
"""The order of failures of one kind."""

_PAGE = f"""
SELECT {_SHOWN} FROM item_failure f @by({{index}})
WHERE f.ledger_id = :ledger_id AND f.parked = :parked AND f.kind = :kind {{alike}} {{behind}}
ORDER BY {", ".join(f"f.{name}" for name in _WITHIN)} LIMIT :limit
"""


def failures_page(
    connection: Connection,
    ledger_id: int,
    *,
    parked: bool,
    like: FailureGroup | None = None,
    after: tuple[str, str, str, str, bool] | None = None,
    limit: int = 50,
) -> list[Failure]:
    """A page of failures, parked or waiting, ordered by key: kind, organization, container, item and ``deleting``.

    ``like``: of one group. ``after``: the key after which the page begins. Each kind is a range of an index, of which
    no more rows are read than returned.
    """
    like = like or FailureGroup()
    parameters: dict[str, object] = {"ledger_id": ledger_id, "parked": parked}
    alike = ""
    if like.message is not None:
        alike += " AND f.message_digest = :message_digest AND f.message = :message"
        parameters |= {"message": like.message, "message_digest": message_digest(like.message)}
    if like.organization_id is not None:
        alike += " AND f.organization_id = :organization_id"
        parameters["organization_id"] = like.organization_id
    failures: list[Failure] = []
    for kind in sorted(ITEM_KINDS) if like.kind is None else [like.kind]:
        behind = ""
        if after is not None and kind <= after[0]:
            if kind < after[0]:
                continue
            last = {
                name: value
                for name, value in zip(_WITHIN, after[1:], strict=True)
                if name != "organization_id" or like.organization_id is None
            }
            columns, values = (", ".join(f"{before}{name}" for name in last) for before in ("f.", ":last_"))
            behind = f"AND ({columns}) > ({values})"
            parameters |= {f"last_{name}": value for name, value in last.items()}
        page = run(
            connection,
            _PAGE,
            {**parameters, "kind": kind, "limit": limit - len(failures)},
            index="ix_item_failure_listed" if like.message is None else "ix_item_failure_alike",
            alike=alike,
            behind=behind,
        )
        failures += [_failure(row) for row in page]
        if len(failures) >= limit:
            break
    return failures


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
    items: Sequence[ItemKey] = (),
) -> tuple[int, int]:
    """The numbers of waiting and of parked items that the plan retries, of these kinds and items, or of all.

    Their failures keep counting, so that regular retries end in parking.
    """
    parameters = {"ledger_id": ledger_id, "plan_id": plan_id, "now": now_ms, "kinds": json_list(kinds or ITEM_KINDS)}
    with selected_items(connection, items, "item_failure") as is_selected:
        rows = run(connection, _RETRIED, parameters, is_selected=is_selected).all()
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
