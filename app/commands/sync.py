"""``usher plan`` and ``usher sync``: one run now, in this process, under the lock that the workers share."""

import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from app.admin.resync import change_to_wire, run_to_wire
from app.bootstrap import Application, application
from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.contract.base import Id
from app.contract.complaint import first_error
from app.processes import stop_signals
from app.screen import coloured, note, on_terminal, progress, say, show_json, show_json_list, show_table
from app.store.lock import SyncLock
from app.store.runs import Change, Run, RunRequest, RunStatus
from app.sync.reading import source_sentence
from app.sync.unknown import unknown_sentence
from app.text import printable

SHOWN_CHANGES = 100
"""More than that is told as a number, on a terminal."""
PAGE = 1000

_TOLD_ELSEWHERE = frozenset({"sources", "unknown"})

EXIT_CHANGES = 10
EXIT_IN_PART = 3


class GivenId(click.ParamType[str]):
    """An id that a record could have."""

    name = "id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The id as it is."""
        try:
            return TypeAdapter[str](Id).validate_python(value)
        except ValidationError as error:
            self.fail(first_error(error, root=repr(printable(value, limit=40))), param, ctx)


_narrowing = [
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


def _narrowed(command: Any) -> Any:
    for option in reversed(_narrowing):
        command = option(command)
    return command


@click.command(cls=UsherCommand)
@_narrowed
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@pass_invocation
@click.pass_context
def plan(
    context: click.Context,
    invocation: Invocation,
    organizations: tuple[str, ...],
    users: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show what a sync would do, without doing it.

    The plan is stored: `usher sync --plan ID` applies exactly it.
    Exit code 0: a sync would change nothing (nothing is due, or all of it is held back, waits, is parked or skipped),
    10: changes, 1: error, an ID that nobody knows included.
    """
    with application(invocation.settings(), needs_backend=True) as parts:
        run = run_now(
            parts, RunRequest(trigger="command", organization_ids=organizations, user_ids=users, dry_run=True)
        )
        _refuse_failed(run, as_json=as_json)
        changes = changes_of(parts, run.run_id)
        if as_json:
            show_json_list(run_to_wire(run), "changes", map(change_to_wire, changes))
        else:
            show_changes(changes, run.total("planned"))
            _show_report(run)
            _show_plan_summary(run)
        _refuse_unknown(run)
    context.exit(EXIT_CHANGES if run.still_to_send() else 0)


@click.command(cls=UsherCommand)
@_narrowed
@click.option("--plan", "plan_id", metavar="ID", help="Apply this stored plan; refused when the world has moved on.")
@click.option("--allow-deletes", is_flag=True, help="Delete without regard to the limits, this once.")
@click.option("--verify", is_flag=True, help="Read the backend back first, and mend what differs.")
@click.option("--retry-parked", is_flag=True, help="Try again what was given up after many failures.")
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
    retry_parked: bool,
    as_json: bool,
) -> None:
    """Bring the backend in step with the directory, now.

    In this process, and under the same lock as the workers.

    Exit code 0: done, 3: done in part (some items failed or were held back), 1: error, an ID that nobody knows
    included.
    """
    if plan_id is not None and (organizations or users or verify):
        raise click.UsageError("--plan applies a plan as it is: leave --organization, --user and --verify out")
    with application(invocation.settings(), needs_backend=True) as parts:
        if plan_id is not None and not parts.has_plan(plan_id):
            raise CommandError(f"there is no plan {plan_id} of this backend: usher plan makes one")
        if retry_parked:
            retried = parts.retry_parked()
            note(f"{retried} parked {'item' if retried == 1 else 'items'} will be tried again")
        run = run_now(
            parts,
            RunRequest(
                trigger="command",
                organization_ids=organizations,
                user_ids=users,
                allow_deletes=allow_deletes,
                verify=verify,
                plan_id=plan_id,
            ),
        )
        if as_json:
            show_json(run_to_wire(run))
        if run.status in {RunStatus.FAILED, RunStatus.CANCELLED}:
            raise CommandError(run.error or f"the run was {run.status.value}")
        if not as_json:
            _show_unfinished(parts, run)
            _show_report(run)
            show_summary(run)
        _refuse_unknown(run)
    context.exit(0 if run.status is RunStatus.DONE else EXIT_IN_PART)


def run_now(parts: Application, request: RunRequest) -> Run:
    """Puts the run into the queue and takes it to its end in this process, with progress on standard error.

    Waits until no other process synchronizes. Ctrl-C and SIGTERM end it before its next call.
    """
    lock = parts.sync_lock()
    if not lock.acquire():
        note("another process is synchronizing; waiting for it to end")
        while not lock.acquire(timeout=5.0):
            parts.check_database()
    try:
        return _run_under_lock(parts, request, lock)
    finally:
        lock.release()


def resume(parts: Application, run_id: str) -> Run:
    """Takes a run that is queued to its end, here unless a worker is faster."""
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
    return parts.runs.get(run_id).status is RunStatus.QUEUED


def _run_under_lock(parts: Application, request: RunRequest, lock: SyncLock) -> Run:
    parts.runs.orphaned()
    run, _ = parts.runs.enqueue(request)
    return _execute(parts, run.run_id, lock)


def _execute(parts: Application, run_id: str, lock: SyncLock) -> Run:
    with stop_signals() as stop, progress() as shown:
        return parts.sync_engine(stop=stop).execute(run_id, lock=lock, progress=shown, stop=stop)


def changes_of(parts: Application, run_id: str, status: str | None = None) -> Iterator[Change]:
    """The items of a run's plan, page by page, in order."""
    after = None
    while page := parts.runs.changes(run_id, status=status, after=after, limit=PAGE):
        yield from page
        after = page[-1].ordinal


def show_changes(changes: Iterator[Change], total: int) -> None:
    """A plan's items, ``total`` of them: all for programs, the first ones for people."""
    limit = SHOWN_CHANGES if on_terminal() else None
    rows = (
        (change.action, change.kind, _where(change), change.status, change.message or change.reason)
        for change in islice(changes, limit)
    )
    # Row by row: a first plan may hold millions.
    if (first := next(rows, None)) is not None:
        show_table(("action", "kind", "what", "status", "why"), chain((first,), rows))
    if limit is not None and total > limit:
        say(f"… and {total - limit} more; --json shows all of them")


def _where(change: Change) -> str:
    parts = [change.organization_id, change.container_id, change.item_id]
    if change.kind == "organization":
        parts = [change.item_id]
    return " / ".join(part for part in parts if part)


def _show_unfinished(parts: Application, run: Run) -> None:
    for status in ("failed", "parked", "held", "skipped", "waiting"):
        if run.total(status):
            show_changes(changes_of(parts, run.run_id, status), run.total(status))


def _show_report(run: Run) -> None:
    # Sources were told while they were read; unknown ids are the line that the command ends with.
    for line in report_lines({topic: run.report[topic] for topic in run.report if topic not in _TOLD_ELSEWHERE}):
        note(line)


def report_lines(report: Any) -> Iterator[str]:
    """A run's report as sentences; its shape is the engine's, so lists and mappings are taken as they come."""
    for topic, value in report.items():
        if topic == "sources":
            yield from (source_sentence(one["name"], one["verdict"], one["reason"]) for one in value)
        elif topic == "unknown":
            yield unknown_sentence(report) or ""
        elif isinstance(value, list):
            for entry in value:
                yield f"{topic}: {_flat(entry)}"
        elif value not in (None, "", {}, 0, False):
            yield f"{topic}: {_flat(value)}"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(inner)}" for key, inner in value.items() if inner not in (None, "", [], {}))
    if isinstance(value, list):
        return ", ".join(_flat(inner) for inner in value)
    return str(value)


def _show_plan_summary(run: Run) -> None:
    to_send = run.still_to_send()
    now = ", ".join(
        f"{coloured(str(to_send[action]), action)} to {action}"
        for action in ("add", "update", "delete")
        if action in to_send
    )
    kept_back = {"held": "held back by the limits"}
    later = ", ".join(
        f"{run.total(outcome)} {kept_back.get(outcome, outcome)}"
        for outcome in ("held", "waiting", "parked", "skipped")
        if run.total(outcome)
    )
    if not later:
        say(now or "nothing to do")
    else:
        say(f"{now or 'nothing to do now'}; {later}")
    if run.plan_id:
        say(f"plan {printable(run.plan_id)}")


def show_summary(run: Run) -> None:
    """How a run ended, in one or two lines."""
    outcomes = ("done", "failed", "held", "parked", "waiting", "skipped", "cancelled")
    words = [f"{run.total(outcome)} {outcome}" for outcome in outcomes if run.total(outcome)]
    say(
        f"{coloured(run.status.value, run.status.value)}: {', '.join(words) or 'nothing to do'}"
        f" ({run.calls} {'call' if run.calls == 1 else 'calls'})"
    )
    say(f"run {run.run_id}")
    if run.status is RunStatus.HELD:
        until = f" until {run.held_until:%Y-%m-%d %H:%M} UTC" if run.held_until else ""
        say(f"held deletes wait{until}: usher approve {run.run_id}, or usher discard {run.run_id}")
    if run.error:
        print(f"error: {printable(run.error)}", file=sys.stderr)  # noqa: T201 - beside the result


def _refuse_failed(run: Run, *, as_json: bool) -> None:
    if run.status in {RunStatus.FAILED, RunStatus.CANCELLED}:
        if as_json:
            show_json(run_to_wire(run))
        raise CommandError(run.error or f"the run was {run.status.value}")


def _refuse_unknown(run: Run) -> None:
    """Raises ``CommandError`` when the run was asked for ids that nobody knows: "nothing to do" would hide that."""
    sentence = unknown_sentence(run.report)
    if sentence is not None:
        raise CommandError(sentence)
