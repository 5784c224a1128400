"""Reads, truncates and empties a huge directory with many errors, in bounded memory."""

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from app.access.export import model_counts
from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.foundation.database.engine import open_engine, reading
from app.foundation.database.migrations import upgrade
from app.sync.runs.directory_reads import RefreshReport, read_directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=1_000_000, help="how many lines the file has")
    parser.add_argument("--megabytes", type=int, default=400, help="what the process may use at most")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    if arguments.inside:
        return _run(arguments.records, arguments.megabytes)
    # In a separate process, because the kernel reports the peak memory of the whole process.
    values = ["--records", str(arguments.records), "--megabytes", str(arguments.megabytes), "--inside"]
    return subprocess.run([sys.executable, "-m", "tests.soak.sources", *values], check=False).returncode


def lines(count: int) -> Iterator[bytes]:
    """An organization, and users with memberships. Of ten lines one is a duplicate, and one has a missing reference."""
    yield _line("organization", organizationId="acme", organizationName="Acme")
    written = 1
    number = 0
    while written < count:
        user = f"user-{number}"
        yield _line("user", userId=user, name=f"User {number}", email=f"{user}@acme.example", plan="x" * 40)
        yield _line("membership", organizationId="acme", userId=user)
        written += 2
        if number % 5 == 0:
            yield _line("membership", organizationId="acme", userId=user, accessRole="viewer")
            yield _line("membership", organizationId="acme", userId=f"nobody-{number}")
            written += 2
        number += 1


def _line(kind: str, **fields: str) -> bytes:
    return json.dumps({"kind": kind} | fields).encode() + b"\n"


def _run(count: int, megabytes: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="usher-sources-"))
    try:
        return _read_all(folder, count, megabytes)
    finally:
        shutil.rmtree(folder)


def _read_all(folder: Path, count: int, megabytes: int) -> int:
    file = folder / "people.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.writelines(lines(count))
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    upgrade(engine, STORE_MIGRATIONS)
    values = {"sources": [{"type": "file", "path": str(file), "name": "people"}]}
    sources = sources_from_settings(DirectorySettings.model_validate(values))
    wrong: list[str] = []

    def read(what: str, *, verdict: str, changed: bool) -> RefreshReport:
        began = time.monotonic()
        report = read_directory(engine, sources, clock=lambda: datetime.now(UTC))
        used = _most_memory()
        [source] = report.sources
        took = time.monotonic() - began
        print(f"{what:22} {source.verdict.value:9} {source.records:10,} records {took:7.1f} s  {used:5.0f} MB at most")
        if (source.verdict.value, report.changed) != (verdict, changed):
            wrong.append(f"{what}: {source.verdict.value}, changed: {report.changed}")
        return report

    report = read("the whole of it", verdict="complete", changed=True)
    if not report.problems.counts.get("duplicate") or not report.problems.counts.get("dangling"):
        wrong.append(f"what is wrong was not found: {dict(report.problems.counts)}")
    with reading(engine) as connection:
        before = model_counts(connection)
    read("the same again", verdict="complete", changed=False)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    read("cut off half-way", verdict="failed", changed=False)
    file.write_bytes(gzip.compress(b""))
    read("empty", verdict="failed", changed=False)
    with reading(engine) as connection:
        if model_counts(connection) != before:
            wrong.append("a read that was not complete changed the access model")
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.writelines(lines(count // 10))
    # Complete, but the guard refuses it: removals wait for the operator.
    read("a tenth", verdict="partial", changed=False)
    engine.dispose()
    if _most_memory() > megabytes:
        wrong.append(f"used {_most_memory():.0f} MB, allowed are {megabytes}")
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return 1 if wrong else 0


def _most_memory() -> float:
    """The peak memory of this process, in MB."""
    maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return maximum / 1024 if os.uname().sysname == "Linux" else maximum / 1024**2


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    sys.exit(run(parser.parse_args()))
