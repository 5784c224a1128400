"""``usher directory``: checks, reads and exports the directory."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import orjson

from app.access.problems import ProblemSort
from app.commands.frame import CommandError, Invocation, UsherGroup, json_option, pass_invocation
from app.commands.operator import operator, reason_option, stored_reason
from app.commands.preview import changes_in_words, preview
from app.commands.screen import note, progress, say, show_json, show_table
from app.foundation.clock import epoch_ms, utc_now
from app.foundation.text import counted, printable

if TYPE_CHECKING:
    from app.access.contents import SourceState
    from app.access.problems import ProblemGroup
    from app.access.refresh.guard import Guard
    from app.access.revisions import ModelChange
    from app.directory.source import Source
    from app.sync.runs.directory_reads import RefreshReport, SourceReport
    from app.sync.runs.source_checks import SourceWarning

HARMLESS = frozenset({ProblemSort.REMARK, ProblemSort.GROUP_CYCLE})
"""Reported, although no record is left out."""

_EXPORTED = re.compile(r"\.(jsonl|ndjson)(\.gz)?$", re.IGNORECASE)

_EVERY_SOURCE = "\0"
"""The value of ``--full`` without a name. Arguments cannot contain it."""

_MAX_PROBLEMS = 50
"""Default limit of listed problems. Equal ones count once."""


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
    from app.commands.bootstrap.databases import existing_store, known_sources
    from app.commands.bootstrap.outgoing import configured_sources
    from app.commands.bootstrap.requirements import require_sources
    from app.directory.source import Verdict
    from app.sync.runs.audit import counts_in_words
    from app.sync.runs.directory_reads import check as check_directory
    from app.sync.runs.directory_reads import guards_of, object_from_report, object_from_state
    from app.sync.runs.source_checks import check_retained

    settings = invocation.settings()
    require_sources(settings)
    sources = configured_sources(settings, spool=False)
    with progress() as shown:
        shown.phase("reading", None)
        report = check_directory(sources, clock=utc_now, progress=shown)
    with existing_store(settings) as engine:
        known = known_sources(engine)
    guards = guards_of(sources, settings.directory.guard)
    compared = [_compared(source, known, guards[source.name]) for source in report.sources]
    report = replace(report, sources=tuple(source for source, _ in compared))
    suspicions = [suspicion for _, suspicion in compared if suspicion is not None]
    suspicions += check_retained([source.name for source in report.sources], known)
    if as_json:
        show_json(
            object_from_report(report)
            | {
                "suspicions": [{"source": odd.source, "says": odd.message, "advice": odd.advice} for odd in suspicions],
                "inForce": [object_from_state(state) for state in known.values()],
            }
        )
    else:
        _show_problems(report.problems.groups, limit)
        for odd in suspicions:
            note(str(odd))
        for state in known.values():
            note(f"source {state.name}: {state.in_words(epoch_ms(utc_now()))}")
        _show_sources(report.sources)
        if known:
            _show_losses(report.sources, "would take away at least", "no kind has fewer records than are in force")
        say(counts_in_words(report.counts))
    harm = sum(count for sort, count in report.problems.counts.items() if sort not in HARMLESS)
    complete = all(source.verdict is Verdict.COMPLETE for source in report.sources)
    context.exit(0 if complete and not harm and not suspicions else 1)


def _compared(
    source: SourceReport, known: Mapping[str, SourceState], guard: Guard
) -> tuple[SourceReport, SourceWarning | None]:
    """The report of a read with what it would remove of the records in force, and what is suspicious about it."""
    from app.directory.source import Verdict
    from app.sync.runs.source_checks import check_read, missing_records

    if source.verdict is not Verdict.COMPLETE:
        return source, None
    suspicion = check_read(source.name, source.kinds, known, guard, known_empty=source.known_empty)
    return replace(source, losses=missing_records(source.name, source.kinds, known), guard=guard), suspicion


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
    from app.commands.sync import EXIT_INCOMPLETE
    from app.sync.runs.audit import audited_refresh
    from app.sync.runs.directory_reads import object_from_report, read_directory
    from app.sync.runs.report import incomplete_sentence
    from app.sync.runs.source_checks import retained_sentence

    settings = invocation.settings()
    require_sources(settings)
    accepted = {"--accept-empty": accept_empty, "--accept-shrink": accept_shrink}
    options = " ".join(f"{option} {name}" for option, names in accepted.items() for name in names)
    with application(settings) as parts, progress() as shown:
        sources = parts.sources()
        _require_read((*accept_empty, *accept_shrink), sources)
        shown.phase("reading", None)
        report = read_directory(
            parts.engine,
            sources,
            clock=parts.clock,
            guard=settings.directory.guard,
            accept_empty=accept_empty,
            accept_shrink=accept_shrink,
            full=_fully_read(full, sources),
            progress=shown,
            change_hook=audited_refresh(parts.audit, operator(), options, stored_reason(reason)),
        )
    if as_json:
        show_json(object_from_report(report))
    else:
        _show_problems(report.problems.groups, _MAX_PROBLEMS)
        _show_sources(report.sources)
        _show_losses(report.sources, "takes away", "nothing is taken away")
        for name in report.retained_sources:
            note(retained_sentence(name))
        _show_changes(report)
    verdicts = {source.name: source.verdict.value for source in report.sources}
    incomplete = incomplete_sentence(verdicts, report.retained_sources, len(settings.directory.sources))
    if incomplete is not None:
        (note if as_json else say)(printable(incomplete))
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
    say(f"removed {counts_in_words(forgotten.records)} of {name}, except what other sources contain")
    _show_changes(forgotten.replaced)


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
    from app.sync.runs.directory_reads import export as exported

    if str(file) != "-":
        if not _EXPORTED.search(file.name):
            raise CommandError(f"{file}: the format is JSON Lines; the name must end in .jsonl, .jsonl.gz or .ndjson")
        if file.exists() and not force:
            raise CommandError(f"{file}: already exists; --force replaces it")
    with application(invocation.settings()) as parts:
        with reading(parts.engine) as connection:
            if current_revision(connection) == 0:
                raise CommandError("the directory was never read: run usher directory refresh, or a sync")
        with _opened(file) as output:
            count = 0
            for record in exported(parts.engine):
                output.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
            output.write(orjson.dumps({"end": True, "records": count}, option=orjson.OPT_APPEND_NEWLINE))
    note(counted(count, "record"))


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
        with gzip.open(unfinished, "wb") if file.suffix == ".gz" else unfinished.open("wb") as output:
            yield output
        unfinished.replace(file)
    except OSError as error:
        # Not with the name of the unfinished file.
        raise CommandError(f"{file}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _fully_read(full: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """The names of the sources to read completely."""
    from app.sync.runs.source_reads import policy_of

    named = [name for name in full if name != _EVERY_SOURCE]
    every = [source.name for source in sources if not policy_of(source).only_pushed]
    return named + (every if _EVERY_SOURCE in full else [])


def _require_read(accepted: Collection[str], sources: Sequence[Source]) -> None:
    """Raises ``CommandError`` for sources that are never read, because they only receive pushes."""
    from app.sync.runs.source_reads import policy_of

    for source in sources:
        if source.name in accepted and policy_of(source).only_pushed:
            raise CommandError(f"source {source.name} only receives pushes, so there is no read to accept")


def _show_changes(report: RefreshReport | ModelChange) -> None:
    if not report.changed:
        say(f"revision {report.revision}: nothing changed")
        return
    say(f"revision {report.revision}: {changes_in_words(report.changes)}")


def _show_problems(groups: Sequence[ProblemGroup], limit: int) -> None:
    for group in groups[:limit]:
        note(str(group))
    if len(groups) > limit:
        note(f"… and {len(groups) - limit} other problems")


def _show_sources(sources: Sequence[SourceReport]) -> None:
    show_table(
        ("source", "verdict", "records", "malformed", "reason"),
        [
            (source.name, source.verdict.value, str(source.records), str(source.malformed), source.reason)
            for source in sources
        ],
    )


def _show_losses(sources: Sequence[SourceReport], verb: str, nothing: str) -> None:
    """The losses that the guard checked, refused or not."""
    from app.sync.runs.directory_reads import losses_sentences

    if not any(source.losses for source in sources):
        note(f"guard: {nothing}")
    for sentence in losses_sentences(sources, verb):
        note(sentence)
