"""``usher runs``, ``usher approve`` and ``usher discard``: shows past runs, and decides about held deletes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import click

from app.commands.frame import CommandError, Invocation, UsherCommand, json_option, pass_invocation
from app.commands.operator import operator, reason_option, stored_reason
from app.commands.screen import on_terminal, print_note, print_result, show_json, show_json_lists, show_table
from app.foundation.text import are, counted, printable, were

if TYPE_CHECKING:
    from app.sync.runs.run import Run

_SHORT_ID = 15
"""Minimum length of a shortened id: down to the second. Ids of runs in the same second are longer."""


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="[ID]", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many runs to list.")
@json_option
@pass_invocation
def runs(invocation: Invocation, run_id: str | None, limit: int, as_json: bool) -> None:
    """List past runs, newest first, or show one with its items.

    ID may be shortened to a unique prefix, or be `latest`, here and in every other command.
    """
    from app.commands.bootstrap.application import application
    from app.commands.changes import show_changes, show_sums
    from app.commands.run_report import changes_of, show_summary
    from app.service.admin.wire import RunWire, change_to_wire
    from app.sync.runs.report import report_lines

    with application(invocation.settings()) as parts:
        if run_id is None:
            recent = parts.runs.recent(limit)
            for concern in parts.concerns():
                print_note(f"{concern.summary} ({concern.advice})")
            if as_json:
                show_json([RunWire.of(run) for run in recent])
            else:
                _list_runs(recent)
            return
        run = parts.runs.get(parts.runs.find_id(run_id))
        changes = changes_of(parts, run.run_id)
        if as_json:
            show_json_lists(RunWire.of(run), {"changes": map(change_to_wire, changes)})
            return
        show_changes(changes, run.total("planned"))
        show_sums(parts.runs.summary(run.run_id))
        for line in report_lines(run.report):
            print_result(printable(line))
        show_summary(run)


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="RUN")
@reason_option
@json_option
@pass_invocation
@click.pass_context
def approve(context: click.Context, invocation: Invocation, run_id: str, reason: str | None, as_json: bool) -> None:
    """Approve the held deletes of a run.

    RUN may be shortened, or be `latest`: the latest run that can be approved. The deletes that are still due are done
    now, here or by a worker.

    The exit codes are those of `usher sync`.
    """
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.requirements import has_credentials
    from app.commands.execution import resume
    from app.commands.run_report import show_incomplete, show_summary
    from app.commands.sync import EXIT_INCOMPLETE
    from app.foundation.audit import AuditAction
    from app.service.admin.wire import RunWire
    from app.sync.runs.audit import audited
    from app.sync.runs.run import RunStatus

    settings = invocation.settings()
    with application(settings) as parts:
        run_id = _resolved(run_id, parts.runs.find_held_id(run_id, can_be_approved=True))
        why, actor = stored_reason(reason), operator()
        audit_hook = audited(parts.audit, actor, AuditAction.APPROVE, why)
        held = parts.runs.approve(run_id, by=actor.name, reason=why, audit_hook=audit_hook).total("held")
        if not has_credentials(settings) or not settings.directory.sources:
            if as_json:
                show_json(RunWire.of(parts.runs.get(run_id)))
            else:
                print_result(f"{counted(held, 'held delete')} {are(held)} approved; a worker does them")
            return
        run = resume(parts, run_id)
        if as_json:
            show_json(RunWire.of(run))
        elif run.status is not RunStatus.FAILED:
            print_result(f"{counted(held, 'held delete')} {were(held)} approved")
            show_summary(run)
        if run.status is RunStatus.FAILED:
            raise CommandError(run.error or "the run failed")
        incomplete = show_incomplete(run, len(settings.directory.sources), to_stderr=as_json)
    context.exit(0 if run.status is RunStatus.DONE and not incomplete else EXIT_INCOMPLETE)


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="RUN")
@reason_option
@json_option
@pass_invocation
def discard(invocation: Invocation, run_id: str, reason: str | None, as_json: bool) -> None:
    """Discard the held deletes of a run.

    RUN may be shortened, or be `latest`: the latest held run. Later runs skip these deletes until what they would
    delete changes. usher sync --allow-deletes deletes them anyway.
    """
    from app.commands.bootstrap.application import application
    from app.foundation.audit import AuditAction
    from app.service.admin.wire import RunWire
    from app.sync.runs.audit import audited

    with application(invocation.settings()) as parts:
        why, actor = stored_reason(reason), operator()
        audit_hook = audited(parts.audit, actor, AuditAction.DISCARD, why)
        run_id = _resolved(run_id, parts.runs.find_held_id(run_id))
        run = parts.runs.discard(run_id, by=actor.name, reason=why, audit_hook=audit_hook)
        count = run.total("discarded")
        if as_json:
            show_json(RunWire.of(run))
            return
        print_result(
            f"{counted(count, 'held delete')} {are(count)} discarded; usher sync --allow-deletes deletes them anyway"
        )


def _resolved(prefix: str, run_id: str) -> str:
    """The id of the run. Prints it if the operator entered a prefix."""
    if prefix != run_id:
        print_note(f"run {run_id}")
    return run_id


class _Row(NamedTuple):
    """A run in the list, as text."""

    run: str
    status: str
    trigger: str
    started: str
    took: str
    items: str
    error: str


def _list_runs(runs: Sequence[Run]) -> None:
    rows = [_row(run) for run in runs]
    if not rows:
        print_result("no runs yet")
    elif not on_terminal():
        show_table(_Row._fields, rows)
    else:
        # Narrow terminals show the last columns below the row, so the trigger is behind the times.
        columns = ("run", "status", "started", "took", "trigger", "items", "error")
        short = [row._replace(run=prefix) for row, prefix in zip(rows, _short_ids(rows), strict=True)]
        show_table(columns, [[getattr(row, column) for column in columns] for row in short], one_line=True)


def _short_ids(rows: Sequence[_Row]) -> list[str]:
    """The shortest unique prefix of each id."""
    ids = [row.run for row in rows]

    def is_unique(prefix: str) -> bool:
        return sum(other.startswith(prefix) for other in ids) == 1

    return [next(filter(is_unique, (full[:end] for end in range(_SHORT_ID, len(full)))), full) for full in ids]


def _row(run: Run) -> _Row:
    from app.commands.run_report import outcomes_in_words, plan_in_words
    from app.sync.runs.run import RunStatus

    is_plan = run.dry_run and run.status is RunStatus.DONE
    return _Row(
        run=run.run_id,
        status=run.status.value,
        trigger=f"{run.trigger} (plan only)" if run.dry_run else run.trigger,
        started=f"{run.started_at or run.requested_at:%Y-%m-%d %H:%M:%S}",
        took=_duration(run.resumed_at or run.started_at, run.finished_at),
        items=plan_in_words(run) if is_plan else outcomes_in_words(run) or "–",
        error=f"{run.error or ''}{f'; continued by {run.continued_by}' if run.continued_by else ''}",
    )


def _duration(started: datetime | None, finished: datetime | None) -> str:
    if started is None or finished is None:
        return "–"
    duration = finished - started
    if duration < timedelta(minutes=2):
        return f"{duration.total_seconds():.1f} s"
    return str(duration).partition(".")[0]
