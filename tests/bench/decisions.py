"""Measures decisions in process: from the index, small and large, and with what one would write in an afternoon.

The access model is written by SQL, ten grants for each user, with a document that 100,000 users were granted and groups
in groups. A batch has 20 questions that were not asked before.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, insert, select

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.index.index import AccessIndex
from app.access.revisions import REVISION
from app.access.tables import ACCESS_TABLES
from app.foundation.database.engine import open_engine, reading, writing
from app.foundation.database.tables import METADATA
from tests.bench.console_world import NOW_MS, Builder, Size, build, grants, people, places
from tests.bench.databases import databases
from tests.tables import make_tables

QUESTIONS = 20
BATCHES = 2_000
PLAIN_BATCHES = 20
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
POLICY = DecisionPolicy()


def bench_decisions(folder: Path, *, scale: float, postgres: str | None) -> dict[str, object]:
    """The figures; ``scale`` 1: 100,000 users, as many documents and 1,000,000 grants, and ten times that."""
    figures: dict[str, object] = {}
    medians = []
    for name, factor in (("small", 0.1), ("large", 1.0)):
        (folder / name).mkdir(parents=True)
        with databases(folder / name, postgres) as new_database:
            engine = open_engine(new_database(name))
            size = Size(scale * factor)
            _fill(engine, size)
            median, found = _measure(engine, folder / name / "index", size)
            medians.append(median)
            figures |= {f"{name}: {key}": value for key, value in found.items()}
            engine.dispose()
    figures["large against small"] = round(medians[1] / medians[0], 2)
    return figures


def _fill(engine: Engine, size: Size) -> None:
    make_tables(engine, METADATA)
    parts: Sequence[Callable[[Builder], None]] = (people, places, grants)
    build(engine, size, print, parts)
    with writing(engine) as connection:
        connection.execute(insert(REVISION), [{"revision": 1, "created_at": NOW_MS, "changes": "{}"}])
        connection.exec_driver_sql("ANALYZE")


def _measure(engine: Engine, folder: Path, size: Size) -> tuple[float, dict[str, object]]:
    # Without a thread that confirms it, the index would count as outdated soon.
    index = AccessIndex(engine, folder, clock=lambda: NOW, uptime=lambda: 0.0)
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
    before = 0
    medians = []
    for users in (1, QUESTIONS):
        times = []
        for _ in range(BATCHES):
            batch = _batch(chance, size, users)
            start = time.perf_counter()
            with index.view(batch) as view:
                for question in batch:
                    decide(view, question, NOW, POLICY)
            times.append((time.perf_counter() - start) * 1e6)
            # The first batches load modules and fill Python's own caches.
            before = before or (_private_bytes() if len(times) == 100 else 0)
        times = sorted(times[100:])
        label = "of one user" if users == 1 else f"of {users} users"
        medians.append(statistics.median(times))
        figures[f"decision in a batch {label} us"] = round(medians[-1] / QUESTIONS, 2)
        figures[f"batch {label} p99 us"] = round(times[len(times) * 99 // 100])
    figures["private memory of the questions MB"] = round((_private_bytes() - before) / 1e6, 1)
    index.close()
    asked = [_batch(chance, size, 1) for _ in range(PLAIN_BATCHES)]
    with reading(engine) as connection:
        start = time.perf_counter()
        for batch in asked:
            for question in batch:
                _plainly(connection, question)
        plain = (time.perf_counter() - start) * 1e6 / PLAIN_BATCHES
    figures["decision with a query for each record us"] = round(plain / QUESTIONS)
    figures["queries against the index"] = round(plain / medians[0], 1)
    return medians[0], figures


def _private_bytes() -> int:
    """The memory of this process without mapped files, which all processes share."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def _batch(chance: random.Random, size: Size, users: int) -> list[PlainQuestion]:
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


def _plainly(connection: Connection, question: PlainQuestion) -> str | None:
    """The role, as one would find it in an afternoon: a query for each record, without expiry and reasons."""

    def find(kind: str, **values: str) -> Any:
        table = ACCESS_TABLES[kind]
        same = (table.c[name] == value for name, value in values.items())
        return connection.execute(select(table).where(*same)).all()

    acme = {"organization_id": question.organization_id}
    organizations = find("organization", **acme)
    users = find("user", user_id=question.user_id)
    documents = find("document", document_id=question.resource_id, **acme)
    if not organizations or organizations[0].disabled or not users or users[0].disabled or not documents:
        return None
    groups: set[str] = set()
    waiting = find("groupMember", user_id=question.user_id, **acme)
    while waiting:
        row = waiting.pop()
        if row.organization_user_group_id not in groups:
            groups.add(row.organization_user_group_id)
            waiting += find("groupMember", member_group_id=row.organization_user_group_id, **acme)
    access_type, folder_id = documents[0].access_type, documents[0].folder_id
    level = {"document_id": question.resource_id, "folder_id": ""}
    while True:
        for row in find("grant", user_id=question.user_id, **level, **acme):
            return str(row.access_role)
        roles = [
            row.access_role
            for group in groups
            for row in find("grant", organization_user_group_id=group, user_id="", **level, **acme)
        ]
        if roles:
            return str(min(roles))
        if not folder_id:
            break
        folders = find("folder", folder_id=folder_id, **acme)
        if not folders:
            return None
        access_type = access_type or folders[0].access_type
        level = {"document_id": "", "folder_id": folder_id}
        folder_id = folders[0].parent_folder_id
    members = find("membership", user_id=question.user_id, **acme)
    if (access_type or organizations[0].access_type) == "restricted" or not members:
        return None
    return str(members[0].access_role)
