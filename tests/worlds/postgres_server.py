"""A PostgreSQL server of a test's own, which it may stop."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@contextmanager
def own_postgres() -> Iterator["PostgresServer"]:
    """A running server. Skips the test if none can be started here."""
    if not BINARIES:
        pytest.skip("no PostgreSQL server is installed here")
    if os.getuid() != 0:
        pytest.skip("only root can start a PostgreSQL server as the user postgres")
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("there is no user postgres")
    server = PostgresServer(BINARIES[-1].parent)
    try:
        yield server
    finally:
        server.remove()


class PostgresServer:
    """A server in a temporary folder. Everyone on this machine can connect."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="usher-postgres-", dir="/tmp"))
        shutil.chown(self.folder, "postgres", "postgres")
        self.port = free_port()
        self._run("initdb", "-D", str(self.folder / "data"), "-A", "trust", "-E", "UTF8", "-N")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -k '' -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-l", str(self.folder / "log"), "-w", "start"
        )

    def stop(self, mode: str) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def remove(self) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / program), *arguments],
            user="postgres",
            group="postgres",
            cwd=self.folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
