"""Fixtures of all tests: an empty database of each kind that is available."""

import gc
import logging
import os
import signal
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import structlog
from sqlalchemy import Engine, create_engine, make_url, text

from app.foundation.processes import freeze_garbage_collector
from tests import choice
from tests.compiling import share_compiled
from tests.memory import keep_temporary_folders_in_memory
from tests.tables import clear_public_schema

TABLESPACE = os.environ.get("USHER_TEST_POSTGRES_TABLESPACE", "")
"""The tablespace of the databases; empty: the server's default."""

POSTGRES = os.environ.get("USHER_TEST_POSTGRES", "")
"""The URL of the maintenance database of a PostgreSQL server. Without it, database tests run on SQLite alone."""

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)] if POSTGRES else ["sqlite"]


def pytest_addoption(parser: pytest.Parser) -> None:
    choice.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell that starts the tests in the background ignores SIGINT for their child processes as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    share_compiled()
    keep_temporary_folders_in_memory()
    choice.configure(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return choice.is_left_out(config, collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # The contract suite is that of plug-ins, too, which have no such mark.
        if item.name.startswith("test_memory_does_not_grow_with_the_directory"):
            item.add_marker("extended")
    choice.choose(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disables the garbage collector while the tests are imported, which took a fifth of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    # The tests themselves are half a million objects. Collecting them again and again took a tenth of the time.
    freeze_garbage_collector()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shortens the ids of long parameters: some have a million characters, and every process sends all ids."""
    if isinstance(val, str | bytes) and len(val) > 100:
        return f"{val[:60]!r}... ({len(val)})"
    return None


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Prints a failure when it happens; with pytest-xdist, in the controlling process."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stdout.write(f"\n{report.nodeid}\n{report.longreprtext}\n")
        sys.stdout.flush()


@pytest.fixture(autouse=True)
def _restore_logs() -> Iterator[None]:
    """Restores the configuration of logs, which every command changes."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers, root.level = handlers, level


@pytest.fixture(autouse=True)
def _check_niceness() -> Iterator[None]:
    """A test must not lower the priority of this process, as workers lower theirs."""
    niceness = os.nice(0)
    yield
    assert os.nice(0) == niceness


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of this test."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    url: str = request.getfixturevalue("postgres_database")
    empty_postgres_database(url)
    return url


@pytest.fixture(scope="session")
def postgres_database() -> Iterator[str]:
    """A PostgreSQL database that is emptied before each test. Dropping one would take a checkpoint of the server."""
    with _new_postgres_database() as url:
        yield url


@pytest.fixture
def postgres(postgres_database: str) -> str:
    """The URL of an empty PostgreSQL database."""
    empty_postgres_database(postgres_database)
    return postgres_database


@pytest.fixture(scope="session")
def postgres_standing_database() -> Iterator[str]:
    """Another one, for fixtures that outlive a test. It is emptied between modules."""
    with _new_postgres_database() as url:
        yield url


@contextmanager
def _new_postgres_database() -> Iterator[str]:
    if not POSTGRES:
        pytest.skip("USHER_TEST_POSTGRES names no server")
    server = create_engine(POSTGRES, isolation_level="AUTOCOMMIT")
    name = f"usher_test_{uuid.uuid4().hex[:16]}"
    with server.connect() as connection:
        within = f" TABLESPACE {TABLESPACE}" if TABLESPACE else ""
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'{within}"))
        connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    url = make_url(POSTGRES).set(database=name).render_as_string(hide_password=False)
    yield url
    _emptying(url).dispose()
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


def empty_postgres_database(url: str) -> None:
    """Ends all connections and drops all tables."""
    with _emptying(url).connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
        clear_public_schema(connection)


@cache
def _emptying(url: str) -> Engine:
    """The engine that empties the database. Its connection is reused: a new one has no catalog cache."""
    return create_engine(url, isolation_level="AUTOCOMMIT", pool_size=1, pool_pre_ping=True)
