"""``usher plan`` and ``usher sync``: one run now, in this process, under the lock that the workers share."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from app.commands.frame import CommandError, EndedBySignalError, Invocation, UsherCommand, pass_invocation
from app.commands.operator import kept_reason, reason_option
from app.commands.run_report import (
    changes_of,
    show_incomplete,
    show_plan_summary,
    show_report,
    show_summary,
    show_unfinished,
)
from app.commands.screen import note, progress, show_json, show_json_list
from app.foundation.processes import stop_signals
from app.foundation.text import printable
from app.sync.ledger.items import Kind

if TYPE_CHECKING:
    from app.commands.bootstrap.application import Application
    from app.commands.what_if import ReplacedSources
    from app.sync.runs.lock import SyncLock
    from app.sync.runs.run import Run, RunRequest


EXIT_CHANGES = 10
EXIT_IN_PART = 3
EXIT_BUSY = 5


class BusyError(CommandError):
    """Another process synchronizes, and the command waits no longer."""

    exit_code = EXIT_BUSY


class GivenId(click.ParamType[str]):
    """An id that a record could have."""

    name = "id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The id as it is."""
        from pydantic import TypeAdapter, ValidationError

        from app.contract.base import Id
        from app.contract.validation import first_error

        try:
            return TypeAdapter[str](Id).validate_python(value)
        except ValidationError as error:
            self.fail(first_error(error, root=repr(printable(value, limit=40))), param, ctx)


_selection = [
    click.option(
        "--organization",
        "organizations",
        metavar="ID",
        type=GivenId(),
        multiple=True,
        help="Only this one; repeatable.",
    ),
    click.option("--user", "users", metavar="ID", type=GivenId(), multiple=True, help="Only this one; repeatable."),
]


_waiting = [
    click.option("--no-wait", is_flag=True, help="End with 5 if another process synchronizes."),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Wait this long for another process that synchronizes, then end with 5; without it, as long as it takes.",
    ),
]


def _narrowed(command: Any) -> Any:
    for option in reversed(_selection):
        command = option(command)
    return command


def _waits(command: Any) -> Any:
    for option in reversed(_waiting):
        command = option(command)
    return command


def _patience(timeout: float | None, *, no_wait: bool) -> float | None:
    if no_wait and timeout:
        raise click.UsageError("--no-wait and --timeout exclude each other")
    return 0.0 if no_wait else timeout


@click.command(cls=UsherCommand)
@_narrowed
@click.option(
    "--directory",
    "files",
    metavar="[NAME=]FILE",
    multiple=True,
    help="What if: plan FILE in place of all sources, or of the one called NAME; repeatable with names.",
)
@_waits
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@pass_invocation
@click.pass_context
def plan(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    invocation: Invocation,
    organizations: tuple[str, ...],
    users: tuple[str, ...],
    files: tuple[str, ...],
    no_wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Show what a sync would do, without doing it.

    Reads the directory and plans from it, while answers go on as they were. The plan is stored: `usher sync --plan ID`
    reads the directory for good and applies exactly this plan, or refuses when another one is due by then.

    Exit code 0: a sync would change nothing now (all is up to date, held back, waiting, parked or skipped), 10: it
    would change something, 3: a source was not read completely, with changes or without, 1: error, or an unknown ID.
    """
    from app.commands.bootstrap.application import application
    from app.commands.changes import show_changes, show_sums
    from app.commands.what_if import replace_sources
    from app.service.admin.wire import change_to_wire, run_to_wire
    from app.sync.runs.run import RunRequest

    settings = invocation.settings()
    with application(settings, needs_backend=True) as parts:
        replaced = replace_sources(settings.directory, files) if files else None
        run = run_now(
            parts,
            RunRequest(
                trigger="command",
                organization_ids=organizations,
                user_ids=users,
                dry_run=True,
                alone=replaced is not None,
            ),
            replaced,
            patience=_patience(timeout, no_wait=no_wait),
        )
        _refuse_failed(run, as_json=as_json)
        if not as_json and not run.total("planned"):
            # "Nothing to do" would be the first thing to read, and not true.
            _refuse_unknown(run)
        changes = changes_of(parts, run.run_id)
        if as_json:
            show_json_list(run_to_wire(run), "changes", map(change_to_wire, changes))
        else:
            show_changes(changes, run.total("planned"))
            show_sums(parts.runs.summary(run.run_id))
            show_report(run)
            show_plan_summary(run)
        incomplete = show_incomplete(run, len(settings.directory.sources) if replaced is None else 1, beside=as_json)
        _refuse_unknown(run)
    context.exit(EXIT_IN_PART if incomplete else EXIT_CHANGES if run.still_to_send() else 0)


@click.command(cls=UsherCommand)
@_narrowed
@click.option("--plan", "plan_id", metavar="ID", help="Apply this stored plan; refused when the world has moved on.")
@click.option("--allow-deletes", is_flag=True, help="Delete without regard to the limits, this once.")
@click.option("--verify", is_flag=True, help="Read the backend back first, and mend what differs.")
@click.option("--retry", is_flag=True, help="Try now what waits for its next try or is parked after failures.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([kind.value for kind in Kind]),
    multiple=True,
    metavar="KIND",
    help="With --retry: items of this kind alone; repeatable.",
)
@click.option(
    "--item",
    "items",
    type=(click.Choice([kind.value for kind in Kind]), str, str, str),
    multiple=True,
    metavar="KIND ORGANIZATION CONTAINER ID",
    help="With --retry: this item alone; repeatable. What lies in no folder, document or group has '' as container.",
)
@_waits
@reason_option
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@pass_invocation
@click.pass_context
def sync(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    invocation: Invocation,
    organizations: tuple[str, ...],
    users: tuple[str, ...],
    plan_id: str | None,
    allow_deletes: bool,
    verify: bool,
    retry: bool,
    kinds: tuple[str, ...],
    items: tuple[tuple[str, str, str, str], ...],
    no_wait: bool,
    timeout: float | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Bring the backend into step with the directory now.

    In this process, and under the same lock as the workers.

    Exit code 0: done, 3: done in part (items failed or were held back, or a source was not read completely), 1: error,
    or an unknown ID.
    """
    from app.commands.bootstrap.application import application
    from app.service.admin.wire import run_to_wire
    from app.sync.ledger.items import ItemKey
    from app.sync.runs.run import RunRequest, RunStatus

    if plan_id is not None and (organizations or users or verify or retry):
        raise click.UsageError("--plan applies a plan as it is: leave --organization, --user, --verify and --retry out")
    for given, name in ((kinds, "--kind"), (items, "--item")):
        if given and not retry:
            raise click.UsageError(f"{name} selects what is retried: it needs --retry")
    with application(invocation.settings(), needs_backend=True) as parts:
        if plan_id is not None:
            asked, plan_id = plan_id, _plan_named(parts, plan_id)
            if asked != plan_id:
                note(f"plan {plan_id}")
            if (problem := parts.plan_problem(plan_id)) is not None:
                raise CommandError(problem)
        run = run_now(
            parts,
            RunRequest(
                trigger="command",
                organization_ids=organizations,
                user_ids=users,
                allow_deletes=allow_deletes,
                verify=verify,
                plan_id=plan_id,
                retry=retry,
                kinds=kinds,
                items=tuple(ItemKey(*item) for item in items),
                asked_reason=kept_reason(reason),
            ),
            patience=_patience(timeout, no_wait=no_wait),
        )
        if as_json:
            show_json(run_to_wire(run))
        if run.status in {RunStatus.FAILED, RunStatus.CANCELLED}:
            raise CommandError(run.error or f"the run was {run.status.value}")
        if not as_json and not run.total("planned"):
            # "Nothing to do" would be the first thing to read, and not true.
            _refuse_unknown(run)
        if not as_json:
            show_unfinished(parts, run)
            show_report(run)
            show_summary(run)
        incomplete = show_incomplete(run, len(parts.settings.directory.sources), beside=as_json)
        _refuse_unknown(run)
    context.exit(0 if run.status is RunStatus.DONE and not incomplete else EXIT_IN_PART)


def _plan_named(parts: Application, shown: str) -> str:
    from app.sync.runs.run import RunNotFoundError

    try:
        return parts.runs.named_plan(shown)
    except RunNotFoundError as error:
        raise CommandError(f"{error} of this backend: usher plan makes one") from error


def run_now(
    parts: Application,
    request: RunRequest,
    replaced: ReplacedSources | None = None,
    *,
    patience: float | None = None,
) -> Run:
    """Queues the run and executes it in this process, with progress on standard error.

    ``replaced``: other sources than the configured ones. ``patience``: seconds to wait for another process that
    synchronizes; None: as long as it takes. Raises ``BusyError`` after that.

    Ctrl-C cancels the run before its next call. SIGTERM stops it there, and another run continues it.
    """
    lock = parts.sync_lock()
    _wait_for(lock, parts, patience)
    try:
        return _run_under_lock(parts, request, lock, replaced)
    finally:
        lock.release()


def _wait_for(lock: SyncLock, parts: Application, patience: float | None) -> None:
    """Takes the lock. Raises ``BusyError`` after ``patience`` seconds, and database errors if the database is away."""
    if lock.acquire():
        return
    parts.check_database()
    if patience != 0:
        note("another process is synchronizing; waiting for it to end")
    deadline = monotonic() + (inf if patience is None else patience)
    while (left := deadline - monotonic()) > 0:
        if lock.acquire(timeout=min(left, 5.0)):
            return
        parts.check_database()
    raise BusyError(
        "another process is synchronizing" + (f"; it did not end within {patience:g} s" if patience else "")
    )


def resume(parts: Application, run_id: str) -> Run:
    """Takes a run that is queued to its end, here unless a worker is faster."""
    from app.sync.runs.run import RunStatus

    lock = parts.sync_lock()
    while True:
        if lock.acquire(timeout=1.0):
            try:
                return _execute(parts, run_id, lock) if _is_queued(parts, run_id) else parts.runs.get(run_id)
            finally:
                lock.release()
        run = parts.runs.get(run_id)
        if run.status is not RunStatus.QUEUED and not run.is_running:
            return run


def _is_queued(parts: Application, run_id: str) -> bool:
    from app.sync.runs.run import RunStatus

    return parts.runs.get(run_id).status is RunStatus.QUEUED


def _run_under_lock(parts: Application, request: RunRequest, lock: SyncLock, replaced: ReplacedSources | None) -> Run:
    from dataclasses import replace

    from app.commands.bootstrap.acting import operator
    from app.sync.runs.audit import audited

    parts.runs.orphaned()
    who = operator()
    asked = "preview asked for" if request.dry_run else "plan applied" if request.plan_id else "sync asked for"
    witness = audited(parts.audit, who, asked, request.asked_reason)
    run, _ = parts.runs.enqueue(replace(request, asked_by=who.name), witness=witness)
    return _execute(parts, run.run_id, lock, replaced)


def _execute(parts: Application, run_id: str, lock: SyncLock, replaced: ReplacedSources | None = None) -> Run:
    from app.sync.runs.run import RunStatus

    with stop_signals(interrupt_cancels=True) as stop, progress() as shown:
        if replaced is None:
            engine = parts.sync_engine(stop=stop)
        else:
            engine = parts.sync_engine(
                stop=stop, sources=replaced.sources(parts.settings, stop), what_if=replaced.what_if
            )
        run = engine.execute(run_id, lock=lock, progress=shown, stop=stop)
    if stop.number is not None and run.status in {RunStatus.FAILED, RunStatus.CANCELLED}:
        done, failed = run.total("done"), run.total("failed")
        left = max(0, run.total("planned") - done - failed)
        follower = parts.runs.go_on_from(run) if run.interrupted else None
        if follower is None:
            rest = f"{left:,} left to the next sync; run {run.run_id}"
        else:
            rest = f"{left:,} left to run {follower.run_id}, which a worker or the next usher sync executes"
        raise EndedBySignalError(f"{done:,} done, {rest}", stop.number)
    return run


def _refuse_failed(run: Run, *, as_json: bool) -> None:
    from app.service.admin.wire import run_to_wire
    from app.sync.runs.run import RunStatus

    if run.status in {RunStatus.FAILED, RunStatus.CANCELLED}:
        if as_json:
            show_json(run_to_wire(run))
        raise CommandError(run.error or f"the run was {run.status.value}")


def _refuse_unknown(run: Run) -> None:
    """Raises ``CommandError`` when the run was asked for ids that nobody knows: "nothing to do" would hide that."""
    from app.sync.plan.unknown import unknown_sentence

    sentence = unknown_sentence(run.report)
    if sentence is not None:
        raise CommandError(sentence)
