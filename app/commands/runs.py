"""``usher runs``, ``usher approve`` and ``usher discard``: what was done, and the word on what was held back."""

from datetime import datetime, timedelta

import click

from app.admin.resync import change_to_wire, run_to_wire
from app.bootstrap import application, has_credentials
from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.sync import EXIT_IN_PART, changes_of, report_lines, resume, show_changes, show_summary
from app.screen import note, say, show_json, show_json_list, show_table
from app.store.runs import Run, RunStatus
from app.text import printable


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="[ID]", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many runs to list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_invocation
def runs(invocation: Invocation, run_id: str | None, limit: int, as_json: bool) -> None:
    """List past runs, newest first, or show one with its items."""
    with application(invocation.settings()) as parts:
        if run_id is None:
            found = parts.runs.recent(limit)
            for concern in parts.concerns():
                note(f"{concern.says} ({concern.advice})")
            if as_json:
                show_json([run_to_wire(run) for run in found])
            elif found:
                show_table(("run", "status", "trigger", "started", "took", "items", "error"), map(_row, found))
            else:
                say("no runs yet")
            return
        run = parts.runs.get(run_id)
        changes = changes_of(parts, run_id)
        if as_json:
            show_json_list(run_to_wire(run), "changes", map(change_to_wire, changes))
            return
        show_changes(changes, run.total("planned"))
        for line in report_lines(run.report):
            say(printable(line))
        show_summary(run)


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="RUN")
@pass_invocation
@click.pass_context
def approve(context: click.Context, invocation: Invocation, run_id: str) -> None:
    """Let the held-back deletes of a run go.

    Those that are still due are done now, here or by a worker.

    Exit codes as of sync.
    """
    settings = invocation.settings()
    with application(settings) as parts:
        held = parts.runs.approve(run_id).total("held")
        if not has_credentials(settings):
            say(f"{held} held {'delete is' if held == 1 else 'deletes are'} approved; a worker does them")
            return
        run = resume(parts, run_id)
        if run.status is RunStatus.FAILED:
            raise CommandError(run.error or "the run failed")
        say(f"{held} held {'delete was' if held == 1 else 'deletes were'} approved")
        show_summary(run)
    context.exit(0 if run.status is RunStatus.DONE else EXIT_IN_PART)


@click.command(cls=UsherCommand)
@click.argument("run_id", metavar="RUN")
@pass_invocation
def discard(invocation: Invocation, run_id: str) -> None:
    """Drop the held-back deletes of a run."""
    with application(invocation.settings()) as parts:
        held = parts.runs.get(run_id).total("held")
        parts.runs.discard(run_id)
        say(f"the {held} held deletes of run {run_id} are dropped")


def _row(run: Run) -> tuple[str, ...]:
    outcomes = ("done", "failed", "held", "parked", "waiting")
    numbers = [f"{run.total(outcome)} {outcome}" for outcome in outcomes if run.total(outcome)]
    kind = " (plan only)" if run.dry_run else ""
    return (
        run.run_id,
        run.status.value,
        run.trigger + kind,
        _moment(run.started_at or run.requested_at),
        _took(run.started_at, run.finished_at),
        ", ".join(numbers) or "–",
        run.error or "",
    )


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _took(started: datetime | None, finished: datetime | None) -> str:
    if started is None or finished is None:
        return "–"
    took = finished - started
    return f"{took.total_seconds():.1f} s" if took < timedelta(minutes=2) else str(took).partition(".")[0]
