"""Backups and restores of Usher's database with the operators' tools."""

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import make_url

from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.foundation.database.engine import open_engine
from tests.sources.conftest import FileWorld, People, any_file_world, ended, people
from tests.tables import make_migrated
from tests.worlds.company import Company

__all__ = ["any_file_world", "people"]


@dataclass(frozen=True)
class Backup:
    """The procedures of config/OPERATING.md: SQLite's backup, or pg_dump and pg_restore."""

    url: str
    file: Path

    def make(self) -> None:
        if not self.url.startswith("sqlite"):
            self._run("pg_dump", "--format=custom", "--file", str(self.file))
            return
        with closing(sqlite3.connect(self._database)) as live, closing(sqlite3.connect(self.file)) as copy:
            live.backup(copy)

    def restore(self, world: FileWorld) -> None:
        """Replaces the database while it is not in use."""
        world.engine.dispose()
        if not self.url.startswith("sqlite"):
            self._run("pg_restore", "--clean", "--if-exists", "--exit-on-error", str(self.file))
            return
        for tail in ("", "-wal", "-shm"):
            Path(self._database + tail).unlink(missing_ok=True)
        shutil.copy(self.file, self._database)

    @property
    def _database(self) -> str:
        return str(make_url(self.url).database)

    def _run(self, command: str, *arguments: str) -> None:
        url = make_url(self.url)
        named = ["--host", url.host or "", "--port", str(url.port or 5432), "--username", url.username or ""]
        subprocess.run([command, *named, "--dbname", url.database or "", *arguments], check=True, capture_output=True)


@pytest.fixture
def backup(database_url: str, tmp_path: Path) -> Backup:
    if not database_url.startswith("sqlite") and shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")
    return Backup(database_url, tmp_path / "usher.backup")


@pytest.fixture
def world(any_file_world: FileWorld, people: People, database_url: str) -> Iterator[FileWorld]:
    """A synchronized world with forty users."""
    any_file_world.begin(Company(Random(1), size=0))
    own = any_file_world.engine
    any_file_world.engine = open_engine(database_url)
    make_migrated(any_file_world.engine, STORE_MIGRATIONS)
    any_file_world.configure(people.file)
    people.write()
    assert ended(any_file_world) == "done"
    yield any_file_world
    any_file_world.engine.dispose()
    any_file_world.engine = own
