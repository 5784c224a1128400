"""The index while the database cannot be reached, and after damage to its files."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import lmdb
import pytest
import structlog
from pydantic import ValidationError
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoTurnError

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.index.entries import all_entries
from app.access.index.file import IndexDamagedError, IndexFile
from app.access.index.index import AccessIndex, Condition
from app.access.index.index_view import IndexView
from app.access.index.layout import LAYOUT
from app.access.index.settings import IndexSettings
from app.access.index.turns import DatabaseTurns
from app.access.problem_list import ProblemList
from app.access.records import AccessType, Folder, Membership, Organization, Record, User
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.access.sql_view import SqlView
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine
from app.foundation.database.errors import is_outage
from app.foundation.database.programs import SchemaNewerError, SchemaState
from app.service.admin.health import DegradedError, readiness_checks
from tests.tables import make_tables
from tests.worlds.random_directories import NOW

ASKED = PlainQuestion(user_id="ada", type="organization", resource_id="acme", organization_id="acme")
ACME = Organization(organization_id="acme", organization_name="Acme")
ADA = User(user_id="ada", name="Ada", email="ada@acme.example")
MEMBER = Membership(organization_id="acme", user_id="ada")
NO_DATABASE = "postgresql://nobody@127.0.0.1:1/nothing"


class Node:
    """A database, and a node whose process can restart."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.uptime = 1_000.0
        self.now = NOW
        self.index = self.start()

    def start(self, *, max_staleness: float = 0, away: bool = False) -> AccessIndex:
        engine = open_engine(NO_DATABASE) if away else self.engine
        self.index = AccessIndex(
            engine, self.folder, clock=lambda: self.now, max_staleness=max_staleness, uptime=lambda: self.uptime
        )
        return self.index

    def restart(self, *, max_staleness: float = 0, away: bool = False) -> None:
        self.index.close()
        self.start(max_staleness=max_staleness, away=away)
        self.index.update()

    def read(self, *records: Record) -> None:
        with Refresh(self.engine, clock=lambda: NOW, problems=ProblemList()) as refresh:
            refresh.begin(["company"])
            for record in records:
                refresh.staging.add(record, "company:1")
            refresh.staging.end(ReadResult(records=len(records)))
            refresh.finish(accept_empty=["company"])

    def confirm(self, **fields: str) -> None:
        """Changes the stored confirmation."""
        stored = json.loads((self.folder / "confirmed").read_bytes())
        (self.folder / "confirmed").write_text(json.dumps(stored | fields))

    def answer(self) -> tuple[bool, type]:
        """Whether Ada has access, and the view that answered."""
        with self.index.view([ASKED]) as view:
            return decide(view, ASKED, NOW, DecisionPolicy()).has_access, type(view)


@pytest.fixture
def node(database_url: str, tmp_path: Path) -> Iterator[Node]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    world = Node(engine, tmp_path / "index")
    world.read(ACME, ADA, MEMBER)
    world.index.update()
    yield world
    world.index.close()
    engine.dispose()


def test_the_index_answers_without_the_database(node: Node) -> None:
    assert node.answer() == (True, IndexView)
    node.restart(away=True)
    assert node.answer() == (True, IndexView)
    assert not node.index.state.is_database_reachable
    node.uptime += 1_000_000
    assert node.answer() == (True, IndexView)


def test_folders_are_those_of_the_revision(node: Node) -> None:
    asked = PlainQuestion(user_id="ada", type="folder", resource_id="lower", organization_id="acme")
    for access_type, answer in (("restricted", False), ("organizationPrivate", True), ("restricted", False)):
        upper = Folder(
            organization_id="acme", folder_id="upper", folder_name="Upper", access_type=AccessType(access_type)
        )
        lower = Folder(organization_id="acme", folder_id="lower", folder_name="Lower", parent_folder_id="upper")
        node.read(ACME, ADA, MEMBER, upper, lower)
        node.index.update()
        for _ in range(2):
            with node.index.view([asked]) as view:
                assert isinstance(view, IndexView)
                assert decide(view, asked, NOW, DecisionPolicy()).has_access is answer


def test_a_stale_index_does_not_answer(node: Node) -> None:
    node.restart(max_staleness=60, away=True)
    node.uptime += 59
    assert node.answer() == (True, IndexView)
    node.uptime += 2
    with pytest.raises(OperationalError):
        node.answer()
    node.restart(max_staleness=60)
    assert node.answer() == (True, IndexView)


def test_a_change_during_a_build_is_effective_after_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(node.folder)
    node.index.close()
    node.start()

    def build_slowly(connection: Connection) -> Iterator[tuple[bytes, bytes]]:
        entries = list(all_entries(connection))
        node.uptime += 600
        node.read(ACME, ADA)
        assert not node.answer()[0]
        return iter(entries)

    monkeypatch.setattr("app.access.index.index.all_entries", build_slowly)
    node.index.update()
    assert node.index.state.staleness == 600
    assert not node.answer()[0]
    node.index.update()
    assert node.answer() == (False, IndexView)


def test_the_index_answers_while_the_database_does_not_respond(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, type]] = []

    def hang() -> None:
        """A check that fails after 30 seconds."""
        for _ in range(30):
            node.uptime += 1
            seen.append(node.answer())
        raise OperationalError("SELECT 1", {}, Exception("no response"))

    monkeypatch.setattr(node.index, "_check_schema", hang)
    node.index.update()
    assert seen == [(True, IndexView)] * 30
    assert node.answer() == (True, IndexView)
    assert not node.index.state.is_database_reachable


def test_a_long_build_does_not_make_the_database_unreachable(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def build(*_: object) -> None:
        node.uptime += 60
        seen.append(node.index.state.is_database_reachable)

    monkeypatch.setattr(AccessIndex, "_bring_up_to", build)
    node.read(ACME, ADA)
    node.index.update()
    assert seen == [True]


DAY = timedelta(days=1)


@pytest.mark.one_database
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("boot", "uptime", "clock", "staleness"),
    [
        # A wrong clock changes nothing.
        ("same", 60, timedelta(seconds=60), 60),
        ("same", 60, DAY, 60),
        ("same", 60, -DAY, 60),
        # The machine, or a copy of its memory, has started again without another id.
        ("same", -900, timedelta(0), None),
        ("same", -900, DAY, None),
        # After a restart of the machine, only the clock is left.
        ("another", -995, timedelta(0), 0),
        ("another", -995, DAY, 86_400),
        ("another", 5_000, DAY, 86_400),
        ("another", -995, -DAY, None),
    ],
)
def test_staleness_by_the_clocks(
    node: Node, boot: str, uptime: float, clock: timedelta, *, staleness: float | None, restarts: bool
) -> None:
    node.uptime += uptime
    node.now += clock
    if boot == "another":
        node.confirm(boot_id="before")
    if restarts or boot == "another":
        node.restart(away=True, max_staleness=DAY.total_seconds())
    assert node.index.state.staleness == staleness
    if staleness is None:
        node.index._engine = open_engine(NO_DATABASE)
        with pytest.raises(OperationalError):
            node.answer()
    elif restarts:
        assert node.answer() == (True, IndexView)


@pytest.mark.one_database
def test_uptime_includes_the_time_while_the_machine_sleeps(node: Node) -> None:
    index = AccessIndex(node.engine, node.folder, clock=lambda: NOW)
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= index._uptime() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_revision_that_the_index_cannot_follow_is_read_from_the_database(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AccessIndex, "_bring_up_to", full)
    node.read(ACME, ADA)
    with pytest.raises(OSError, match="No space"):
        node.index.update()
    node.index._condition = Condition.BEHIND  # as ``run`` does
    assert node.answer() == (False, SqlView)
    monkeypatch.undo()
    node.index.update()
    assert node.answer() == (False, IndexView)


def test_damage_that_the_maintenance_finds_leads_to_a_new_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> None:
        raise lmdb.CorruptedError("a page")

    name = (node.folder / "current").read_text()
    with monkeypatch.context() as patched:
        patched.setattr(AccessIndex, "_bring_up_to", damaged)
        node.read(ACME, ADA)
        with pytest.raises(lmdb.CorruptedError):
            node.index.update()
    node.index.update()
    assert node.answer() == (False, IndexView)
    assert (node.folder / "current").read_text() != name


@pytest.mark.one_database
def test_checks_during_an_outage_become_rarer_up_to_a_limit(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.restart(away=True)
    stop, pauses = Event(), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            node.index._engine = node.engine  # The database is back.
        elif len(pauses) == 6:
            stop.set()

    monkeypatch.setattr(stop, "wait", pause)
    monkeypatch.setattr(node.index._waiter, "wait", lambda _stop: False)
    node.index.run(stop)
    assert pauses == [0.5, 1, 2, 2, 2, 0.5]


@pytest.mark.one_database
def test_a_file_system_without_pipes_delays_nothing_else(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    stop = Event()
    monkeypatch.setattr(os, "mkfifo", unsupported)
    monkeypatch.setattr(stop, "wait", lambda _seconds: stop.set())
    node.index.run(stop)
    assert node.answer() == (True, IndexView)


def test_any_error_of_the_maintenance_leads_to_the_database(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()

    def fail(*_: object) -> None:
        stop.set()
        raise ZeroDivisionError

    monkeypatch.setattr(AccessIndex, "_bring_up_to", fail)
    node.read(ACME, ADA)
    node.index.run(stop)
    assert node.answer() == (False, SqlView)


def test_the_index_answers_if_the_database_goes_away_during_an_update(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        node.index._engine = open_engine(NO_DATABASE)
        raise OperationalError("SELECT 1", {}, Exception("no connection"))

    node.read(ACME, ADA)
    with monkeypatch.context() as patched:
        patched.setattr(AccessIndex, "_bring_up_to", lost)
        node.index.update()
        assert node.answer() == (True, IndexView)
        assert not node.index.state.is_database_reachable
    node.index._engine = node.engine
    node.index.update()
    assert node.answer() == (False, IndexView)


@pytest.mark.parametrize("is_built", [False, True])
def test_the_database_answers_if_only_the_update_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch, is_built: bool
) -> None:
    stop = Event()

    def fail(*_: object) -> None:
        stop.set()
        raise OperationalError("SELECT", {}, Exception("the server did not respond within 120 seconds"))

    if is_built:
        monkeypatch.setattr("app.access.index.index._is_logged", lambda *_: False)
    node.read(ACME, ADA)
    with monkeypatch.context() as patched:
        patched.setattr(f"app.access.index.index.{'all' if is_built else 'changed'}_entries", fail)
        with structlog.testing.capture_logs() as lines:
            node.index.run(stop)
        assert node.answer() == (False, SqlView)
        assert node.index.state.is_database_reachable
    assert [(line["event"], line["reason"]) for line in lines] == [
        ("index_failed", "the server did not respond within 120 seconds")
    ]
    node.index.update()
    assert node.answer() == (False, IndexView)


def test_the_limit_of_statements_is_longer_for_a_build(
    database_url: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("statements on SQLite have no timeout")
    limits: list[float] = []

    def record(connection: Connection, *_: object) -> Iterator[tuple[bytes, bytes]]:
        limits.append(connection.connection.driver_connection.response_timeout)  # type: ignore[union-attr]
        return iter(())

    monkeypatch.setattr("app.access.index.index.all_entries", record)
    monkeypatch.setattr("app.access.index.index.changed_entries", record)
    node.index._engine = open_engine(database_url, response_timeout=5)
    node.read(ACME, ADA)
    node.index.update()
    monkeypatch.setattr("app.access.index.index._is_logged", lambda *_: False)
    node.read(ACME, ADA, MEMBER)
    node.index.update()
    node.index._engine.dispose()
    assert limits == [120, 1800]


def test_readiness_names_why_the_database_answers(node: Node) -> None:
    def check() -> str:
        return readiness_checks(node.engine, lambda: NOW, lambda: SchemaState.CURRENT, node.index)["index"]()

    assert check() == "revision 1, equal to the database's 0 s ago"
    node.index._condition = Condition.BEHIND
    with pytest.raises(DegradedError, match="behind the database; permission calls"):
        check()
    node.index.close()
    node.start()
    with pytest.raises(DegradedError, match="not built yet; permission calls"):
        check()


def test_turns_at_the_database_are_limited(node: Node) -> None:
    node.index.turns = DatabaseTurns(1, lambda: False)
    with node.index.view([ASKED], 2) as view:
        assert type(view) is SqlView
        with pytest.raises(NoTurnError, match="too many requests wait") as refused, node.index.view([ASKED], 2):
            pass
        assert is_outage(refused.value)
        assert node.answer() == (True, IndexView)
    with node.index.view([ASKED], 2) as view:
        assert type(view) is SqlView


def test_a_newer_revision_is_read_from_the_database_if_a_caller_requires_it(node: Node) -> None:
    node.read(ACME, ADA)
    with node.index.view([ASKED], 1) as view:
        assert (type(view), view.revision) == (IndexView, 1)
    with node.index.view([ASKED], 2) as view:
        assert (type(view), view.revision) == (SqlView, 2)


def test_an_incompatible_database_is_not_used(node: Node) -> None:
    def refuse() -> None:
        raise SchemaNewerError

    node.index._check_schema = refuse
    node.index.update()
    with pytest.raises(SchemaNewerError):
        node.answer()


def test_an_error_that_is_no_damage_keeps_the_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise lmdb.ReadersFullError("no slot")

    name = (node.folder / "current").read_text()
    node.index.close()
    node.start()
    monkeypatch.setattr(lmdb, "open", full)
    with pytest.raises(lmdb.ReadersFullError):
        node.index.update()
    monkeypatch.undo()
    node.index.update()
    assert (node.folder / "current").read_text() == name
    assert node.answer() == (True, IndexView)


def test_a_call_that_finds_no_slot_is_refused_and_keeps_the_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise lmdb.ReadersFullError("no slot")

    name = (node.folder / "current").read_text()
    with monkeypatch.context() as patched:
        patched.setattr(IndexFile, "reading", full)
        with pytest.raises(IndexDamagedError):
            node.answer()
    node.index.update()
    assert (node.folder / "current").read_text() == name
    assert node.answer() == (True, IndexView)


def test_a_confirmation_of_another_file_does_not_count(node: Node) -> None:
    node.confirm(file="another")
    node.restart(away=True)
    assert node.index.state.staleness is None
    with pytest.raises(OperationalError):
        node.answer()


def test_a_deleted_folder_is_made_again_by_one_maintainer(node: Node) -> None:
    shutil.rmtree(node.folder)
    node.index.update()
    assert node.answer() == (True, IndexView)
    assert sorted(path.name for path in node.folder.iterdir() if ".mdb" not in path.name) == [
        "confirmed",
        "current",
        "lock",
    ]


def test_a_file_that_another_process_changed_is_not_written_to(node: Node) -> None:
    file = node.index._file
    assert file is not None
    stamp = file.stamp
    assert stamp is not None
    with pytest.raises(IndexDamagedError), file.writing(stamp._replace(revision=7), stamp) as writer:
        writer.store(b"d", b"")
    assert file.stamp == stamp


@pytest.mark.parametrize("program", [lambda file: file.write_bytes(file.read_bytes()), Path.touch, Path.unlink])
def test_a_file_that_another_program_wrote_to_is_built_again(node: Node, program: Callable[[Path], None]) -> None:
    """Only LMDB's own errors would show it, and not all damage leads to one."""
    name = (node.folder / "current").read_text()
    node.read(ACME, ADA)
    node.index.update()
    node.index.update()
    assert (node.folder / "current").read_text() == name
    program(node.folder / name)
    node.index.update()
    assert (node.folder / "current").read_text() != name
    assert node.answer() == (False, IndexView)


def truncate(folder: Path) -> None:
    for path in folder.glob("*.mdb"):
        path.write_bytes(path.read_bytes()[:8192])


def overwrite(folder: Path) -> None:
    for path in folder.glob("*.mdb"):
        path.write_bytes(b"\x07" * path.stat().st_size)


def empty(folder: Path) -> None:
    for path in folder.glob("*.mdb"):
        path.write_bytes(b"")


def remove(folder: Path) -> None:
    for path in folder.glob("*.mdb*"):
        path.unlink()


def other_layout(folder: Path) -> None:
    for path in folder.glob("*.mdb"):
        path.write_bytes(path.read_bytes().replace(f"{LAYOUT} 1 ".encode(), f"{LAYOUT + 1} 1 ".encode()))


def bad_name(folder: Path) -> None:
    (folder / "current").write_bytes(b"\xff\0../../etc")


def no_name(folder: Path) -> None:
    (folder / "current").write_bytes(b"")


def bad_confirmation(folder: Path) -> None:
    (folder / "confirmed").write_bytes(b'{"boot_id": 1')


@pytest.mark.parametrize(
    "damage", [truncate, overwrite, empty, remove, other_layout, bad_name, no_name, bad_confirmation]
)
def test_damage_leads_to_a_new_file(node: Node, damage: Callable[[Path], None]) -> None:
    node.index.close()
    damage(node.folder)
    node.restart()
    assert node.answer() == (True, IndexView)
    node.read(ACME, ADA)
    node.index.update()
    assert node.answer() == (False, IndexView)


@pytest.mark.parametrize("damage", [truncate, overwrite, empty, remove, other_layout, bad_name, no_name])
def test_damage_during_an_outage_refuses_answers(node: Node, damage: Callable[[Path], None]) -> None:
    node.index.close()
    damage(node.folder)
    node.restart(away=True)
    with pytest.raises(OperationalError):
        node.answer()


@pytest.mark.one_database
def test_path_of_the_settings_is_a_folder_or_the_default() -> None:
    assert IndexSettings.model_validate({"path": ""}).path is None
    assert IndexSettings.model_validate({"path": "index"}).path == Path("index")
    with pytest.raises(ValidationError, match="NUL"):
        IndexSettings.model_validate({"path": "a\0b"})
