"""``usher directory export``: writes the access model to a file."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import click
import orjson

from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.screen import print_note
from app.foundation.text import counted

_EXPORTED = re.compile(r"\.(jsonl|ndjson)(\.gz)?$", re.IGNORECASE)
"""The names of exported files."""


@click.command(cls=UsherCommand)
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
            raise CommandError(f"{file}: the format is JSON Lines; the name must end in .jsonl, .jsonl.gz or .ndjson")
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
