"""Keeps the context of a run that is executed, and derives from it the base of plans, the report and the final status.

The rules: ``app/sync/runs/README.md``, "Bases" and "Ends".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Engine

from app.access.candidate import DatabaseState
from app.client.client import BackendClient
from app.client.errors import ClientError
from app.directory.source import Verdict
from app.foundation.database import statements
from app.foundation.database.engine import reading
from app.sync.apply.backend_reads import BackendReads
from app.sync.apply.capabilities import Capabilities
from app.sync.apply.gate import CANCELLED, Ending, Gate
from app.sync.apply.progress import Progress
from app.sync.apply.shared_containers import hold_shared
from app.sync.ledger.items import USER_KINDS, ItemStatus, listed
from app.sync.ledger.ledger import Ledger, read_ledger
from app.sync.ledger.settlement import LEFT_BEHIND, UNSUPPORTED, cancel_unsent
from app.sync.plan.access_impact import ImpactOfDryRun
from app.sync.plan.counts import Counts, add_counts, read_run_counts, total
from app.sync.plan.rules import Action
from app.sync.plan.selection import Selection
from app.sync.plan.stored import Plan
from app.sync.runs.directory_reads import RefreshReport, losses_sentences, source_sentence
from app.sync.runs.run import HELD_FOR, Run, RunReport, RunStatus, SourceFinding, UnknownIds
from app.sync.runs.source_checks import retained_sentence

REGULAR_ENDS = frozenset({RunStatus.DONE, RunStatus.PARTIAL, RunStatus.HELD})
"""The ends of runs after which the base is known."""

_MAX_PLANS = 500
"""After more plans of organizations or users, everything is planned."""

_MAX_REPORTED = 20
"""The maximum of problems, and of unknown ids, that a report contains."""

_UNKNOWN_ORGANIZATIONS = """
SELECT selected.value FROM (@list(organization_ids)) AS selected
WHERE NOT EXISTS (SELECT 1 FROM model_organization a WHERE a.organization_id = selected.value)
  AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.organization_id = selected.value)
"""

_UNKNOWN_USERS = """
SELECT selected.value FROM (@list(user_ids)) AS selected
WHERE NOT EXISTS (SELECT 1 FROM model_user a WHERE a.user_id = selected.value)
  AND NOT EXISTS (
    SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind IN ({kinds}) AND l.item_id = selected.value)
"""


class EndedError(Exception):
    """Ends the run."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message)
        self.ending = ending


@dataclass(frozen=True, slots=True)
class Base:
    """The last plan of everything and the later ones, so that only changes since then are planned.

    An engine keeps it in memory. Interrupted calls, and operations that the backend has again, leave unconfirmed items,
    which plans of changes include.
    """

    plan_ids: tuple[str, ...] = ()
    """Empty: everything is planned."""
    ledger: Ledger | None = None
    """The ledger after the last of these plans."""


@dataclass(slots=True)
class RunContext:
    """A run that is executed."""

    run: Run
    gate: Gate
    client: BackendClient
    """It stops sending when the gate closes."""
    progress: Progress
    capabilities: Capabilities
    engine: Engine
    """The database, or the candidate of a dry run."""
    report: RunReport = field(default_factory=RunReport)
    plan_id: str | None = None
    ledger_id: int | None = None
    base: Base = field(default_factory=Base)
    depends_on: DatabaseState | None = None
    """The state of the database that must not change until the plan of a dry run is made. None if it may."""
    impact: ImpactOfDryRun | None = None
    """The access impact of a dry run that reads the directory."""
    before: Counts = field(default_factory=dict)
    """The counts before the held deletes were approved."""


def check_gate(context: RunContext, run: Run) -> None:
    """Raises ``EndedError`` if the run is to end."""
    if run.cancel_requested:
        context.gate.end(CANCELLED)
    if not context.gate.is_open() and context.gate.ending is not None:
        raise EndedError(context.gate.ending)


def hold_contents(context: RunContext, plan: Plan, approving: str | None, *, threads: int) -> Plan:
    """Holds deletes of the plan that include items of other systems. ``approving``: as in ``hold_shared``."""
    reads = BackendReads(context.client, context.capabilities, before_call=lambda: check_gate(context, context.run))
    try:
        return hold_shared(context.engine, plan, reads, approving=approving, threads=threads)
    except ClientError as error:
        # A preview does not need the backend. Its plan is checked again before it is applied.
        if not context.run.dry_run or not context.gate.is_open():
            raise
        context.report["contentsNotRead"] = str(error)
        return plan


def plans_since(base: Base, run: Run, ledger: Ledger) -> tuple[str, ...]:
    """The plans since which the run plans only changes. Empty: it plans everything. ``ledger``: as the run began."""
    if run.dry_run or run.plan_is_fixed or run.selection.user_ids or run.allow_deletes or run.retry:
        return ()
    # A ledger that was never verified is verified first. Otherwise it changes only with its revision.
    return () if ledger.needs_verify or ledger != base.ledger else base.plan_ids


def base_after(engine: Engine, base: Base, run: Run, plan_id: str | None, ledger_id: int | None) -> Base:
    """The base after a run that made this plan and ended regularly. Call it while no other process can synchronize."""
    if run.dry_run:
        return base
    if plan_id is None or ledger_id is None or run.plan_is_fixed:
        return Base()
    with reading(engine) as connection:
        ledger = read_ledger(connection, ledger_id)
    if run.selection.is_everything:
        return Base((plan_id,), ledger)
    # A verify may have found differences outside of the selection.
    if run.verify or not base.plan_ids or len(base.plan_ids) >= _MAX_PLANS:
        return Base()
    return Base((*base.plan_ids, plan_id), ledger)


def final_status(
    connection: Connection, context: RunContext, ending: Ending | None, now: datetime
) -> tuple[RunStatus, Mapping[str, object]]:
    """The final status of the run and its other columns. Cancels unsent items if the run ends early."""
    counts: Counts = {}
    values: dict[str, object] = {
        "finished_at": now,
        "error": ending.message if ending else None,
        "interrupted": ending is not None and ending.interrupted,
    }
    unsettled = False
    if context.plan_id is not None:
        if ending is not None:
            cancel_unsent(connection, context.plan_id, ending.message)
        own_counts = read_run_counts(connection, context.plan_id)
        counts = add_counts(context.before, own_counts)
        left_behind, any_skipped = _skipped_items(connection, context.plan_id)
        failed = total(counts, ItemStatus.FAILED, ItemStatus.PARKED)
        unsettled = any_skipped or _any_writes_wait(own_counts) or failed > 0
        if left_behind:
            context.report["leftBehind"] = left_behind
        values["counts"] = counts
    values["report"] = context.report
    if ending is not None:
        return (RunStatus.CANCELLED if ending.cancelled else RunStatus.FAILED), values
    if not context.run.dry_run and total(counts, ItemStatus.HELD):
        return RunStatus.HELD, values | {"held_at": now, "held_until": now + HELD_FOR}
    if unsettled and not context.run.dry_run:
        return RunStatus.PARTIAL, values
    return RunStatus.DONE, values


def directory_report(report: RefreshReport) -> RunReport:
    """The findings of a refresh for the run's report."""
    findings = RunReport()
    sources: list[SourceFinding] = [
        {"name": source.name, "verdict": source.verdict.value, "reason": source.reason, "malformed": source.malformed}
        for source in report.sources
        if source.verdict is not Verdict.COMPLETE
    ]
    if sources:
        findings["sources"] = sources
    if losses := losses_sentences(report.sources):
        findings["losses"] = losses
    if report.retained_sources:
        findings["retainedSources"] = list(report.retained_sources)
    if report.problems.total:
        findings["problemCounts"] = {str(sort): number for sort, number in report.problems.counts.items()}
        findings["problems"] = [str(problem) for problem in report.problems.listed[:_MAX_REPORTED]]
    return findings


def reading_sentences(report: RefreshReport) -> Iterator[str]:
    """The sentences about sources that were not read completely, lost records, or are no longer configured."""
    for source in report.sources:
        if source.verdict is not Verdict.COMPLETE:
            yield source_sentence(source.name, source.verdict.value, source.reason)
    yield from losses_sentences(report.sources)
    yield from map(retained_sentence, report.retained_sources)


def capability_report(capabilities: Capabilities) -> RunReport:
    """What the backend does not support. Empty if everything was supported."""
    report = RunReport()
    if capabilities.missing:
        report["unsupportedOperations"] = sorted(capabilities.missing)
    if capabilities.any_roles_unsupported():
        report["rolesAndAccessTypesUnsupported"] = True
    if capabilities.unsupported_items:
        report["unsupported"] = dict(sorted(capabilities.unsupported_items.items()))
    return report


def unknown_ids(connection: Connection, ledger_id: int, selection: Selection) -> UnknownIds | None:
    """The ids of a selection that exist in neither the directory nor the ledger. None if there are none. Without them,
    a run for a mistyped id would look like a run for an id that is up to date."""
    parameters = {"ledger_id": ledger_id, **selection.parameters}
    organizations = sorted(statements.run(connection, _UNKNOWN_ORGANIZATIONS, parameters).scalars())
    users = sorted(statements.run(connection, _UNKNOWN_USERS, parameters, kinds=listed(USER_KINDS)).scalars())
    if not organizations and not users:
        return None
    return {
        "organizationIds": organizations[:_MAX_REPORTED],
        "userIds": users[:_MAX_REPORTED],
        "count": len(organizations) + len(users),
    }


def without_held(counts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Counts:
    """The counts without held deletes, which are planned again after their approval."""
    settled: Counts = {
        kind: {action: dict(numbers) for action, numbers in actions.items()} for kind, actions in counts.items()
    }
    for actions in settled.values():
        for numbers in actions.values():
            numbers["planned"] = numbers.get("planned", 0) - numbers.pop("held", 0)
    return settled


def _skipped_items(connection: Connection, plan_id: str) -> tuple[dict[str, int], bool]:
    """The items that were left behind, by kind, and whether others were skipped that the backend supports."""
    rows = statements.run(
        connection,
        """
        SELECT kind, message = :left_behind AS is_left_behind, COUNT(*) AS items FROM plan_item
        WHERE plan_id = :plan_id AND status = 'skipped' AND message <> :unsupported GROUP BY 1, 2
        """,
        {"plan_id": plan_id, "left_behind": LEFT_BEHIND, "unsupported": UNSUPPORTED},
    ).all()
    left_behind = {row.kind: row.items for row in rows if row.is_left_behind}
    return left_behind, not all(row.is_left_behind for row in rows)


def _any_writes_wait(counts: Counts) -> bool:
    """Whether adds or updates wait for their next try."""
    return any(
        ItemStatus.WAITING in numbers
        for actions in counts.values()
        for action, numbers in actions.items()
        if action != Action.DELETE
    )
