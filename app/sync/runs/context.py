"""The course of one run: what is known of it while it is under way, and what it comes to.

The rules: ``app/sync/runs/README.md``, "Ends".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Engine

from app.access.candidate import DatabaseState
from app.client.capabilities import Capabilities
from app.directory.source import Verdict
from app.foundation.database import statements
from app.sync.apply.gate import Ending, Gate
from app.sync.apply.progress import Progress
from app.sync.ledger.counts import Counts, add_counts, read_run_counts, total
from app.sync.ledger.settlement import LEFT_BEHIND, UNSUPPORTED, cancel_unsent
from app.sync.runs.refresh import RefreshReport, losses_sentences
from app.sync.runs.run import HELD_FOR, Run, RunStatus

_PROBLEMS_SHOWN = 20


@dataclass(slots=True)
class Course:
    """One run while it is under way."""

    run: Run
    gate: Gate
    progress: Progress
    capabilities: Capabilities
    engine: Engine
    """What it reads into and plans from: the database, or for a dry run a candidate of it."""
    report: dict[str, object] = field(default_factory=dict)
    plan_id: str | None = None
    rests_on: DatabaseState | None = None
    """Of a dry run: what the database must still be when its plan is made; None: whatever becomes of that."""
    before: Counts = field(default_factory=dict)
    """What the run had settled before its held deletes were approved."""


def outcome_of(
    connection: Connection, course: Course, ending: Ending | None, now: datetime
) -> tuple[RunStatus, Mapping[str, object]]:
    """How the run ends, and the columns that say so; what was not sent is cancelled when it ends early."""
    counts: Counts = {}
    values: dict[str, object] = {
        "finished_at": now,
        "error": ending.message if ending else None,
        "interrupted": ending is not None and ending.interrupted,
    }
    unsettled = False
    if course.plan_id is not None:
        if ending is not None:
            cancel_unsent(connection, course.plan_id, ending.message)
        counts = add_counts(course.before, read_run_counts(connection, course.plan_id))
        left_behind, unsettled = _what_remains(connection, course.plan_id)
        if left_behind:
            course.report["leftBehind"] = left_behind
        values["counts"] = counts
    values["report"] = course.report
    if ending is not None:
        return (RunStatus.CANCELLED if ending.cancelled else RunStatus.FAILED), values
    if not course.run.dry_run and total(counts, "held"):
        return RunStatus.HELD, values | {"held_at": now, "held_until": now + HELD_FOR}
    if unsettled and not course.run.dry_run:
        return RunStatus.PARTIAL, values
    return RunStatus.DONE, values


def directory_report(report: RefreshReport) -> dict[str, object]:
    """What about the directory an operator should know; empty when all is well."""
    told: dict[str, object] = {}
    sources = [
        {"name": source.name, "verdict": source.verdict.value, "reason": source.reason, "malformed": source.malformed}
        for source in report.sources
        if source.verdict is not Verdict.COMPLETE
    ]
    if sources:
        told["sources"] = sources
    if losses := losses_sentences(report.sources):
        told["losses"] = losses
    if report.retained_sources:
        told["retainedSources"] = list(report.retained_sources)
    if report.problem_count:
        told["problemCounts"] = {str(sort): number for sort, number in report.problem_counts.items()}
        told["problems"] = [str(problem) for problem in report.problems[:_PROBLEMS_SHOWN]]
    return told


def without_held(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Counts:
    """What was settled before the held deletes were approved; those are planned anew."""
    settled: Counts = {
        kind: {action: dict(numbers) for action, numbers in actions.items()} for kind, actions in counts.items()
    }
    for actions in settled.values():
        for numbers in actions.values():
            numbers["planned"] = numbers.get("planned", 0) - numbers.pop("held", 0)
    return settled


def _what_remains(connection: Connection, plan_id: str) -> tuple[dict[str, int], bool]:
    """What was left behind in the backend, by kind; and whether anything is not as it should be."""
    rows = statements.run(
        connection,
        """
        SELECT kind, count(*) AS number FROM plan_item
        WHERE plan_id = :plan_id AND status = 'skipped' AND message = :left_behind GROUP BY kind
        """,
        {"plan_id": plan_id, "left_behind": LEFT_BEHIND},
    )
    left_behind = {row.kind: row.number for row in rows}
    unsettled = statements.run(
        connection,
        """
        SELECT 1 FROM plan_item WHERE plan_id = :plan_id AND (
            status IN ('failed', 'parked')
            OR (status = 'skipped' AND message NOT IN (:left_behind, :unsupported))
            OR (status = 'waiting' AND action <> 'delete')
        ) LIMIT 1
        """,
        {"plan_id": plan_id, "left_behind": LEFT_BEHIND, "unsupported": UNSUPPORTED},
    ).first()
    return left_behind, unsettled is not None
