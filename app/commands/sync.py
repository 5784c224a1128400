"""``usher plan`` and ``usher sync``: make a plan, or sync, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from app.commands.frame import CommandError, Invocation, UsherCommand, json_option, pass_invocation
from app.commands.operator import reason_option, stored_reason
from app.commands.screen import print_note, show_json, show_json_lists
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.commands.bootstrap.application import Application
    from app.commands.bootstrap.what_if import ReplacedSources
    from app.directory.settings import DirectorySettings
    from app.sync.runs.run import Run

EXIT_CHANGES = 10
EXIT_INCOMPLETE = 3


def _record_id(value: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from app.contract.base import Id
    from app.contract.validation import first_error

    try:
        return TypeAdapter[str](Id).validate_python(value)
    except ValidationError as error:
        raise click.BadParameter(first_error(error, root=repr(printable(value, limit=40)))) from error


class ItemKind(click.ParamType[str]):
    """The type of a kind of item. It imports the kinds only when it is used."""

    name = "kind"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return self._choice().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return self._choice().shell_complete(ctx, param, incomplete)

    @staticmethod
    def _choice() -> click.Choice[str]:
        from app.sync.ledger.items import ITEM_KINDS

        return click.Choice(ITEM_KINDS)


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator that adds all these options."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_selection = _options(
    click.option(
        "--organization",
        "organizations",
        metavar="ID",
        type=_record_id,
        multiple=True,
        help="Only this organization; repeatable.",
    ),
    click.option("--user", "users", metavar="ID", type=_record_id, multiple=True, help="Only this user; repeatable."),
)
_waiting = _options(
    click.option("--no-wait", is_flag=True, help="Exit with 5 if another process synchronizes."),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Wait this long for another process that synchronizes, then exit with 5. Default: no limit.",
    ),
)


def _timeout(timeout: float | None, *, no_wait: bool) -> float | None:
    """The seconds to wait for another process. None: no limit. Raises ``UsageError``."""
    if no_wait and timeout:
        raise click.UsageError("--no-wait and --timeout exclude each other")
    return 0.0 if no_wait else timeout


@click.command(cls=UsherCommand)
@_selection
@click.option(
    "--directory",
    "files",
    metavar="[NAME=]FILE",
    multiple=True,
    help="Read FILE instead of all sources, or instead of the source NAME; repeatable with names.",
)
@click.option("--impact", is_flag=True, help="Show which users would gain or lose access, or get another role.")
@_waiting
@json_option
@pass_invocation
@click.pass_context
def plan(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    invocation: Invocation,
    organizations: tuple[str, ...],
    users: tuple[str, ...],
    files: tuple[str, ...],
    impact: bool,
    no_wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Show what a sync would do, without doing it.

    Reads the directory and stores a plan. Answers do not change. `usher sync --plan ID` reads the directory again, and
    applies exactly this plan or refuses if the plan has become outdated.

    --impact compares the access of every user to every organization, folder and document before and after this read:
    who gains, who loses, and whose role changes. Changes that were read earlier are in effect already.

    Exit code 0: a sync would change nothing now (all is up to date, held back, waiting, parked or skipped), 10: it
    would change something, 3: a source was not read completely, with changes or without, 1: error, or an unknown ID.
    """
    from app.commands.bootstrap.application import application
    from app.commands.execution import run_now
    from app.commands.run_report import show_incomplete
    from app.sync.runs.run import RunRequest

    settings = invocation.settings()
    with application(settings, needs_backend=True) as parts:
        replaced = _replaced_sources(settings.directory, files) if files else None
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
            timeout=_timeout(timeout, no_wait=no_wait),
        )
        _refuse_failed(run, as_json=as_json)
        if not as_json and not run.total("planned"):
            # Not "nothing to do", which would be misleading.
            _refuse_unknown(run)
        (_plan_to_json if as_json else _show_plan)(parts, run, impact=impact)
        sources = len(settings.directory.sources) if replaced is None else 1
        incomplete = show_incomplete(run, sources, to_stderr=as_json)
        _refuse_unknown(run)
    context.exit(EXIT_INCOMPLETE if incomplete else EXIT_CHANGES if run.pending() else 0)


def _plan_to_json(parts: Application, run: Run, *, impact: bool) -> None:
    from app.commands.changes import access_changes_of
    from app.commands.run_report import changes_of
    from app.service.admin.wire import AccessChangeWire, AccessCountWire, RunWire, change_to_wire

    lists: dict[str, Iterable[object]] = {"changes": map(change_to_wire, changes_of(parts, run.run_id))}
    if impact:
        lists["accessCounts"] = map(AccessCountWire.of, parts.runs.access_counts(run.run_id))
        lists["accessChanges"] = map(AccessChangeWire.of, access_changes_of(parts, run.run_id))
    show_json_lists(RunWire.of(run), lists)


def _show_plan(parts: Application, run: Run, *, impact: bool) -> None:
    from app.commands.changes import show_changes, show_impact, show_sums
    from app.commands.run_report import changes_of, show_plan_summary, show_report

    show_changes(changes_of(parts, run.run_id), run.total("planned"))
    show_sums(parts.runs.summary(run.run_id))
    show_report(run, without=("impact",) if impact else ())
    if impact:
        show_impact(parts, run)
    show_plan_summary(run)


@click.command(cls=UsherCommand)
@_selection
@click.option("--plan", "plan_id", metavar="ID", help="Apply this stored plan. Refused if it has become outdated.")
@click.option("--allow-deletes", is_flag=True, help="Ignore the limits of deletes, this once.")
@click.option("--verify", is_flag=True, help="Read the backend first, and fix differences.")
@click.option("--retry", is_flag=True, help="Retry items now that wait after a failure or are parked.")
@click.option(
    "--kind",
    "kinds",
    type=ItemKind(),
    multiple=True,
    metavar="KIND",
    help="With --retry: only items of this kind; repeatable.",
)
@click.option(
    "--item",
    "items",
    type=(ItemKind(), str, str, str),
    multiple=True,
    metavar="KIND ORGANIZATION CONTAINER ID",
    help="With --retry: only this item; repeatable. CONTAINER is '' outside of folders, documents and groups.",
)
@_waiting
@reason_option
@json_option
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
    """Sync the backend with the directory now.

    In this process, under the same lock as the workers.

    Exit code 0: done, 3: incomplete (items failed or were held back, or a source was not read completely), 1: error, or
    an unknown ID.
    """
    from app.commands.bootstrap.application import application
    from app.commands.execution import run_now
    from app.commands.run_report import show_incomplete, show_report, show_summary, show_unfinished
    from app.service.admin.wire import RunWire
    from app.sync.ledger.items import ItemKey
    from app.sync.runs.run import RunRequest, RunStatus

    if plan_id is not None and (organizations or users or verify or retry):
        raise click.UsageError("--plan applies a plan as it is: omit --organization, --user, --verify and --retry")
    for values, name in ((kinds, "--kind"), (items, "--item")):
        if values and not retry:
            raise click.UsageError(f"{name} selects what is retried: it needs --retry")
    with application(invocation.settings(), needs_backend=True) as parts:
        run = run_now(
            parts,
            RunRequest(
                trigger="command",
                organization_ids=organizations,
                user_ids=users,
                allow_deletes=allow_deletes,
                verify=verify,
                plan_id=None if plan_id is None else _applicable_plan(parts, plan_id),
                retry=retry,
                kinds=kinds,
                items=tuple(ItemKey(*item) for item in items),
                asked_reason=stored_reason(reason),
            ),
            timeout=_timeout(timeout, no_wait=no_wait),
        )
        _refuse_failed(run, as_json=as_json)
        if as_json:
            show_json(RunWire.of(run))
        else:
            if not run.total("planned"):
                # Not "nothing to do", which would be misleading.
                _refuse_unknown(run)
            show_unfinished(parts, run)
            show_report(run)
            show_summary(run)
        incomplete = show_incomplete(run, len(parts.settings.directory.sources), to_stderr=as_json)
        _refuse_unknown(run)
    context.exit(0 if run.status is RunStatus.DONE and not incomplete else EXIT_INCOMPLETE)


def _applicable_plan(parts: Application, prefix: str) -> str:
    """The id of the plan with this prefix. Raises ``CommandError`` if it cannot be applied."""
    from app.sync.runs.run import RunNotFoundError

    try:
        plan_id = parts.runs.find_plan_id(prefix)
    except RunNotFoundError as error:
        raise CommandError(f"{error} of this backend: usher plan makes one") from error
    if plan_id != prefix:
        print_note(f"plan {plan_id}")
    if (problem := parts.plan_problem(plan_id)) is not None:
        raise CommandError(problem)
    return plan_id


def _replaced_sources(directory: DirectorySettings, options: Sequence[str]) -> ReplacedSources:
    """``options``: one ``FILE`` in place of all sources, or any number of ``NAME=FILE``. Raises ``CommandError``."""
    from app.commands.bootstrap.what_if import Replacement, replace_all_sources, replace_sources

    names = [source.source_name for source in directory.sources]
    files: dict[str, Replacement] = {}
    for option in options:
        # A name may contain an equals sign.
        name = next((name for name in names if option.startswith(f"{name}=")), None)
        if name is None and len(options) == 1 and ("=" not in option or Path(option).exists()):
            return replace_all_sources(directory, Replacement(Path(option), option))
        if name is None:
            unknown = option.rpartition("=")[0]
            problem = f"no source is called {unknown}" if unknown else "write several as NAME=FILE"
            raise CommandError(f"--directory {option}: {problem}; the sources are: {', '.join(names)}")
        if name in files:
            raise CommandError(f"--directory: {name} is given twice")
        file = option.removeprefix(f"{name}=")
        if not file:
            raise CommandError(f"--directory {option}: a file is missing")
        files[name] = Replacement(Path(file), file)
    return replace_sources(directory, files)


def _refuse_failed(run: Run, *, as_json: bool) -> None:
    """Raises ``CommandError`` for a run that failed or was cancelled, after its JSON."""
    from app.service.admin.wire import RunWire
    from app.sync.runs.run import RunStatus

    if run.status in {RunStatus.FAILED, RunStatus.CANCELLED}:
        if as_json:
            show_json(RunWire.of(run))
        raise CommandError(run.error or f"the run was {run.status.value}")


def _refuse_unknown(run: Run) -> None:
    """Raises ``CommandError`` if the selection contains unknown ids."""
    from app.sync.runs.report import unknown_sentence

    sentence = unknown_sentence(run.report)
    if sentence is not None:
        raise CommandError(sentence)
