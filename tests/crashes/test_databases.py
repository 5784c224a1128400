"""A database that is read-only, full or unavailable."""

import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event

from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.foundation.database.engine import open_engine
from app.foundation.database.migrations import upgrade
from app.sync.runs.run import RunStatus
from tests.choice import sampled
from tests.faults.comparing import differences, ledger_differences
from tests.faults.live import LiveWorld, until
from tests.faults.world import FaultyWorld
from tests.soak.faults import quiet
from tests.worlds.company import Company, edit_many, rename_all
from tests.worlds.postgres_server import PostgresServer, own_postgres


@pytest.fixture
def world(memory: Path) -> Iterator[FaultyWorld]:
    quiet()
    world = FaultyWorld(memory)
    world.begin(Company(Random(31), size=2), batch_size=2)
    yield world
    world.close()


def in_step(world: FaultyWorld) -> bool:
    world.time.move_on(hours=7)
    world.runs.end_orphans()
    run = world.sync()
    assert run.status is RunStatus.DONE, run.error
    return not differences(world) and not ledger_differences(world)


def limit_pages(world: FaultyWorld, pages: int) -> Any:
    """Like a disk on which so many pages are left."""

    def limit(connection: Any, _record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}").close()

    world.engine.dispose()
    event.listen(world.engine, "connect", limit)
    return limit


@pytest.mark.parametrize("further_pages", sampled([0, 10, 4, 20, 40], sample=2))
def test_full_disk_ends_the_run_and_costs_nothing_else(world: FaultyWorld, further_pages: int) -> None:
    assert world.sync().status is RunStatus.DONE
    edit_many(world.company, 40)
    rename_all(world.company)
    with world.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    limit = limit_pages(world, pages + further_pages)
    try:
        run = world.sync()
        error_text = run.error or ("" if run.status is RunStatus.DONE else "nothing")
    except sqlalchemy.exc.OperationalError as error:
        error_text = str(error.orig)  # no room even for the status: the run is orphaned
    assert not error_text or "full" in error_text
    world.engine.dispose()
    event.remove(world.engine, "connect", limit)
    assert in_step(world)


def test_read_only_database_ends_the_run_before_any_call(world: FaultyWorld) -> None:
    assert world.sync().status is RunStatus.DONE
    edit_many(world.company, 20)

    def forbid(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA query_only = ON").close()

    world.engine.dispose()
    event.listen(world.engine, "connect", forbid)
    before = world.layer.writes
    with pytest.raises(sqlalchemy.exc.OperationalError, match="readonly"):
        world.sync()
    assert world.layer.writes == before
    world.engine.dispose()
    event.remove(world.engine, "connect", forbid)
    assert in_step(world)


def test_database_that_turns_read_only_in_the_middle_loses_nothing(world: FaultyWorld) -> None:
    """From the tenth call on nothing can be written down: what was sent by then is made good later."""
    calls = 0
    send = world.layer._backend.send
    read_only = threading.Event()

    def send_and_look(request: Any, **given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 10:
            read_only.set()
        return send(request, **given)

    def forbid(_connection: Any, cursor: Any, *_others: Any) -> None:
        cursor.execute(f"PRAGMA query_only = {'ON' if read_only.is_set() else 'OFF'}")

    event.listen(world.engine, "before_cursor_execute", forbid)
    world.layer._backend.send = send_and_look  # type: ignore[method-assign, assignment]
    with pytest.raises(sqlalchemy.exc.OperationalError, match="readonly"):
        world.sync()
    assert calls <= 10 + world.batch_size * 8
    read_only.clear()
    assert in_step(world)


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with own_postgres() as server:
        yield server


@pytest.mark.extended
@pytest.mark.external
@pytest.mark.postgres
def test_server_restarted_during_a_run(own_server: PostgresServer, memory: Path) -> None:
    quiet()
    world = LiveWorld(memory)
    world.serve(Company(Random(32), size=2), database_url=own_server.url)
    world.front.delay = 0.05
    try:
        worker = world.start_worker()
        for mode in ("fast", "immediate"):
            run = world.enqueue()
            before = len(world.front.seen)
            until(partial(world.has_seen_more_than, before + 2))
            own_server.stop(mode)
            time.sleep(0.5)
            own_server.start()
            world.engine.dispose()
            ended = world.ended(run, within=40)
            assert "error of the program" not in (ended.error or "")
            rename_all(world.company)
            world.write_settings()
        assert worker.poll() is None
        run = world.ended(world.enqueue(), within=60)
        assert run.status is RunStatus.DONE, run.error
        assert not differences(world)
        assert not ledger_differences(world)
        assert "Traceback" not in world.log_of(worker)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(10) == 0
    finally:
        world.close()


@pytest.fixture
def world_on_server(world: FaultyWorld, own_server: PostgresServer) -> Iterator[FaultyWorld]:
    """The same world with its database on the server, in step once."""
    server = sqlalchemy.create_engine(own_server.url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE IF EXISTS disk WITH (FORCE)")
        connection.exec_driver_sql("CREATE DATABASE disk")
    own = world.engine
    world.engine = open_engine(own_server.url.rpartition("/")[0] + "/disk")
    upgrade(world.engine, STORE_MIGRATIONS)
    world.sync()
    assert in_step(world)
    yield world
    world.engine.dispose()
    world.engine = own
    server.dispose()


def execute_on_server(world: FaultyWorld, *statements: str) -> None:
    with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    world.engine.dispose()


@pytest.mark.extended
@pytest.mark.external
@pytest.mark.postgres
@pytest.mark.parametrize("table", ["source_user", "model_grant", "plan_item", "ledger_item", "call", "run"])
def test_full_disk_of_a_server_ends_the_run_and_costs_nothing_else(world_on_server: FaultyWorld, table: str) -> None:
    """The server reports a full disk as soon as it would have to make this table larger."""
    world = world_on_server
    edit_many(world.company, 40)
    rename_all(world.company)
    execute_on_server(
        world,
        """CREATE OR REPLACE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$""",
        f"CREATE TRIGGER no_space BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION no_space()",
    )
    try:
        error_text = world.sync().error or ""
    except sqlalchemy.exc.SQLAlchemyError as error:
        error_text = str(error)  # no room even for the status: the run is orphaned
    assert "No space left on device" in error_text
    execute_on_server(world, f"DROP TRIGGER no_space ON {table}")
    assert in_step(world)


@pytest.mark.extended
@pytest.mark.external
@pytest.mark.postgres
def test_read_only_server_ends_the_run_before_any_call(world_on_server: FaultyWorld) -> None:
    world = world_on_server
    edit_many(world.company, 20)
    execute_on_server(world, "ALTER DATABASE disk SET default_transaction_read_only = on")
    before = world.layer.writes
    with pytest.raises(sqlalchemy.exc.SQLAlchemyError, match="read-only transaction"):
        world.sync()
    assert world.layer.writes == before
    execute_on_server(
        world, "SET default_transaction_read_only = off", "ALTER DATABASE disk RESET default_transaction_read_only"
    )
    assert in_step(world)
