"""Transactions behave the same on both databases."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import OperationalError

from app.foundation.database.engine import after_commit, open_engine, reading, writing
from app.foundation.database.response_timeout import allow_long_statements
from app.foundation.database.url import DatabaseUrlError, DriverMissingError, parse_url
from app.foundation.files import restrict_to_owner, write_file
from tests.conftest import POSTGRES
from tests.worlds.tcp_proxy import tcp_proxy


@pytest.fixture
def engine(database_url: str) -> Engine:
    opened = open_engine(database_url)
    with writing(opened) as connection:
        connection.execute(text("CREATE TABLE counter (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO counter VALUES (1, 0)"))
    return opened


def test_reading_sees_one_snapshot_while_others_write(engine: Engine) -> None:
    with reading(engine) as reader:
        before = reader.execute(text("SELECT value FROM counter")).scalar()
        with writing(engine) as writer:
            writer.execute(text("UPDATE counter SET value = 7"))
        assert reader.execute(text("SELECT value FROM counter")).scalar() == before
    with reading(engine) as reader:
        assert reader.execute(text("SELECT value FROM counter")).scalar() == 7


def test_writing_rolls_back_when_the_block_raises(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), writing(engine) as writer:
        writer.execute(text("UPDATE counter SET value = 9"))
        _ = 1 / 0
    with reading(engine) as reader:
        assert reader.execute(text("SELECT value FROM counter")).scalar() == 0


def test_after_commit_is_not_called_after_a_rollback(engine: Engine) -> None:
    called: list[object] = []

    def others_see() -> object:
        with reading(engine) as connection:
            return connection.execute(text("SELECT value FROM counter")).scalar()

    with writing(engine) as connection:
        connection.execute(text("UPDATE counter SET value = 5"))
        after_commit(connection, lambda: called.append(others_see()))
        assert called == []
    assert called == [5]
    with pytest.raises(ZeroDivisionError), writing(engine) as connection:
        after_commit(connection, lambda: called.append("never"))
        raise ZeroDivisionError
    with reading(engine) as connection:
        after_commit(connection, lambda: called.append("at once"))
        assert called == [5, "at once"]


def test_writing_loses_no_concurrent_change(engine: Engine) -> None:
    for_update = "" if engine.dialect.name == "sqlite" else " FOR UPDATE"

    def add() -> None:
        for _ in range(25):
            with writing(engine) as connection:
                value = connection.execute(text(f"SELECT value FROM counter{for_update}")).scalar_one()
                connection.execute(text("UPDATE counter SET value = :value"), {"value": value + 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with reading(engine) as reader:
        assert reader.execute(text("SELECT value FROM counter")).scalar() == 100


def test_reading_cannot_write_on_postgresql(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        with reading(engine) as reader:
            assert reader.execute(text("SELECT 1")).scalar() == 1
        return
    with pytest.raises(Exception, match="read-only"), reading(engine) as reader:
        reader.execute(text("UPDATE counter SET value = 1"))


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("nonsense", "not a database URL"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("mysql://root@localhost/x", "mysql is not supported"),
    ],
)
def test_parse_url_explains_errors(url: str, complaint: str) -> None:
    with pytest.raises(DatabaseUrlError, match=complaint):
        parse_url(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2", "postgresql+psycopg"])
def test_parse_url_accepts_all_spellings_of_postgresql(scheme: str) -> None:
    url = parse_url(f"{scheme}://usher@db/usher?sslmode=require")
    assert url.render_as_string() == "postgresql+psycopg://usher@db/usher?sslmode=require"


@pytest.mark.postgres
@pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server")
def test_a_short_postgres_url_is_used() -> None:
    engine = open_engine(POSTGRES.replace("postgresql+psycopg://", "postgres://"))
    with reading(engine) as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


@pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server")
def test_a_statement_waits_for_a_response_no_longer_than_the_timeout() -> None:
    engine = open_engine(POSTGRES, response_timeout=0.3)
    with pytest.raises(OperationalError, match=r"did not respond within 0\.3 seconds"), reading(engine) as connection:
        connection.execute(text("SELECT pg_sleep(30)"))
    with reading(engine) as connection:
        allow_long_statements(connection)
        connection.execute(text("SELECT pg_sleep(0.5)"))
    with pytest.raises(OperationalError), reading(engine) as connection:
        connection.execute(text("SELECT pg_sleep(0.5)"))
    engine.dispose()


@pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server")
def test_a_statement_that_takes_too_long_ends_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.foundation.database.response_timeout.CHECK_TIMEOUT", 0.2)
    engine = open_engine(POSTGRES, response_timeout=0.3)
    with pytest.raises(OperationalError, match="did not respond"), reading(engine) as connection:
        process = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        connection.execute(text("SELECT pg_sleep(31)"))
    deadline = time.monotonic() + 5
    running = text(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {process} AND state = 'active'")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while connection.execute(running).scalar() and time.monotonic() < deadline:
            pass
        assert connection.execute(running).scalar() == 0
    engine.dispose()


@pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server")
def test_a_connection_that_went_silent_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.foundation.database.response_timeout.CHECK_TIMEOUT", 0.3)
    url = make_url(POSTGRES)
    speaks = threading.Event()
    with tcp_proxy(url.host or "", url.port or 5432) as proxy:
        behind = url.set(host="127.0.0.1", port=proxy.port).update_query_dict({"connect_timeout": "1"})
        engine = open_engine(behind.render_as_string(hide_password=False), response_timeout=0.3)
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
        proxy.delay = speaks.wait
        began = time.monotonic()
        with pytest.raises(OperationalError), reading(engine):
            pass
        assert time.monotonic() - began < 10
        proxy.delay = lambda: None
        speaks.set()
        with reading(engine) as connection:
            assert connection.execute(text("SELECT 1")).scalar() == 1
        engine.dispose()


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DriverMissingError, match=r"pip install 'usher\[postgres\]'"):
        open_engine("postgres://usher@db/usher")


def test_a_new_file_can_be_opened_by_many_at_once(tmp_path: Path) -> None:
    for number in range(60):
        engines = [open_engine(f"sqlite:///{tmp_path}/{number}.db") for _ in range(8)]
        together = threading.Barrier(len(engines))

        def use(engine: Engine, together: threading.Barrier = together) -> None:
            together.wait()
            with writing(engine) as connection:
                connection.execute(text("CREATE TABLE IF NOT EXISTS t (x)"))

        with ThreadPoolExecutor(len(engines)) as pool:
            list(pool.map(use, engines))
        for engine in engines:
            engine.dispose()


def test_a_new_database_is_its_owners_alone(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        engine = open_engine(f"sqlite:///{earlier}/new/folder/u.db")
        with writing(engine) as connection:
            connection.execute(text("CREATE TABLE t (x)"))
            modes = {file.name: file.stat().st_mode & 0o777 for file in (earlier / "new" / "folder").iterdir()}
        engine.dispose()
    finally:
        os.umask(before)
    assert set(modes) == {"u.db", "u.db-wal", "u.db-shm"}
    assert set(modes.values()) == {0o600}
    assert (earlier / "new").stat().st_mode & 0o777 == (earlier / "new" / "folder").stat().st_mode & 0o777 == 0o700
    assert earlier.stat().st_mode & 0o777 == 0o755


def test_private_files_are_restricted_and_links_not_followed(tmp_path: Path) -> None:
    file, link, target = tmp_path / "token", tmp_path / "link", tmp_path / "target"
    file.write_text("an older and longer token")
    file.chmod(0o644)
    write_file(file, "new")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)
    target.write_text("kept")
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        write_file(link, "new")
    assert target.read_text() == "kept"
    file.chmod(0o640)
    restrict_to_owner(file)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("password", ["SEC@RET", "SEC@RET/MORE", "@SECRET/x", "SEC@RET?x", "SEC@RET:1/x"])
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_part_of_a_password_is_not_taken_for_a_host(scheme: str, password: str) -> None:
    with pytest.raises(DatabaseUrlError, match="%40") as caught:
        parse_url(f"{scheme}://usher:{password}@127.0.0.1:1/usher")
    assert "SEC" not in str(caught.value)
    assert "RET" not in str(caught.value)


def test_a_password_with_a_slash_is_read_as_it_is() -> None:
    assert parse_url("postgresql://usher:a/b@db/usher").password == "a/b"
