"""Databases that cannot be used or written to, in the doctor and in commands."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.commands.doctor.database import open_database
from app.commands.doctor.finding import State
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.errors import public_reason
from app.foundation.database.migrations import upgrade
from tests.commands.conftest import SETTINGS
from tests.tables import copy_migrated

NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")


def usher(folder: Path, *arguments: str) -> tuple[int, str]:
    """Runs a command in another process. Returns its exit code and output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("USHER_")}
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "app", *arguments, "--config", "usher.yaml"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("database") / "usher.db"
    copy_migrated(path, STORE_MIGRATIONS)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize(
    ("name", "message", "advice"),
    [
        ("directory", "directory is a directory", "Usher's own file"),
        ("text", "text is not a SQLite database", "Usher's own file"),
        ("text/usher.db", "and it cannot be created in ", "fix database_url"),
        ("gone/usher.db", "gone/usher.db yet: there is no directory ", "create the directory"),
    ],
)
def test_paths_that_are_no_database(tmp_path: Path, name: str, message: str, advice: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "text").write_text("this is a text, and it is long enough\n")
    engine, finding = open_database(f"sqlite:///{tmp_path}/{name}")
    assert engine is None
    assert finding.state is State.PROBLEM
    assert message in finding.message
    assert str(tmp_path) in finding.message
    assert advice in finding.advice
    assert not (tmp_path / "gone").exists()


@pytest.mark.extended
@pytest.mark.parametrize(("name", "message"), [("directory", "is a directory"), ("text", "is not a SQLite database")])
def test_every_command_names_the_file(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "text").write_text("this is a text, and it is long enough\n")
    (tmp_path / "usher.yaml").write_text(SETTINGS.replace("usher.db", name))
    code, output = usher(tmp_path, "runs")
    assert code == 1
    assert output.startswith(f"error: the database cannot be used: {name} {message}")
    assert "; let database_url name" in output


@pytest.mark.extended
@NEEDS_ROOT
def test_read_only_file(database: Path, small_disk: Path) -> None:
    folder = small_disk.parent
    shutil.copy(database, small_disk / "usher.db")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    (folder / "usher.yaml").write_text(SETTINGS.replace("usher.db", "disk/usher.db"))
    code, output = usher(folder, "doctor")
    assert code == 1
    remedy = "mount it so that it can be written to, or let database_url name a file elsewhere"
    cause = "disk/usher.db cannot be written to: its file system is read-only"
    assert re.search(f"problem\tdatabase\t{cause} .*\t{remedy}\n", output)
    code, output = usher(folder, "runs")
    assert code == 1
    assert cause in output
    assert f"; {remedy}" in output
    (folder / "usher.yaml").write_text(SETTINGS.replace("usher.db", "disk/new.db"))
    code, output = usher(folder, "doctor")
    assert code == 1
    assert "there is no disk/new.db yet, and it cannot be created in disk" in output
    code, output = usher(folder, "runs")
    assert code == 1
    assert "its file system is read-only" in output
    assert remedy in output
    (folder / "usher.yaml").write_text(SETTINGS.replace("usher.db", "source.db"))
    shutil.copy(database, folder / "source.db")
    code, output = usher(folder, "db", "backup", "disk/copy.db")
    assert (code, output) == (
        1,
        "error: disk/copy.db: Read-only file system; name a new file in a folder that can be written to\n",
    )


@NEEDS_ROOT
def test_backup_onto_a_full_disk(database: Path, small_disk: Path) -> None:
    folder = small_disk.parent
    shutil.copy(database, folder / "usher.db")
    (folder / "usher.yaml").write_text(SETTINGS)
    (small_disk / "ballast").write_bytes(bytes(2_000_000))
    code, output = usher(folder, "db", "backup", "disk/copy.db")
    assert code == 1
    assert output.startswith("error: disk/copy.db: the disk is full; the copy needs ")
    assert [file.name for file in small_disk.iterdir()] == ["ballast"]


@pytest.mark.extended
@NEEDS_ROOT
def test_doctor_reports_a_full_disk(database: Path, small_disk: Path) -> None:
    shutil.copy(database, small_disk / "usher.db")
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(4096)):
            pass
    (small_disk.parent / "usher.yaml").write_text(SETTINGS.replace("usher.db", "disk/usher.db"))
    (small_disk.parent / "directory.yaml").write_text("organizations: [{organizationId: a, organizationName: A}]\n")
    code, output = usher(small_disk.parent, "doctor")
    assert code == 1
    assert re.search("problem\tdatabase\tdisk/usher.db: the disk is full .*\tmake room there\n", output)
    for command in (["runs"], ["directory", "refresh"]):
        code, output = usher(small_disk.parent, *command)
        assert code == 1
        assert "disk/usher.db: the disk is full" in output
        assert "; make room there" in output


def test_errors_name_a_full_disk(database: Path, tmp_path: Path) -> None:
    """The error's text is enough: readiness checks and logs use nothing else."""
    shutil.copy(database, tmp_path / "usher.db")
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    with pytest.raises(OperationalError) as caught, writing(engine) as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
        connection.exec_driver_sql("CREATE TABLE ballast (x)")
        connection.exec_driver_sql("INSERT INTO ballast VALUES (zeroblob(10000000))")
    engine.dispose()
    assert f"{tmp_path}/usher.db: the disk is full" in str(caught.value.orig)
    assert public_reason(caught.value) == "the disk is full"


@pytest.fixture
def reader(postgres_database: str) -> Iterator[str]:
    """A read-only role."""
    name = f"usher_reader_{os.getpid()}"
    admin = create_engine(postgres_database, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN"))
        connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA public TO {name}"))
    yield name
    with admin.connect() as connection:
        connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP ROLE {name}"))
    admin.dispose()


@pytest.mark.postgres
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_read_only_role(database_url: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    engine = open_engine(database_url)
    upgrade(engine, STORE_MIGRATIONS)
    name = request.getfixturevalue("reader")
    url = make_url(database_url).set(username=name).render_as_string(hide_password=False)
    (tmp_path / "usher.yaml").write_text(
        f"database_url: '{url}'\nbackend: {{base_url: 'http://127.0.0.1:1', api_key: K, auth_token: T}}\n"
        "directory: {sources: [{type: file, path: d.jsonl}]}\n"
    )
    (tmp_path / "d.jsonl").write_text("")
    for command in ("doctor", "plan"):
        code, output = usher(tmp_path, command)
        assert code == 1
        assert "permission denied for table" in output
        assert "let database_url name a role that may write to all tables" in output
    with writing(engine) as connection:
        connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"))
        connection.execute(text(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {name}"))
        connection.execute(text(f"REVOKE DELETE ON plan FROM {name}"))
    code, output = usher(tmp_path, "doctor")
    assert code == 1
    assert "its role may not read and write all tables (plan)" in output
    with writing(engine) as connection:
        connection.execute(text(f"ALTER ROLE {name} SET default_transaction_read_only = on"))
    for command in ("doctor", "plan"):
        code, output = usher(tmp_path, command)
        assert code == 1
        assert "the role or the database is set to read only" in output
    engine.dispose()


def test_findings_as_json(tmp_path: Path) -> None:
    (tmp_path / "usher.yaml").write_text(SETTINGS.replace("usher.db", "."))
    _, output = usher(tmp_path, "doctor", "--json")
    assert any("is a directory" in finding["says"] for finding in json.loads(output)["findings"])
