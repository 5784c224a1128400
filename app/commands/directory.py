"""``usher directory``: checks and reads the sources, forgets removed ones, and exports the access model."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import orjson

from app.commands.frame import CommandError, Invocation, UsherGroup, json_option, pass_invocation
from app.commands.operator import operator, reason_option, stored_reason
from app.commands.preview import preview
from app.commands.progress import progress
from app.commands.screen import print_note, print_result, show_json
from app.foundation.text import counted, printable

if TYPE_CHECKING:
    from app.directory.source import Source

_EVERY_SOURCE = "\0"
"""The value of ``--full`` without a name. Arguments cannot contain it."""

_MAX_PROBLEMS = 50
"""Default limit of listed problems. Equal ones count once."""
_EXPORTED = re.compile(r"\.(jsonl|ndjson)(\.gz)?$", re.IGNORECASE)
"""The names of exported files."""


@click.group(cls=UsherGroup)
def directory() -> None:
    """Check, preview and read the directory's sources."""


directory.add_command(preview)


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

    Exit code 0: done, 3: a source could not be read, was read partially, or is no longer configured; records that were
    not read are not removed.
    """
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.requirements import require_sources
    from app.commands.directory_report import show_refresh
    from app.commands.directory_wire import object_from_report
    from app.commands.problems import count_problems_now
    from app.commands.sync import EXIT_INCOMPLETE
    from app.sync.runs.audit import audited_refresh
    from app.sync.runs.directory_reads import ReadOptions, read_directory
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
        count_problems_now(parts)
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
            audit_hook=audited_forgetting(parts.audit, operator(), name, stored_reason(reason)),
        )
    print_result(f"removed {counts_in_words(forgotten.records)} of {name}, except what other sources contain")
    show_revision(forgotten.replaced)


@directory.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace an existing file.")
@pass_invocation
def export(invocation: Invocation, file: Path, force: bool) -> None:
    """Write the access model to a file.

    As JSON Lines with an end record. FILE ends in .jsonl or .ndjson, or in .jsonl.gz or .ndjson.gz for a compressed
    file. - is standard output.
    """
    from app.access.revisions import current_revision
    from app.commands.bootstrap.application import application
    from app.foundation.database.engine import reading
    from app.sync.runs.directory_reads import export as exported_records

    if str(file) != "-":
        if not _EXPORTED.search(file.name):
            raise CommandError(
                f"{file}: the format is JSON Lines; the name must end in .jsonl or .ndjson, with or without .gz"
            )
        if file.exists() and not force:
            raise CommandError(f"{file}: already exists; --force replaces it")
    with application(invocation.settings()) as parts:
        with reading(parts.engine) as connection:
            if current_revision(connection) == 0:
                raise CommandError("the directory was never read: run usher directory refresh, or a sync")
        with _opened(file) as output:
            count = 0
            for record in exported_records(parts.engine):
                output.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
            output.write(orjson.dumps({"end": True, "records": count}, option=orjson.OPT_APPEND_NEWLINE))
    print_note(counted(count, "record"))


def _fully_read(full: Sequence[str], sources: Sequence[Source]) -> list[str]:
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


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Opens the file for writing. If writing fails, it is not replaced."""
    from app.foundation.files import make_file

    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = file.with_name(f"{file.name}.part")
    try:
        make_file(unfinished)
        with gzip.open(unfinished, "wb") if file.suffix.lower() == ".gz" else unfinished.open("wb") as output:
            yield output
        unfinished.replace(file)
    except OSError as error:
        # Not with the name of the unfinished file.
        raise CommandError(f"{file}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
