"""The journal of calls: which were sent, and which were never answered.

The rules: ``app/sync/ledger/README.md``, "The journal".

A call is recorded before it is sent, and settled in the transaction that processes its answer. A call that is not
settled while no run is active was in flight when a process died: ``recover`` marks its items as unconfirmed.
"""

# ruff: noqa: S608 - SQL consists of constants of this project; data is in parameters.

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Engine

from app.foundation.database.engine import writing
from app.foundation.database.statements import json_list, run
from app.sync.ledger.ledger import increment_revision
from app.sync.ledger.settlement import UNCONFIRM_ON_CONFLICT, UNCONFIRMED_VALUES


@dataclass(frozen=True, slots=True)
class JournalledCall:
    """A call that is about to be sent."""

    call_id: int
    operation: str
    ordinals: Sequence[int]


def last_call_id(connection: Connection) -> int:
    """The highest id in the journal. Only the holder of the lock may use the ids that follow."""
    last: int = run(connection, "SELECT COALESCE(MAX(call_id), 0) FROM call").scalar_one()
    return last


def journal_calls(
    connection: Connection, *, run_id: str, plan_id: str, ledger_id: int, calls: Sequence[JournalledCall], now_ms: int
) -> None:
    """Records calls before they are sent."""
    if calls:
        run(
            connection,
            """
            INSERT INTO call (call_id, run_id, plan_id, ledger_id, operation, ordinals, first_ordinal, sent_at)
            VALUES (:call_id, :run_id, :plan_id, :ledger_id, :operation, :ordinals, :first_ordinal, :sent_at)
            """,
            [
                {
                    "call_id": call.call_id,
                    "run_id": run_id,
                    "plan_id": plan_id,
                    "ledger_id": ledger_id,
                    "operation": call.operation,
                    "ordinals": json_list(call.ordinals),
                    "first_ordinal": min(call.ordinals),
                    "sent_at": now_ms,
                }
                for call in calls
            ],
        )


def settle_calls(connection: Connection, call_ids: Sequence[int], *, now_ms: int) -> set[int]:
    """Marks calls as settled, and returns those that were not settled before."""
    if not call_ids:
        return set()
    rows = run(
        connection,
        """
        UPDATE call SET settled_at = :now WHERE call_id IN (@numbers(call_ids)) AND settled_at IS NULL
        RETURNING call_id
        """,
        {"now": now_ms, "call_ids": json_list(call_ids)},
    )
    return set(rows.scalars())


@dataclass(frozen=True, slots=True)
class Exchange:
    """A summary of the requests that a call caused."""

    code: int | None
    """The HTTP status of the last refusal, or else of the last answer."""
    tries: int
    """The number of requests sent."""
    answer: str
    """The beginning of that answer if something was not done."""


def note_exchanges(connection: Connection, exchanges: Mapping[int, Exchange]) -> None:
    """Stores exchanges, by call, for operators."""
    if exchanges:
        run(
            connection,
            "UPDATE call SET code = :code, tries = :tries, answer = :answer WHERE call_id = :call_id",
            [{"call_id": call_id, **asdict(exchange)} for call_id, exchange in exchanges.items()],
        )


@dataclass(frozen=True, slots=True)
class SentCall:
    """A call in the journal. Times are epoch milliseconds."""

    call_id: int
    operation: str
    items: int
    sent_at: int
    settled_at: int | None
    code: int | None
    tries: int
    answer: str


_PAGE = 20
"""Calls that are read together."""

_MAX_CALLS = 400
"""Calls among which that of an item is searched."""

# The items of a call are neighbours, so the last call that begins before an item contains it. Items that were detached
# from a delete are exceptions.
_BEFORE = """
SELECT call_id, operation, ordinals, sent_at, settled_at, code, tries, answer
FROM call @by(ix_call_plan_id_first_ordinal)
WHERE plan_id = :plan_id AND first_ordinal <= :ordinal ORDER BY first_ordinal DESC, call_id DESC
LIMIT :limit OFFSET :offset
"""


def call_of_item(connection: Connection, plan_id: str, ordinal: int) -> SentCall | None:
    """The last call that contained an item. None if there is none or it was removed."""
    for offset in range(0, _MAX_CALLS, _PAGE):
        values = {"plan_id": plan_id, "ordinal": ordinal, "limit": _PAGE, "offset": offset}
        rows = run(connection, _BEFORE, values).all()
        for call_id, operation, encoded, *answer in rows:
            ordinals = json.loads(encoded)
            if ordinal in ordinals:
                return SentCall(call_id, operation, len(ordinals), *answer)
        if len(rows) < _PAGE:
            break
    return None


def recover(engine: Engine, ledger_id: int, *, now_ms: int) -> int:
    """Settles the calls that were in flight when a process died, and returns their number. The caller holds the lock.

    Their items become unconfirmed, so that the next plan sends what is still due. If a call sent only fields, only the
    fields become unknown. The calls themselves are not repeated, because the directory may have changed since: a delete
    could remove what is desired now.
    """
    with writing(engine) as connection:
        pending = "SELECT call_id FROM call WHERE ledger_id = :ledger_id AND settled_at IS NULL"
        count = len(run(connection, pending, {"ledger_id": ledger_id}).all())
        if count:
            parameters = {"ledger_id": ledger_id, "now": now_ms}
            for change in (_FIELDS_BECOME_UNKNOWN, _ADDS_BECOME_UNCONFIRMED, _DELETES_BECOME_UNCONFIRMED):
                run(connection, f"{_IN_FLIGHT} {change}", parameters)
            increment_revision(connection, ledger_id)
            run(connection, _SETTLE_ALL, parameters)
        return count


# The plan items of unsettled calls.
_IN_FLIGHT = """
    WITH in_flight AS (
        SELECT p.* FROM call c CROSS JOIN @each(c.ordinals) AS o
        JOIN plan_item p ON p.plan_id = c.plan_id AND p.ordinal = CAST(o.value AS BIGINT)
        WHERE c.ledger_id = :ledger_id AND c.settled_at IS NULL AND p.status = 'planned'
    )
"""

_SENDS_FIELDS_ALONE = "operation IN ('update_organizations', 'update_documents', 'update_users')"
"""Updates that do not move anything: after a move without an answer, the item may be in either folder."""

# A digest that differs from all others: the next plan updates the fields and nothing else.
_FIELDS_BECOME_UNKNOWN = f"""
    UPDATE ledger_item SET digest = '?'
    WHERE certain AND (ledger_id, kind, organization_id, container_id, item_id) IN (
        SELECT CAST(:ledger_id AS INTEGER), kind, organization_id, container_id, item_id
        FROM in_flight WHERE {_SENDS_FIELDS_ALONE}
    )
"""

_ADDS_BECOME_UNCONFIRMED = f"""
    INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
                             access_role, disabled, certain, gone_at)
    SELECT DISTINCT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id,
                    {UNCONFIRMED_VALUES}
    FROM in_flight p WHERE p.action <> 'delete' AND NOT (p.{_SENDS_FIELDS_ALONE} AND EXISTS (
        SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = p.kind
        AND l.organization_id = p.organization_id AND l.container_id = p.container_id AND l.item_id = p.item_id
        AND l.certain
    ))
    {UNCONFIRM_ON_CONFLICT}
"""

_DELETES_BECOME_UNCONFIRMED = """
    UPDATE ledger_item SET certain = FALSE
    WHERE (ledger_id, kind, organization_id, container_id, item_id) IN (
        SELECT CAST(:ledger_id AS INTEGER), kind, organization_id, container_id, item_id
        FROM in_flight WHERE action = 'delete'
        UNION
        SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id
        FROM in_flight JOIN plan_item p ON p.plan_id = in_flight.plan_id AND p.covered_by = in_flight.ordinal
    )
"""

_SETTLE_ALL = "UPDATE call SET settled_at = :now WHERE ledger_id = :ledger_id AND settled_at IS NULL"
