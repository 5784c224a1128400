"""Processes that maintain the index are killed at any moment, while the directory changes."""

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from app.access.index.entries import all_entries
from app.access.index.file import IndexFile, Stamp
from app.access.problem_list import ProblemList
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, reading
from tests.access.index.test_following import sorted_value
from tests.choice import sampled
from tests.crashes.maintainer import maintain
from tests.forking import Forked
from tests.tables import make_tables
from tests.worlds.random_directories import NOW, Company

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(180)]

KILLS = 12


@pytest.mark.parametrize("max_logged", sampled([50_000, 5], sample=1), ids=["changes", "builds"])
def test_killed_maintainers_leave_one_revision(database_url: str, tmp_path: Path, max_logged: int) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    folder = tmp_path / "index"
    entries_of: dict[Stamp, dict[bytes, bytes]] = {}

    def read(number: int) -> None:
        records = Company(number).records()
        with Refresh(engine, clock=lambda: NOW, problems=ProblemList()) as refresh:
            refresh.begin(["company"])
            for record in records:
                refresh.staging.add(record, "company:1")
            refresh.staging.end(ReadResult(records=len(records)))
            change = refresh.finish(accept_empty=["company"]).change
        with reading(engine) as connection:
            stamp = Stamp(change.revision, int(NOW.timestamp() * 1000))
            entries_of[stamp] = {key: sorted_value(key, value) for key, value in all_entries(connection)}

    def start() -> Forked:
        url = engine.url.render_as_string(hide_password=False)
        output = tmp_path / "maintainers"
        return Forked(maintain, url, str(folder), max_logged, folder=tmp_path, out=output, err=output)

    lot = Random(7)
    read(0)
    # Two maintain at the same time: one has the lock, the other takes over.
    maintainers = [start(), start()]
    seen: set[Stamp] = set()
    try:
        _wait_for(folder / "current")
        for number in range(1, KILLS + 1):
            before = max(entries_of)
            until = time.monotonic() + lot.uniform(0.05, 0.4)
            while time.monotonic() < until or _content(folder)[0] <= before:
                assert time.monotonic() < until + 30
                read(lot.randrange(1 << 30))
            victim = maintainers.pop(lot.randrange(2))
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            if number % 3 == 0:
                # Without the other one, the file does not change while it is compared.
                other = maintainers.pop()
                os.kill(other.pid, signal.SIGKILL)
                other.wait()
                stamp, stored = _content(folder)
                assert stored == entries_of[stamp]
                seen.add(stamp)
                maintainers.append(start())
            maintainers.append(start())
        _follow(folder, max(entries_of))
    finally:
        for process in maintainers:
            process.kill()
            process.wait()
        engine.dispose()
    stamp, stored = _content(folder)
    assert stored == entries_of[stamp]
    assert len(seen) == KILLS // 3


def _content(folder: Path) -> tuple[Stamp, dict[bytes, bytes]]:
    file = IndexFile(folder / (folder / "current").read_text())
    stamp = file.stamp
    assert stamp is not None
    with file._environment.begin() as transaction, transaction.cursor() as cursor:
        pairs = [(bytes(key), bytes(value)) for key, value in cursor]
    file.close()
    return stamp, {key: sorted_value(key, value) for key, value in pairs if key != b"\0"}


def _wait_for(path: Path) -> None:
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def _follow(folder: Path, stamp: Stamp) -> None:
    until = time.monotonic() + 30
    while _content(folder)[0] != stamp:
        assert time.monotonic() < until
        time.sleep(0.1)
