"""``usher runs``, ``usher approve`` and ``usher discard``: what was done, and the word on what was held back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.operator import kept_reason, reason_option
from app.commands.screen import note, on_terminal, say, show_json, show_json_list, show_table
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.sync.runs.run import Run


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

_SHORT_ID = 15
"""As far as the second; further where two began within one."""


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="[ID]", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many runs to list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_invocation
def runs(invocation: Invocation, run_id: str | None, limit: int, as_json: bool) -> None:
    """List past runs, newest first, or show one with its items.

    ID may be shortened as far as it is the only one that begins so, or be `latest`; that holds for every command.
    """
    from app.commands.bootstrap.application import application
    from app.commands.changes import show_changes, show_sums
    from app.commands.run_report import changes_of, show_summary
    from app.service.admin.wire import change_to_wire, run_to_wire
    from app.sync.runs.report import report_lines

    with application(invocation.settings()) as parts:
        if run_id is None:
            found = parts.runs.recent(limit)
            for concern in parts.concerns():
                note(f"{concern.says} ({concern.advice})")
            if as_json:
                show_json([run_to_wire(run) for run in found])
            elif found and on_terminal():
                rows = zip(_short([run.run_id for run in found]), map(_row, found), strict=True)
                # Narrow terminals show the last columns below the row: what identifies a run comes first.
                headings = ("run", "status", "started", "took", "trigger", "items", "error")
                ordered = ((short, row[1], row[3], row[4], row[2], *row[5:]) for short, row in rows)
                show_table(headings, ordered, one_line=True)
            elif found:
                show_table(("run", "status", "trigger", "started", "took", "items", "error"), map(_row, found))
            else:
                say("no runs yet")
            return
        run = parts.runs.get(parts.runs.named(run_id))
        changes = changes_of(parts, run.run_id)
        if as_json:
            show_json_list(run_to_wire(run), "changes", map(change_to_wire, changes))
            return
        show_changes(changes, run.total("planned"))
        show_sums(parts.runs.summary(run.run_id))
        for line in report_lines(run.report):
            say(printable(line))
        show_summary(run)


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="RUN")
@reason_option
@_json
@pass_invocation
@click.pass_context
def approve(context: click.Context, invocation: Invocation, run_id: str, reason: str | None, as_json: bool) -> None:
    """Approve the held deletes of a run.

    RUN may be shortened, or be `latest`: the latest run that can be approved. Those deletes that are still due are done
    now, here or by a worker.

    Exit codes as of sync.
    """
    from app.commands.bootstrap.acting import operator
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.requirements import has_credentials
    from app.commands.run_report import show_incomplete, show_summary
    from app.commands.sync import EXIT_IN_PART, resume
    from app.service.admin.wire import run_to_wire
    from app.sync.runs.audit import audited
    from app.sync.runs.run import RunStatus

    settings = invocation.settings()
    with application(settings) as parts:
        run_id = _picked(run_id, parts.runs.named_held(run_id, can_be_approved=True))
        why, who = kept_reason(reason), operator()
        witness = audited(parts.audit, who, "approved", why)
        held = parts.runs.approve(run_id, by=who.name, reason=why, witness=witness).total("held")
        if not has_credentials(settings) or not settings.directory.sources:
            if as_json:
                show_json(run_to_wire(parts.runs.get(run_id)))
            else:
                say(f"{held} held {'delete is' if held == 1 else 'deletes are'} approved; a worker does them")
            return
        run = resume(parts, run_id)
        if as_json:
            show_json(run_to_wire(run))
        if run.status is RunStatus.FAILED:
            raise CommandError(run.error or "the run failed")
        if not as_json:
            say(f"{held} held {'delete was' if held == 1 else 'deletes were'} approved")
            show_summary(run)
        incomplete = show_incomplete(run, len(settings.directory.sources), beside=as_json)
    context.exit(0 if run.status is RunStatus.DONE and not incomplete else EXIT_IN_PART)


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="RUN")
@reason_option
@_json
@pass_invocation
def discard(invocation: Invocation, run_id: str, reason: str | None, as_json: bool) -> None:
    """Discard the held deletes of a run.

    RUN may be shortened, or be `latest`: the latest held run. Later runs leave its deletes alone until what they would
    delete changes; usher sync --allow-deletes deletes them after all.
    """
    from app.commands.bootstrap.acting import operator
    from app.commands.bootstrap.application import application
    from app.service.admin.wire import run_to_wire
    from app.sync.runs.audit import audited

    with application(invocation.settings()) as parts:
        why, who = kept_reason(reason), operator()
        witness = audited(parts.audit, who, "discarded", why)
        run_id = _picked(run_id, parts.runs.named_held(run_id))
        run = parts.runs.discard(run_id, by=who.name, reason=why, witness=witness)
        dropped = run.total("discarded")
        if as_json:
            show_json(run_to_wire(run))
            return
        say(
            f"{dropped} held {'delete is' if dropped == 1 else 'deletes are'} dropped, and left alone from now on; "
            "usher sync --allow-deletes deletes them after all"
        )


def _picked(asked: str, run_id: str) -> str:
    """The id of the run, after a note that names it unless it was given in full."""
    if asked != run_id:
        note(f"run {run_id}")
    return run_id


def _short(ids: Sequence[str]) -> list[str]:
    """Each id as short as it can be and still be the only one of them that begins so."""

    def is_enough(start: str) -> bool:
        return sum(other.startswith(start) for other in ids) == 1

    return [next(filter(is_enough, (one[:length] for length in range(_SHORT_ID, len(one)))), one) for one in ids]


def _row(run: Run) -> tuple[str, ...]:
    from app.commands.run_report import planned_in_words
    from app.sync.runs.run import RunStatus

    outcomes = ("done", "failed", "held", "discarded", "parked", "waiting")
    numbers = [f"{run.total(outcome)} {outcome}" for outcome in outcomes if run.total(outcome)]
    kind = " (plan only)" if run.dry_run else ""
    if run.dry_run and run.status is RunStatus.DONE:
        numbers = [planned_in_words(run, lambda number, _: number)]
    return (
        run.run_id,
        run.status.value,
        run.trigger + kind,
        _moment(run.started_at or run.requested_at),
        _took(run.resumed_at or run.started_at, run.finished_at),
        ", ".join(numbers) or "–",
        f"{run.error or ''}{f'; continued by {run.continued_by}' if run.continued_by else ''}",
    )


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _took(started: datetime | None, finished: datetime | None) -> str:
    if started is None or finished is None:
        return "–"
    took = finished - started
    return f"{took.total_seconds():.1f} s" if took < timedelta(minutes=2) else str(took).partition(".")[0]
