"""Measures decisions in process: from the index, small and large, and with what one would write in an afternoon.

The access model is written by SQL, ten grants for each user, with a document that 100,000 users were granted and groups
in groups. A batch has 20 questions that were not asked before.
"""

import cProfile
import pstats
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, insert
from sqlmodel import Session

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.index.index import AccessIndex
from app.access.revisions import REVISION
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.tables import METADATA
from tests.bench.afternoon import find_groups, find_role
from tests.bench.console_world import NOW_MS, Builder, Size, build, grants, people, places
from tests.bench.databases import databases
from tests.tables import make_tables

QUESTIONS = 20
BATCHES = 2_000
PLAIN_BATCHES = 20
PROFILED = 15
"""Functions in a profile."""
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
POLICY = DecisionPolicy()


def bench_decisions(
    folder: Path, *, scale: float, postgres: str | None, is_profiled: bool = False
) -> dict[str, object]:
    """The figures; ``scale`` 1: 100,000 users, as many documents and 1,000,000 grants, and ten times that."""
    figures: dict[str, object] = {}
    medians = []
    for name, factor in (("small", 0.1), ("large", 1.0)):
        (folder / name).mkdir(parents=True)
        with databases(folder / name, postgres) as new_database:
            url = new_database(name)
            engine = open_engine(url)
            size = Size(scale * factor)
            fill(engine, size)
            median, found = _measure(engine, folder / name / "index", size, is_profiled=is_profiled)
            medians.append(median)
            found["private memory of a worker by the questions MB"] = _worker_memory(url, folder / name / "index", size)
            figures |= {f"{name}: {key}": value for key, value in found.items()}
            engine.dispose()
    figures["large against small"] = round(medians[1] / medians[0], 2)
    return figures


def fill(engine: Engine, size: Size, more: Sequence[Callable[[Builder], None]] = ()) -> None:
    """Creates and fills the tables. ``more``: functions that add rows."""
    make_tables(engine, METADATA)
    build(engine, size, print, [people, places, grants, *more])
    with writing(engine) as connection:
        connection.execute(insert(REVISION), [{"revision": 1, "created_at": NOW_MS, "changes": "{}"}])


def index_of(engine: Engine, folder: Path) -> AccessIndex:
    """An index without a thread that confirms it. It never counts as outdated."""
    return AccessIndex(engine, folder, clock=lambda: NOW, uptime=lambda: 0.0)


def _measure(engine: Engine, folder: Path, size: Size, *, is_profiled: bool) -> tuple[float, dict[str, object]]:
    index = index_of(engine, folder)
    began, cpu = time.perf_counter(), time.process_time()
    index.update()
    built, built_cpu = time.perf_counter() - began, time.process_time() - cpu
    number = size.users * 10
    figures: dict[str, object] = {
        "users, documents, grants": f"{size.users:,}, {size.documents:,}, {number:,}",
        "index built in s (CPU of the process)": f"{built:.1f} ({built_cpu:.1f})",
        "per 10,000,000 grants s": round(built * 10_000_000 / number, 1),
        "file MB": round(sum(path.stat().st_size for path in folder.glob("*.mdb")) / 1e6),
    }
    chance = random.Random(7)
    medians = []
    for users in (1, QUESTIONS):
        # The first batches load modules and fill Python's own caches.
        times = sorted([_time(index, batch_of(chance, size, users)) for _ in range(BATCHES)][100:])
        label = "of one user" if users == 1 else f"of {users} users"
        medians.append(statistics.median(times))
        figures[f"decision in a batch {label} us"] = round(medians[-1] / QUESTIONS, 2)
        figures[f"batch {label} p99 us"] = round(times[len(times) * 99 // 100])
    if is_profiled:
        figures |= _profile(index, [batch_of(chance, size, 1) for _ in range(BATCHES)])
    index.close()
    asked = [batch_of(chance, size, 1) for _ in range(PLAIN_BATCHES)]
    start = time.perf_counter()
    for batch in asked:
        with Session(engine) as session:
            groups = find_groups(session, "org-0", batch[0].user_id)
            for question in batch:
                find_role(session, "org-0", question.user_id, question.resource_id, groups)
    plain = (time.perf_counter() - start) * 1e6 / PLAIN_BATCHES
    figures["decision as one would write it in an afternoon us"] = round(plain / QUESTIONS)
    figures["afternoon against the index"] = round(plain / medians[0], 1)
    return medians[0], figures


def _time(index: AccessIndex, batch: Sequence[PlainQuestion]) -> float:
    """The time of a batch, in microseconds."""
    start = time.perf_counter()
    with index.view(batch) as view:
        for question in batch:
            decide(view, question, NOW, POLICY)
    return (time.perf_counter() - start) * 1e6


def _profile(index: AccessIndex, batches: Sequence[Sequence[PlainQuestion]]) -> dict[str, object]:
    """The functions that take most of the time, without those that they call."""
    profiler = cProfile.Profile()
    with profiler:
        for batch in batches:
            _time(index, batch)
    rows: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # not in its types
    total = sum(own for _, _, own, _, _ in rows.values())
    decisions = len(batches) * QUESTIONS
    most = sorted(rows.items(), key=lambda row: row[1][2], reverse=True)[:PROFILED]
    return {
        f"profile: {Path(file).name} {function}": f"{own / total:.1%}, {calls / decisions:.2f} calls for a decision"
        for (file, _, function), (_, calls, own, _, _) in most
    }


def _worker_memory(url: str, folder: Path, size: Size) -> float:
    """The private memory that questions add to a separate process, at most, with the folders that it keeps."""
    code = f"from tests.bench import decisions; decisions.print_memory({url!r}, {str(folder)!r}, {size.scale})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return round(int(done.stdout) / 1e6, 1)


def print_memory(url: str, folder: str, scale: float) -> None:
    """Prints the growth of this process by the batches of ``_measure``, in bytes."""
    index, size, chance = index_of(open_engine(url), Path(folder)), Size(scale), random.Random(7)
    index.update()
    first = batch_of(chance, size, QUESTIONS)
    for _ in range(200):
        # Loads modules and fills Python's own caches.
        _time(index, first)
    before, most = private_bytes(), 0
    for number in range(2 * BATCHES):
        _time(index, batch_of(chance, size, 1 if number < BATCHES else QUESTIONS))
        if number % 20 == 0:
            most = max(most, private_bytes())
    assert index.state.revision, "the database answered"
    print(most - before)
    index.close()


def private_bytes() -> int:
    """The memory of this process without mapped files, which all processes share."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def batch_of(chance: random.Random, size: Size, users: int) -> list[PlainQuestion]:
    """Questions about documents of the largest organization."""
    asking = [chance.randrange(size.large) for _ in range(users)]
    return [
        PlainQuestion(
            user_id=f"user-{asking[number % users]:07d}",
            type="document",
            resource_id=f"document-{chance.randrange(size.large):07d}",
            organization_id="org-0",
        )
        for number in range(QUESTIONS)
    ]
