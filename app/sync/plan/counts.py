"""Counts the items of plans by kind, action and status, and adds such counts."""

from collections.abc import Mapping

from sqlalchemy import Connection, Engine

from app.foundation.database.engine import reading
from app.foundation.database.statements import run
from app.sync.ledger.items import ItemStatus

Counts = dict[str, dict[str, dict[str, int]]]
"""kind → action → {planned, done, failed, held, ...}"""


def count_items(connection: Connection, plan_id: str) -> Counts:
    """The number of items of each kind, action and status."""
    counts: Counts = {}
    rows = run(
        connection,
        """
        SELECT kind, action, status, count(*) AS number FROM plan_item
        WHERE plan_id = :plan_id GROUP BY kind, action, status
        """,
        {"plan_id": plan_id},
    )
    for row in rows:
        counts.setdefault(row.kind, {}).setdefault(row.action, {})[row.status] = row.number
    return counts


def run_counts(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Counts:
    """The counts as a run stores them: ``planned`` is the number of all items, whatever their status."""
    return {
        kind: {
            action: {"planned": sum(by_status.values())}
            | {status: number for status, number in by_status.items() if status != ItemStatus.PLANNED}
            for action, by_status in actions.items()
        }
        for kind, actions in counts.items()
    }


def read_run_counts(connection: Connection, plan_id: str) -> Counts:
    """The counts of a plan as its run stores them."""
    return run_counts(count_items(connection, plan_id))


def add_counts(left: Counts, right: Counts) -> Counts:
    """The sum of both."""
    sums: Counts = {}
    for counts in (left, right):
        for kind, actions in counts.items():
            for action, numbers in actions.items():
                by_status = sums.setdefault(kind, {}).setdefault(action, {})
                for status, number in numbers.items():
                    by_status[status] = by_status.get(status, 0) + number
    return sums


def total(counts: Mapping[str, Mapping[str, Mapping[str, int]]], *statuses: str) -> int:
    """The number of items with one of these statuses, or of all items."""
    return sum(
        number
        for actions in counts.values()
        for by_status in actions.values()
        for status, number in by_status.items()
        if not statuses or status in statuses
    )


def phase_totals(engine: Engine, plan_id: str) -> dict[int, int]:
    """The number of planned items of each phase, covered ones included."""
    with reading(engine) as connection:
        rows = run(
            connection,
            """
            SELECT phase, count(*) AS number FROM plan_item
            WHERE plan_id = :plan_id AND status = 'planned' GROUP BY phase
            """,
            {"plan_id": plan_id},
        )
        return {row.phase: row.number for row in rows}
