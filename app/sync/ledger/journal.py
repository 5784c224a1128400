# ruff: noqa: S608 - SQL is put together from constants of this project alone; data travels in parameters.
"""The journal of calls: which were sent, and which were never answered.

The rules: ``app/sync/ledger/README.md``, "The journal".

A call is recorded before it is sent, and settled in the transaction that processes its answer. A call that is not
settled while no run is active was in flight when a process died: ``recover`` marks its items as unconfirmed.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Engine, text

from app.foundation.database.engine import is_sqlite, writing
from app.foundation.database.statements import json_list, run
from app.sync.ledger.settlement import DOUBT_ON_CONFLICT, DOUBTFUL

_WRITE_DOWN = text(
    """
    INSERT INTO call (call_id, run_id, plan_id, ledger_id, operation, ordinals, first_ordinal, sent_at)
    VALUES (:call_id, :run_id, :plan_id, :ledger_id, :operation, :ordinals, :first_ordinal, :sent_at)
    """
)


@dataclass(frozen=True, slots=True)
class JournalledCall:
    """A call that is about to be sent."""

    call_id: int
    operation: str
    ordinals: Sequence[int]


def last_call_id(connection: Connection) -> int:
    """The highest id in the journal; whoever holds the synchronization's lock counts on from there."""
    last: int = run(connection, "SELECT COALESCE(MAX(call_id), 0) FROM call").scalar_one()
    return last


def journal_calls(
    connection: Connection, *, run_id: str, plan_id: str, ledger_id: int, calls: Sequence[JournalledCall], now_ms: int
) -> None:
    """Writes down calls that are about to be sent."""
    if calls:
        connection.execute(
            _WRITE_DOWN,
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
    """Marks calls as answered; those that nobody else had settled before."""
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


_ANSWERED = text("UPDATE call SET code = :code, tries = :tries, answer = :answer WHERE call_id = :call_id")


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """What came back for a call; ``answer`` only where something was not done."""

    call_id: int
    code: int | None
    tries: int
    answer: str


def note_answers(connection: Connection, calls: Sequence[AnsweredCall]) -> None:
    """Writes down what came back, for people."""
    if calls:
        connection.execute(_ANSWERED, [asdict(call) for call in calls])


@dataclass(frozen=True, slots=True)
class SentCall:
    """A call in the journal, for people. Moments are epoch milliseconds."""

    call_id: int
    operation: str
    items: int
    """How many travelled in it."""
    sent_at: int
    settled_at: int | None
    code: int | None
    tries: int
    answer: str


_AT_A_TIME = 20
_LOOKED_AT = 400

# Calls of a plan take its items in their order, so the one that begins next before an item has it; but where what a
# delete covered was sent by itself after all.
_BEFORE = """
SELECT call_id, operation, ordinals, first_ordinal, sent_at, settled_at, code, tries, answer
FROM call @by(ix_call_plan_id_first_ordinal)
WHERE plan_id = :plan_id AND first_ordinal <= :ordinal ORDER BY first_ordinal DESC, call_id DESC
LIMIT :limit OFFSET :offset
"""


def call_of_item(connection: Connection, plan_id: str, ordinal: int) -> SentCall | None:
    """The last call in which an item travelled; None: none, or it is forgotten."""
    for offset in range(0, _LOOKED_AT, _AT_A_TIME):
        values = {"plan_id": plan_id, "ordinal": ordinal, "limit": _AT_A_TIME, "offset": offset}
        rows = run(connection, _BEFORE, values).all()
        for row in rows:
            ordinals = json.loads(row.ordinals)
            if ordinal in ordinals:
                told = row.sent_at, row.settled_at, row.code, row.tries, row.answer
                return SentCall(row.call_id, row.operation, len(ordinals), *told)
        if len(rows) < _AT_A_TIME:
            return None
    return None


def recover(engine: Engine, ledger_id: int, *, now_ms: int) -> int:
    """Settles the calls that were in flight when a process died; how many there were.

    Their items become unconfirmed in the ledger, an add as an item of its own; of one whose fields alone were told,
    only its fields: so the next plan sends again exactly what
    is still due. Sending the very same calls again would be wrong, because the directory may have moved on since: a
    delete that nobody wants any more would destroy what is now wanted. Only for a caller that holds the
    synchronization's lock.
    """
    with writing(engine) as connection:
        pending = "SELECT call_id FROM call WHERE ledger_id = :ledger_id AND settled_at IS NULL"
        count = len(run(connection, pending, {"ledger_id": ledger_id}).all())
        if count:
            in_flight = _in_flight_sql(connection)
            parameters = {"ledger_id": ledger_id, "now": now_ms}
            run(connection, f"{in_flight} {_CONTENT_BECOMES_UNKNOWN}", parameters)
            run(connection, f"{in_flight} {_ADDS_BECOME_UNCONFIRMED}", parameters)
            run(connection, f"{in_flight} {_DELETES_BECOME_UNCONFIRMED}", parameters)
            run(connection, _LEDGER_MOVES_ON, parameters)
            run(connection, _SETTLE_ALL, parameters)
        return count


def _in_flight_sql(connection: Connection) -> str:
    """A common table expression ``flown`` of the plan items that travelled in unsettled calls."""
    if is_sqlite(connection):
        ordinals, value = "json_each(c.ordinals) AS o", "o.value"
    else:
        ordinals, value = "jsonb_array_elements_text(CAST(c.ordinals AS jsonb)) AS o(value)", "o.value::bigint"
    return f"""
        WITH flown AS (
            SELECT p.* FROM call c CROSS JOIN {ordinals}
            JOIN plan_item p ON p.plan_id = c.plan_id AND p.ordinal = {value}
            WHERE c.ledger_id = :ledger_id AND c.settled_at IS NULL AND p.status = 'planned'
        )
    """


_OF_CONTENT_ALONE = "operation IN ('update_organizations', 'update_documents', 'update_users')"
"""Updates that say nothing of where a thing is. A move in flight leaves both folders possible, so it is not one."""

# That it is there, and where, is as confirmed as it was: it is to be updated once more, and not told all that it is.
_CONTENT_BECOMES_UNKNOWN = f"""
    UPDATE ledger_item SET digest = '?'
    WHERE certain AND (ledger_id, kind, organization_id, container_id, item_id) IN (
        SELECT CAST(:ledger_id AS INTEGER), kind, organization_id, container_id, item_id
        FROM flown WHERE {_OF_CONTENT_ALONE}
    )
"""

_ADDS_BECOME_UNCONFIRMED = f"""
    INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
                             access_role, disabled, certain, gone_at)
    SELECT DISTINCT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id, {DOUBTFUL}
    FROM flown p WHERE p.action <> 'delete' AND NOT (p.{_OF_CONTENT_ALONE} AND EXISTS (
        SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = p.kind
        AND l.organization_id = p.organization_id AND l.container_id = p.container_id AND l.item_id = p.item_id
        AND l.certain
    ))
    {DOUBT_ON_CONFLICT}
"""

_DELETES_BECOME_UNCONFIRMED = """
    UPDATE ledger_item SET certain = FALSE
    WHERE (ledger_id, kind, organization_id, container_id, item_id) IN (
        SELECT CAST(:ledger_id AS INTEGER), kind, organization_id, container_id, item_id
        FROM flown WHERE action = 'delete'
        UNION
        SELECT CAST(:ledger_id AS INTEGER), p.kind, p.organization_id, p.container_id, p.item_id
        FROM flown JOIN plan_item p ON p.plan_id = flown.plan_id AND p.covered_by = flown.ordinal
    )
"""

_LEDGER_MOVES_ON = "UPDATE ledger SET ledger_revision = ledger_revision + 1 WHERE ledger_id = :ledger_id"

_SETTLE_ALL = "UPDATE call SET settled_at = :now WHERE ledger_id = :ledger_id AND settled_at IS NULL"
