"""``usher directory``: what the sources say, and what is in force."""

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
from app.commands.frame import CommandError, Invocation, UsherGroup, pass_invocation
from app.commands.operator import kept_reason, reason_option
from app.commands.preview import preview
from app.commands.screen import note, progress, say, show_json, show_table
from app.foundation.clock import epoch_ms, utc_now
from app.foundation.text import counted, printable

if TYPE_CHECKING:
    from app.access.contents import SourceState
    from app.access.problems import ProblemGroup
    from app.access.refresh.guard import Guard
    from app.access.refresh.revision import Replaced
    from app.directory.source import Source
    from app.sync.runs.refresh import RefreshReport, SourceReport
    from app.sync.runs.source_checks import Suspicion


HARMLESS = frozenset({ProblemSort.REMARK, ProblemSort.GROUP_CYCLE})
"""Reported, but everything is used as it stands."""

_EXPORTED = re.compile(r"\.(jsonl|ndjson)(\.gz)?$", re.IGNORECASE)

_EVERY_SOURCE = "\0"
"""What ``--full`` is without a name; no argument can be that."""

_LISTED = 50
"""How many sorts of problem are listed."""


@click.group(cls=UsherGroup)
def directory() -> None:
    """Check, preview and read the directory's sources."""


directory.add_command(preview)

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@directory.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=_LISTED,
    show_default=True,
    help="At most this many sorts of problem.",
)
@_as_json
@pass_invocation
@click.pass_context
def check(context: click.Context, invocation: Invocation, limit: int, as_json: bool) -> None:
    """Report what is wrong with the sources.

    Reads every source, compares with what is in force where there is a database, and changes nothing.

    Exit code 0: all is well, 1: something is wrong.
    """
    from app.commands.bootstrap.databases import known_sources
    from app.commands.bootstrap.outside import configured_sources
    from app.commands.bootstrap.requirements import require_sources
    from app.directory.source import Verdict
    from app.sync.runs.refresh import check as check_directory
    from app.sync.runs.refresh import guards_of, object_from_report, object_from_state
    from app.sync.runs.source_checks import fewer

    settings = invocation.settings()
    require_sources(settings)
    sources = configured_sources(settings, spool=False)
    with progress() as shown:
        shown.phase("reading", None)
        report = check_directory(sources, clock=utc_now, progress=shown)
    known = known_sources(settings)
    guards = guards_of(sources, settings.directory.guard)
    odd = _suspicions(report.sources, known, guards)
    report = replace(
        report,
        sources=tuple(
            replace(one, losses=fewer(one.name, one.kinds, known), guard=guards[one.name])
            if one.verdict is Verdict.COMPLETE
            else one
            for one in report.sources
        ),
    )
    if as_json:
        told = [{"source": one.source, "says": one.says, "advice": one.advice} for one in odd]
        kept = [object_from_state(state) for state in known.values()]
        show_json(object_from_report(report) | {"suspicions": told, "inForce": kept})
    else:
        _show_problems(report.problem_groups, limit)
        for one in odd:
            note(str(one))
        for state in known.values():
            note(f"source {state.name}: {state.in_words(epoch_ms(utc_now()))}")
        _show_sources(report.sources)
        if known:
            _show_losses(report.sources, "would take away at least", "no kind has fewer records than are in force")
        say(", ".join(f"{count} {kind}" for kind, count in report.counts.items() if count) or "no records")
    harm = sum(count for sort, count in report.problem_counts.items() if sort not in HARMLESS)
    complete = all(source.verdict is Verdict.COMPLETE for source in report.sources)
    context.exit(0 if complete and not harm and not odd else 1)


@directory.command()
@click.option("--accept-empty", metavar="NAME", multiple=True, help="This source is meant to be empty now; repeatable.")
@click.option(
    "--accept-shrink",
    metavar="NAME",
    multiple=True,
    help="This source is meant to give less now than its guard lets go; repeatable.",
)
@click.option(
    "--full",
    metavar="[NAME]",
    is_flag=False,
    flag_value=_EVERY_SOURCE,
    multiple=True,
    help="Read this source anew as a whole instead of what changed, or all without a NAME; repeatable.",
)
@reason_option
@_as_json
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
    """Read the sources, so that decisions follow.

    Reads every source into the access model; needs no backend. Those that can tell what changed since they were read
    are asked for that alone, until full_every is over, or with --full.

    Exit code 0: done, 3: a source could not be read, was read in part, or is no longer configured; its last good data
    stays in force.
    """
    from app.commands.bootstrap.acting import operator
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.requirements import require_sources
    from app.commands.sync import EXIT_IN_PART
    from app.sync.runs.audit import audited_refresh
    from app.sync.runs.refresh import object_from_report
    from app.sync.runs.refresh import refresh as refresh_directory
    from app.sync.runs.report import incomplete_sentence
    from app.sync.runs.source_checks import retained_sentence

    settings = invocation.settings()
    require_sources(settings)
    accepted = {"--accept-empty": accept_empty, "--accept-shrink": accept_shrink}
    said = " ".join(f"{option} {name}" for option, names in accepted.items() for name in names)
    with application(settings) as parts, progress() as shown:
        sources = parts.sources()
        _require_read((*accept_empty, *accept_shrink), sources)
        shown.phase("reading", None)
        report = refresh_directory(
            parts.engine,
            sources,
            clock=parts.clock,
            guard=settings.directory.guard,
            accept_empty=accept_empty,
            accept_shrink=accept_shrink,
            anew=_anew(full, sources),
            progress=shown,
            witness=audited_refresh(parts.audit, operator(), said, kept_reason(reason)),
        )
    if as_json:
        show_json(object_from_report(report))
    else:
        _show_problems(report.problem_groups, _LISTED)
        _show_sources(report.sources)
        _show_losses(report.sources, "takes away", "nothing is taken away")
        for name in report.retained_sources:
            note(retained_sentence(name))
        _show_changes(report)
    verdicts = {one.name: one.verdict.value for one in report.sources}
    incomplete = incomplete_sentence(verdicts, report.retained_sources, len(settings.directory.sources))
    if incomplete is not None:
        (note if as_json else say)(printable(incomplete))
    context.exit(EXIT_IN_PART if incomplete is not None else 0)


@directory.command()
@click.argument("name", metavar="NAME")
@reason_option
@pass_invocation
def forget(invocation: Invocation, name: str, reason: str | None) -> None:
    """Drop what a source gave that is read no more.

    NAME is no longer among directory.sources, under this name at least; what it gave stays in force until now. Access
    that nothing else gives ends at once, and the next sync removes it from the backend, within the limits.
    """
    from app.commands.bootstrap.acting import operator
    from app.commands.bootstrap.application import application
    from app.commands.bootstrap.outside import configured_sources
    from app.sync.runs.audit import audited_forgetting, counts_in_words
    from app.sync.runs.refresh import forget as forget_source

    settings = invocation.settings()
    with application(settings) as parts:
        forgotten = forget_source(
            parts.engine,
            name,
            configured_sources(settings, spool=False),
            clock=parts.clock,
            witness_of=audited_forgetting(parts.audit, operator(), name, kept_reason(reason)),
        )
    say(f"{name} gave {counts_in_words(forgotten.records)}; what no other source gives is gone")
    _show_changes(forgotten.replaced)


@directory.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_invocation
def export(invocation: Invocation, file: Path, force: bool) -> None:
    """Write the access model into a file.

    The whole of it as JSON Lines, with an end record; FILE ends in .jsonl or .ndjson, with .gz behind it if it is to be
    packed, or is - for standard output.
    """
    from app.access.contents import current_revision
    from app.commands.bootstrap.application import application
    from app.foundation.database.engine import reading
    from app.sync.runs.refresh import export as exported

    if str(file) != "-":
        if not _EXPORTED.search(file.name):
            raise CommandError(f"{file}: JSON Lines are written; the name must end in .jsonl, .jsonl.gz or .ndjson")
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
    """Where to write: a file that is whole or not there."""
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
        # Nobody but us knows of the unfinished file.
        raise CommandError(f"{file}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _anew(full: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """The names of the sources that are to be read as a whole."""
    from app.sync.runs.source_reads import policy_of

    named = [name for name in full if name != _EVERY_SOURCE]
    # What was pushed cannot be read anew.
    read = [source.name for source in sources if not policy_of(source).only_pushed]
    return named + (read if _EVERY_SOURCE in full else [])


def _require_read(accepted: Collection[str], sources: Sequence[Source]) -> None:
    """Raises ``CommandError`` where a read is to be accepted that never takes place."""
    from app.sync.runs.source_reads import policy_of

    for source in sources:
        if source.name in accepted and policy_of(source).only_pushed:
            raise CommandError(
                f"source {source.name} is not read: what was pushed to it stays in force, so there is nothing to accept"
            )


def _suspicions(
    sources: Sequence[SourceReport], kept: Mapping[str, SourceState], guards: Mapping[str, Guard]
) -> list[Suspicion]:
    """What is odd about the sources as a whole."""
    from app.directory.source import Verdict
    from app.sync.runs.source_checks import of_read, of_retained

    complete = [one for one in sources if one.verdict is Verdict.COMPLETE]
    read = [of_read(one.name, one.kinds, kept, guards[one.name]) for one in complete]
    return [one for one in read if one is not None] + list(of_retained([one.name for one in sources], kept))


def _show_changes(report: RefreshReport | Replaced) -> None:
    if not report.changed:
        say(f"revision {report.revision}: nothing changed")
        return
    changes = {kind: change for kind, change in report.changes.items() if change.any}
    told = "; ".join(f"{kind} +{change.added} ~{change.updated} -{change.removed}" for kind, change in changes.items())
    say(f"revision {report.revision}: {told}")


def _show_problems(groups: Sequence[ProblemGroup], limit: int) -> None:
    for group in groups[:limit]:
        note(str(group))
    if len(groups) > limit:
        note(f"… and {len(groups) - limit} other sorts of problem")


def _show_sources(sources: Sequence[SourceReport]) -> None:
    show_table(
        ("source", "verdict", "records", "malformed", "reason"),
        [
            (source.name, source.verdict.value, str(source.records), str(source.malformed), source.reason)
            for source in sources
        ],
    )


def _show_losses(sources: Sequence[SourceReport], verb: str, nothing: str) -> None:
    """What the guard looked at, refused or not."""
    from app.sync.runs.refresh import losses_sentences

    if not any(one.losses for one in sources):
        note(f"guard: {nothing}")
    for sentence in losses_sentences(sources, verb):
        note(sentence)
