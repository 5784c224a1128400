"""Measures decisions about large records, which must stay lookups: large groups, deep folders, many grants.

The access model is written by SQL. Each shape is asked about beside a plain user and document, without stored folders.
Then one membership of the largest group changes by a push, and the index follows.
"""

import statistics
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from sqlalchemy import Engine, insert

from app.access import tables as access
from app.access.decision.decide import PlainQuestion, decide
from app.access.index.file import IndexFile, IndexReader, IndexWriter
from app.access.index.folders import Folders
from app.access.index.index import AccessIndex
from app.access.index.index_view import IndexView
from app.access.records import GroupMember, Record, User
from app.access.refresh.pushes import NumberedPush, apply_push
from app.access.revisions import REVISION
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.tables import METADATA
from tests.bench.console_world import NOW_MS, Builder, Size, build
from tests.bench.databases import databases
from tests.bench.decisions import NOW, POLICY, index_of
from tests.tables import make_tables

DEPTH = 50
NESTED = 30
CLUBS = 1_000
REPEATS = 2_000
CHANGES = 20


def bench_shapes(folder: Path, *, scale: float, postgres: str | None) -> dict[str, object]:
    """The figures; ``scale`` 1: a group of 1,000,000 members, and a document with 100,000 grants."""
    folder.mkdir(parents=True)
    size = Size(scale)
    with databases(folder, postgres) as new_database:
        engine = open_engine(new_database("shapes"))
        make_tables(engine, METADATA)
        build(engine, size, print, [shapes])
        with writing(engine) as connection:
            connection.execute(insert(REVISION), [{"revision": 1, "created_at": NOW_MS, "changes": "{}"}])
        index = index_of(engine, folder / "index")
        index.update()
        changes = _changes(engine, index, size)
        index.close()
        file = IndexFile(folder / "index" / (folder / "index" / "current").read_text())
        figures = {
            f"decision alone in its call, and its lookups: {name}": _measure(file, question)
            for name, question in _questions().items()
        }
        file.close()
        engine.dispose()
    return figures | changes


def shapes(b: Builder) -> None:
    """The organization acme with all shapes. Everything is restricted, so that grants decide."""
    of_acme = {"organization_id": "'acme'"}
    one = "(SELECT 0 AS i) AS n"
    user, club, nested = b.id("user", "n.i"), b.id("club", "n.i"), b.id("nested", "n.i")
    members = b.size.users
    tables = access.ACCESS_TABLES
    b.fill(tables["organization"], {**of_acme, "access_type": "'restricted'", "disabled": "FALSE"}, one)
    # The first two are not in the largest group.
    b.fill(tables["user"], {"user_id": user, "disabled": "FALSE"}, b.series(members + 2))
    for group, count in ((club, CLUBS), (nested, NESTED)):
        b.fill(tables["group"], {**of_acme, "organization_user_group_id": group}, b.series(count))
    member = {**of_acme, "member_group_id": "''", "user_id": "''"}
    b.fill(
        tables["groupMember"],
        {**member, "organization_user_group_id": b.id("nested", "0"), "user_id": b.id("user", "n.i + 2")},
        b.series(members),
    )
    b.fill(
        tables["groupMember"],
        {**member, "organization_user_group_id": b.id("nested", "n.i + 1"), "member_group_id": nested},
        b.series(NESTED - 1),
    )
    b.fill(
        tables["groupMember"],
        {**member, "organization_user_group_id": club, "user_id": b.id("user", "1")},
        b.series(CLUBS),
    )
    folder = {**of_acme, "access_type": "''", "folder_id": b.id("folder", "n.i")}
    above = f"CASE n.i WHEN 0 THEN '' ELSE {b.id('folder', 'n.i - 1')} END"
    b.fill(tables["folder"], {**folder, "parent_folder_id": above}, b.series(DEPTH))
    for document, within in (
        ("plain", "''"),
        ("deep", b.id("folder", str(DEPTH - 1))),
        ("nested", "''"),
        ("shared", "''"),
        ("of clubs", "''"),
    ):
        values = {**of_acme, "document_id": f"'{document}'", "folder_id": within, "access_type": "''"}
        b.fill(tables["document"], values, one)
    grant = {
        **of_acme,
        "folder_id": "''",
        "document_id": "''",
        "user_id": "''",
        "organization_user_group_id": "''",
        "access_role": "'viewer'",
    }
    b.fill(tables["grant"], {**grant, "document_id": "'plain'", "user_id": b.id("user", "0")}, one)
    b.fill(tables["grant"], {**grant, "folder_id": b.id("folder", "0"), "user_id": b.id("user", "0")}, one)
    top = b.id("nested", str(NESTED - 1))
    b.fill(tables["grant"], {**grant, "document_id": "'nested'", "organization_user_group_id": top}, one)
    b.fill(tables["grant"], {**grant, "document_id": "'of clubs'", "organization_user_group_id": club}, b.series(5))
    shared = {**grant, "document_id": "'shared'"}
    b.fill(tables["grant"], {**shared, "user_id": user}, b.series(b.size.of(99_000)))
    b.fill(tables["grant"], {**shared, "organization_user_group_id": club}, b.series(CLUBS))


def _questions() -> dict[str, PlainQuestion]:
    def ask(user: int, document: str) -> PlainQuestion:
        return PlainQuestion(user_id=f"user-{user:07}", type="document", resource_id=document, organization_id="acme")

    return {
        "plain": ask(0, "plain"),
        f"{DEPTH} folders deep, the grant on the top": ask(0, "deep"),
        f"groups nested {NESTED} deep": ask(2, "nested"),
        f"a document with 99,000 grants of users and {CLUBS:,} of groups": ask(0, "shared"),
        f"a user in {CLUBS:,} groups": ask(1, "of clubs"),
        "that user on that document": ask(1, "shared"),
    }


class _Counted:
    """The entries of a reader. Counts the lookups."""

    def __init__(self, reader: IndexReader) -> None:
        self._reader = reader
        self.lookups = 0

    def get(self, key: bytes) -> bytes | None:
        self.lookups += 1
        return self._reader.get(key)

    def items_below(self, prefix: bytes) -> object:
        return self._reader.items_below(prefix)


def _measure(file: IndexFile, question: PlainQuestion) -> str:
    taken = []
    with file.reading() as (entries, stamp):
        assert stamp is not None
        counted = _Counted(entries)
        decision = decide(IndexView(counted, stamp.revision, [question], Folders()), question, NOW, POLICY)  # type: ignore[arg-type]  # reads only
        assert decision.has_access, (question, decision)
        for _ in range(REPEATS):
            began = time.perf_counter()
            decide(IndexView(entries, stamp.revision, [question], Folders()), question, NOW, POLICY)
            taken.append((time.perf_counter() - began) * 1e6)
    return f"{statistics.median(taken):.0f} us, {counted.lookups}"


def _changes(engine: Engine, index: AccessIndex, size: Size) -> dict[str, object]:
    """New members of the largest group are pushed and removed: the time until the index has each change."""
    sequence = 0

    def push(upserts: Sequence[Record] = (), removals: Sequence[Record] = ()) -> None:
        nonlocal sequence
        sequence += 1
        now = NOW + timedelta(seconds=sequence)
        numbered = NumberedPush(
            source="app", sequence=sequence, previous_sequence=None, upserts=upserts, removals=removals, by="bench"
        )
        answer = apply_push(engine, numbered, configured=["app"], only_pushed=True, clock=lambda: now)
        counts = answer["counts"]
        assert (counts["added"], counts["removed"]) == (len(upserts), len(removals)), answer

    users = [f"new-{number}" for number in range(CHANGES)]
    push([User(user_id=user, name=user, email=f"{user}@acme.example") for user in users])
    index.update()
    of_largest = {"organization_id": "acme", "organization_user_group_id": "nested-0000000"}
    pushed, taken, written = [], [], []
    for member in [GroupMember(**of_largest, user_id=user) for user in users]:
        for is_added in (True, False):
            began = time.perf_counter()
            push([member]) if is_added else push(removals=[member])
            committed = time.perf_counter()
            with patch.object(IndexWriter, "store", autospec=True, side_effect=IndexWriter.store) as store:
                index.update()
            pushed.append((committed - began) * 1000)
            taken.append((time.perf_counter() - committed) * 1000)
            written.append(store.call_count)
    assert min(written) > 0, "the index was built again"
    name = f"one of {size.users:,} members enters or leaves the group"
    return {
        f"{name}: push, ms": round(statistics.median(pushed), 1),
        f"{name}: update of the index, ms": round(statistics.median(taken), 1),
        f"{name}: slowest update of the index, ms": round(max(taken), 1),
        f"{name}: entries written": max(written),
    }
