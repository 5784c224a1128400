"""Fixtures that run commands in this process, in a folder with settings and a small directory."""

import itertools
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import usher
from app.client.client import BackendClient
from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.http.listening import wait_until_ready
from app.sync.runs.directory_reads import read_directory
from tests.forking import Forked, command
from tests.tables import copy_migrated
from tests.worlds.files import file_source

DIRECTORY = """\
organizations:
  - {organizationId: acme, organizationName: Acme}
users:
  - {userId: ada, name: "Ada [bold]Lovelace[/bold]", email: ada@acme.example}
  - {userId: bob, name: Bob, email: bob@acme.example}
  - {userId: cleo, name: Cleo, email: cleo@else.example}
memberships:
  - {organizationId: acme, userId: ada}
  - {organizationId: acme, userId: bob, accessRole: viewer}
documents:
  - {organizationId: acme, documentId: handbook, documentName: Handbook}
  - {organizationId: acme, documentId: roadmap, documentName: Roadmap, accessType: restricted}
grants:
  - {organizationId: acme, documentId: roadmap, userId: cleo, expiresAt: "2030-01-01T12:00:00Z"}
contextGrants:
  - {organizationId: acme, userId: bob, field: widgetId, value: 2}
"""

SETTINGS = """\
database_url: sqlite:///usher.db
directory:
  sources:
    - {type: file, path: directory.yaml}
"""

Usher = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, without the caller's environment variables."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("USHER_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def usher_in(folder: Path) -> Usher:
    """Runs ``usher`` in the folder with settings and directory."""
    (folder / "usher.yaml").write_text(SETTINGS)
    (folder / "directory.yaml").write_text(DIRECTORY)

    def run(*arguments: str, config: str = "usher.yaml") -> Result:
        return CliRunner().invoke(usher, [*arguments, "--config", config], prog_name="usher")

    return run


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries calls to the backend without pauses."""
    monkeypatch.setattr(BackendClient, "_pause", lambda _, __: None)


@pytest.fixture(scope="session")
def read_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the directory in it, to be copied."""
    folder = tmp_path_factory.mktemp("read")
    (folder / "directory.yaml").write_text(DIRECTORY)
    copy_migrated(folder / "usher.db", STORE_MIGRATIONS)
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    read_directory(engine, [file_source(folder / "directory.yaml", name="directory.yaml")], clock=utc_now)
    engine.dispose()
    return folder / "usher.db"


@pytest.fixture
def usher_read(usher_in: Usher, folder: Path, read_database: Path) -> Usher:
    """The same, after ``usher directory refresh``."""
    shutil.copy(read_database, folder / "usher.db")
    return usher_in


@pytest.fixture(scope="session")
def backend_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The self-hosted backend in another process."""
    folder = tmp_path_factory.mktemp("backend")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "usher.yaml").write_text(
        f"self_hosted_backend: {{database_url: 'sqlite:///{folder}/backend.db', workspaces_per_hour: 1000}}\n"
        "server: {workers: 1}\n"
    )
    arguments = ["backend", "serve", "--port", str(port), "--config", "usher.yaml"]
    process = Forked(command, *arguments, folder=folder, out=folder / "log", err=folder / "log")
    try:
        url = f"http://127.0.0.1:{port}"

        def sleep(seconds: float) -> None:
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(seconds)

        assert wait_until_ready(f"{url}/healthz", 60, sleep), (folder / "log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait(30)


_OWNERS = itertools.count()


@pytest.fixture
def usher_with_backend(usher_in: Usher, folder: Path, backend_url: str, monkeypatch: pytest.MonkeyPatch) -> Usher:
    """Runs ``usher`` with a new database and a new workspace in the backend."""
    copy_migrated(folder / "usher.db", STORE_MIGRATIONS)
    copy_migrated(folder / "bare.db", STORE_MIGRATIONS)
    (folder / "bare.yaml").write_text("database_url: sqlite:///bare.db\n")
    # Folders of tests that have passed are gone, and their names are used again.
    email = f"owner-{next(_OWNERS)}@acme.example.com"
    with monkeypatch.context() as environment:
        environment.setenv("USHER_BACKEND__BASE_URL", backend_url)
        made = usher_in("backend", "bootstrap", "--email", email, config="bare.yaml")
    assert made.exit_code == 0, made.output
    with (folder / "usher.yaml").open("a") as settings:
        # What bootstrap prints is meant to be pasted as it is.
        settings.write(made.stdout)
        settings.write("sync: {limits: {delete_count: 2}}\n")
    return usher_in
