"""``usher directory``: what the sources say, and what is in force."""

import gzip
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import click
import orjson

from app.bootstrap import application, utc_now
from app.commands.frame import CommandError, Invocation, UsherGroup, pass_invocation
from app.database.engine import reading
from app.directory.configured import sources_from_settings
from app.directory.source import Verdict
from app.screen import note, progress, say, show_table
from app.store.access_model import current_revision
from app.store.refresh_problems import Problem, ProblemSort
from app.sync.reading import SourceReport
from app.sync.reading import check as check_directory
from app.sync.reading import export as exported
from app.sync.reading import refresh as refresh_directory

HARMLESS = frozenset({ProblemSort.REMARK, ProblemSort.GROUP_CYCLE})
"""Reported, but everything is used as it stands."""


@click.group(cls=UsherGroup)
def directory() -> None:
    """Look at the directory's sources, and read them."""


@directory.command()
@pass_invocation
@click.pass_context
def check(context: click.Context, invocation: Invocation) -> None:
    """Report what is wrong with the sources.

    Reads every source, and changes nothing.

    Exit code 0: all is well, 1: something is wrong.
    """
    sources = sources_from_settings(invocation.settings().directory)
    with progress() as shown:
        shown.phase("reading", None)
        report = check_directory(sources, clock=utc_now, progress=shown)
    _show_problems(report.problems, report.problem_count)
    _show_sources(report.sources)
    say(", ".join(f"{count} {kind}" for kind, count in report.counts.items() if count) or "no records")
    harm = sum(count for sort, count in report.problem_counts.items() if sort not in HARMLESS)
    complete = all(source.verdict is Verdict.COMPLETE for source in report.sources)
    context.exit(0 if complete and not harm else 1)


@directory.command()
@click.option("--accept-empty", metavar="NAME", multiple=True, help="This source is meant to be empty now; repeatable.")
@pass_invocation
@click.pass_context
def refresh(context: click.Context, invocation: Invocation, accept_empty: tuple[str, ...]) -> None:
    """Read the sources, so that decisions follow.

    Reads every source into the access model; needs no backend.

    Exit code 0: done, 1: a source could not be read (what it last said stays in force).
    """
    with application(invocation.settings()) as parts, progress() as shown:
        shown.phase("reading", None)
        report = refresh_directory(
            parts.engine, parts.sources(), clock=parts.clock, accept_empty=accept_empty, progress=shown
        )
    _show_problems(report.problems, report.problem_count)
    _show_sources(report.sources)
    if report.changed:
        changes = {kind: change for kind, change in report.changes.items() if change.any}
        say(
            f"revision {report.revision}: "
            + "; ".join(
                f"{kind} +{change.added} ~{change.updated} -{change.removed}" for kind, change in changes.items()
            )
        )
    else:
        say(f"revision {report.revision}: nothing changed")
    context.exit(1 if any(source.verdict is Verdict.FAILED for source in report.sources) else 0)


@directory.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@pass_invocation
def export(invocation: Invocation, file: Path) -> None:
    """Write the access model into a file.

    The whole of it as JSON Lines; FILE may end in .gz, or be - for standard output.
    """
    with application(invocation.settings()) as parts:
        with reading(parts.engine) as connection:
            if current_revision(connection) == 0:
                raise CommandError("the directory was never read: run usher directory refresh, or a sync")
        with _opened(file) as output:
            count = 0
            for record in exported(parts.engine):
                output.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
    note(f"{count} records")


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Where to write: a file that is whole or not there."""
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = file.with_name(f"{file.name}.part")
    try:
        with gzip.open(unfinished, "wb") if file.suffix == ".gz" else unfinished.open("wb") as output:
            yield output
        unfinished.replace(file)
    except OSError as error:
        # Nobody but us knows of the unfinished file.
        raise CommandError(f"{file}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _show_problems(problems: Sequence[Problem], count: int) -> None:
    for problem in problems:
        note(f"{problem.sort.value}: {problem}")
    if count > len(problems):
        note(f"… and {count - len(problems)} more problems")


def _show_sources(sources: Sequence[SourceReport]) -> None:
    show_table(
        ("source", "verdict", "records", "malformed", "reason"),
        [
            (source.name, source.verdict.value, str(source.records), str(source.malformed), source.reason)
            for source in sources
        ],
    )
