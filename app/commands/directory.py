"""``usher directory``: checks and reads the sources, and forgets removed ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from app.commands.directory_export import export
from app.commands.frame import CommandError, Invocation, UsherGroup, json_option, pass_invocation
from app.commands.operator import operator, reason_option, stored_reason
from app.commands.preview import preview
from app.commands.progress import progress
from app.commands.screen import print_note, print_result, show_json
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.directory.source import Source

_EVERY_SOURCE = "\0"
"""The value of ``--full`` without a name. Arguments cannot contain it."""

_MAX_PROBLEMS = 50
"""Default limit of listed problems. Equal ones count once."""


@click.group(cls=UsherGroup)
def directory() -> None:
    """Check, preview and read the directory's sources."""


directory.add_command(preview)
directory.add_command(export)


@directory.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=_MAX_PROBLEMS,
    show_default=True,
    help="List at most this many different problems.",
)
@json_option
@pass_invocation
@click.pass_context
def check(context: click.Context, invocation: Invocation, limit: int, as_json: bool) -> None:
    """Check the sources, and report problems.

    Reads every source, compares it with the records in force if there is a database, and changes nothing.

    Exit code 0: no problems, 1: problems.
    """
    from app.commands.directory_report import check_to_wire, read_and_compare, show_check

    checked = read_and_compare(invocation.settings())
    if as_json:
        show_json(check_to_wire(checked))
    else:
        show_check(checked, limit)
    context.exit(0 if checked.is_clean else 1)


@directory.command()
@click.option("--accept-empty", metavar="NAME", multiple=True, help="Accept that this source is empty now; repeatable.")
@click.option(
    "--accept-shrink",
    metavar="NAME",
    multiple=True,
    help="Accept that this source lost more records than its guard allows; repeatable.",
)
@click.option(
    "--full",
    metavar="[NAME]",
    is_flag=False,
    flag_value=_EVERY_SOURCE,
    multiple=True,
    help="Read this source completely, not only its changes; without NAME all sources. Repeatable.",
)
@reason_option
@json_option
@pass_invocation
@click.pass_context
def refresh(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    invocation: Invocation,
    accept_empty: tuple[str, ...],
    accept_shrink: tuple[str, ...],
    full: tuple[str, ...],
    reason: str | None,
    as_json: bool,
) -> None:
    """Read the sources into the access model.

    Decisions follow at once. Needs no backend. Sources that can report changes are asked for them only, until
    full_every has passed, or with --full.

    Exit code 0: done, 3: a source could not be read, was read partially, or is no longer configured; its last good data
    stays in force.
    """
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.requirements import require_sources
    from app.commands.directory_report import show_refresh
    from app.commands.sync import EXIT_INCOMPLETE
    from app.sync.runs.audit import audited_refresh
    from app.sync.runs.directory_reads import ReadOptions, object_from_report, read_directory
    from app.sync.runs.report import incomplete_sentence

    settings = invocation.settings()
    require_sources(settings)
    accepted = {"--accept-empty": accept_empty, "--accept-shrink": accept_shrink}
    options = " ".join(f"{option} {name}" for option, names in accepted.items() for name in names)
    with application(settings) as parts, progress() as display:
        sources = parts.sources()
        _require_read((*accept_empty, *accept_shrink), sources)
        display.phase("reading", None)
        report = read_directory(
            parts.engine,
            sources,
            ReadOptions(accept_empty=accept_empty, accept_shrink=accept_shrink, full=_fully_read(full, sources)),
            clock=parts.clock,
            guard=settings.directory.guard,
            progress=display,
            change_hook=audited_refresh(parts.audit, operator(), options, stored_reason(reason)),
        )
    if as_json:
        show_json(object_from_report(report))
    else:
        show_refresh(report, _MAX_PROBLEMS)
    verdicts = {source.name: source.verdict.value for source in report.sources}
    incomplete = incomplete_sentence(verdicts, report.retained_sources, len(settings.directory.sources))
    if incomplete is not None:
        (print_note if as_json else print_result)(printable(incomplete))
    context.exit(EXIT_INCOMPLETE if incomplete is not None else 0)


@directory.command()
@click.argument("name", metavar="NAME")
@reason_option
@pass_invocation
def forget(invocation: Invocation, name: str, reason: str | None) -> None:
    """Remove the records of a source that is no longer configured.

    Until then, the last records of NAME stay in force. Access that no other source provides ends at once. The next sync
    removes it from the backend, within the limits.
    """
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.outgoing import configured_sources
    from app.commands.directory_report import show_revision
    from app.sync.runs.audit import audited_forgetting, counts_in_words
    from app.sync.runs.directory_reads import forget as forget_source

    settings = invocation.settings()
    with application(settings) as parts:
        forgotten = forget_source(
            parts.engine,
            name,
            configured_sources(settings, spool=False),
            clock=parts.clock,
            audit_hook_of=audited_forgetting(parts.audit, operator(), name, stored_reason(reason)),
        )
    print_result(f"removed {counts_in_words(forgotten.records)} of {name}, except what other sources contain")
    show_revision(forgotten.replaced)


def _fully_read(full: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """The names of the sources to read completely."""
    from app.sync.runs.source_reads import policy_of

    names = [name for name in full if name != _EVERY_SOURCE]
    every = [source.name for source in sources if not policy_of(source).only_pushed]
    return names + (every if _EVERY_SOURCE in full else [])


def _require_read(accepted: Collection[str], sources: Sequence[Source]) -> None:
    """Raises ``CommandError`` for sources that are never read, because they only receive pushes."""
    from app.sync.runs.source_reads import policy_of

    for source in sources:
        if source.name in accepted and policy_of(source).only_pushed:
            raise CommandError(f"source {source.name} only receives pushes, so there is no read to accept")
