"""Measures the time from the commit of a revision until the last of ten nodes answers by it."""

import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from app.access.index.file import IndexDamagedError, IndexFile
from app.access.problems import ProblemList
from app.access.records import Membership, Organization, Record, User
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.foundation.database.engine import open_engine
from app.foundation.database.tables import METADATA
from tests.bench.databases import databases
from tests.tables import make_tables

NODES = 10
USERS = 1_000
NODE = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from app.access.index.index import AccessIndex
from app.foundation.database.engine import open_engine
AccessIndex(open_engine(sys.argv[1]), Path(sys.argv[2]), clock=lambda: datetime.now(UTC)).run(Event())
"""


def bench_nodes(folder: Path, *, rounds: int, postgres: str | None) -> dict[str, object]:
    """The figures of ``rounds`` × 20 revisions, each of which changes one membership."""
    with databases(folder, postgres) as new_database:
        url = new_database("nodes")
        engine = open_engine(url)
        make_tables(engine, METADATA)

        def read(members: int) -> int:
            records: list[Record] = [Organization(organization_id="acme", organization_name="Acme")]
            users = [f"user-{number}" for number in range(USERS)]
            records += [User(user_id=user, name=user, email=f"{user}@acme.example") for user in users]
            records += [Membership(organization_id="acme", user_id=user) for user in users[:members]]
            with Refresh(engine, clock=lambda: datetime.now(UTC), problems=ProblemList()) as refresh:
                refresh.begin(["company"])
                for record in records:
                    refresh.staging.add(record, "company:1")
                refresh.staging.end(ReadResult(records=len(records)))
                return refresh.finish(accept_empty=["company"]).change.revision

        read(USERS)
        folders = [folder / f"node-{number}" for number in range(NODES)]
        nodes = [subprocess.Popen([sys.executable, "-c", NODE, url, str(each)]) for each in folders]
        try:
            files = [_opened(each) for each in folders]
            delays = []
            for number in range(rounds * 20):
                revision = read(USERS - 1 - number % 2)
                committed = time.perf_counter()
                while any((stamp := file.stamp) is None or stamp.revision < revision for file in files):
                    time.sleep(0.001)
                delays.append((time.perf_counter() - committed) * 1000)
                # Not at the same moment of the nodes' own checks.
                time.sleep(0.01 * (number % 7))
        finally:
            for node in nodes:
                node.terminate()
                node.wait()
        engine.dispose()
    delays.sort()
    return {
        "nodes": NODES,
        "revisions": len(delays),
        "until the last node p50 ms": round(statistics.median(delays), 1),
        "until the last node p99 ms": round(delays[len(delays) * 99 // 100], 1),
        "target p99 ms": 1000,
    }


def _opened(folder: Path) -> IndexFile:
    until = time.monotonic() + 60
    while True:
        try:
            return IndexFile(folder / (folder / "current").read_text())
        except (FileNotFoundError, IndexDamagedError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
