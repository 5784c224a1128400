"""The rolling upgrade of config/OPERATING.md, with real processes of two versions."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import requests

import app
from app.commands.bootstrap.databases import STORE_MIGRATIONS
from tests.conftest import POSTGRES
from tests.e2e.conftest import Usher, serving, wait_for
from tests.e2e.test_processes import ADMIN, backend_at, write_settings
from tests.forking import without_settings
from tests.ports import HOST, free_port

Start = Callable[..., Usher]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"
oldest_compatible = "{oldest}"


def upgrade():
    op.create_table("of_{revision}", sa.Column("id", sa.Integer(), primary_key=True))
"""


class Newer:
    """A copy of this version with further revisions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "newer"
        shutil.copytree(Path(app.__file__).parent, self.folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
        self.versions = self.folder / "app" / "commands" / "migrations" / "versions"

    def add(self, revision: str, oldest: str | None = None) -> None:
        """Adds a revision; ``oldest``: the oldest compatible one, by default the previous one."""
        before = replace(STORE_MIGRATIONS, folder=self.versions.parent).revisions()[-1]
        text = REVISION.format(revision=revision, before=before, oldest=oldest or before)
        (self.versions / f"{revision}_further.py").write_text(text)

    def run(self, *arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "app", *arguments],
            cwd=self.folder.parent,
            env={**without_settings(), "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.mark.extended
def test_older_processes_continue_on_a_compatible_database(start: Start, tmp_path: Path, database_url: str) -> None:
    port = free_port()
    config = write_settings(
        tmp_path, database_url, server={"port": port, "workers": 1}, backend=backend_at(free_port())
    )
    assert start("db", "upgrade", "--config", config, forked=True).process.wait(60) == 0
    assert start("directory", "refresh", "--config", config, forked=True).process.wait(60) == 0
    service, url = start("serve", "--config", config), f"http://{HOST}:{port}"
    serving(service, url)
    question = {"data": {"requests": [{"userId": "ada", "resource": {"type": "organization", "id": "acme"}}]}}

    def codes() -> list[int]:
        ask = {"Authorization": "Bearer ask-me-for-tests"}
        return [
            requests.get(f"{url}/readyz", timeout=20).status_code,
            requests.post(f"{url}/permissions/check", json=question, headers=ask, timeout=20).status_code,
            requests.get(f"{url}/resync/no-run", headers=ADMIN, timeout=20).status_code,
        ]

    well = codes()
    assert well[:2] == [200, 200]
    newer = Newer(tmp_path)
    newer.add("9001")
    assert "services of the previous version keep answering until you replace them" in newer.run(
        "db", "upgrade", "--config", config
    )
    assert codes() == well
    checks = requests.get(f"{url}/readyz", timeout=20).json()["checks"]
    assert checks["migrations"]["detail"] == "newer than this version, which can still use it"
    # A node that is restarted in between starts, and so does a worker.
    assert start("runs", "--config", config, forked=True).process.wait(60) == 0
    worker = start("worker", "--config", config)
    wait_for("the worker", lambda: "started" in worker.stderr())

    newer.add("9002", oldest="9002")
    assert "no longer answer: replace them now" in newer.run("db", "upgrade", "--config", config)
    assert wait_for("the older service to refuse", lambda: codes() == [503, 503, 503])
    ask = {"Authorization": "Bearer ask-me-for-tests"}
    output = requests.post(f"{url}/permissions/check", json=question, headers=ask, timeout=20).json()
    assert "a newer version of Usher upgraded the database" in str(output)
    assert requests.get(f"{url}/healthz", timeout=20).status_code == 200
    assert requests.get(f"{url}/metrics", timeout=20).status_code == 200
    worker.process.wait(60)
    assert "worker_stops" in worker.stderr()
    refused = start("runs", "--config", config, forked=True)
    assert refused.process.wait(60) == 1
    assert refused.stderr().splitlines()[-1] == (
        "error: a newer version of Usher upgraded the database, and this version cannot use it any more:"
        " install the newer version, or restore a backup"
    )


@pytest.mark.postgres
@pytest.mark.skipif(not POSTGRES, reason="USHER_TEST_POSTGRES names no server")
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_newer_process_requires_the_upgrade(start: Start, tmp_path: Path, database_url: str) -> None:
    config = write_settings(tmp_path, database_url)
    assert start("db", "upgrade", "--config", config, forked=True).process.wait(60) == 0
    newer = Newer(tmp_path)
    newer.add("9001")
    with pytest.raises(AssertionError, match="older than this version: stop the workers and run usher db upgrade"):
        newer.run("runs", "--config", config)
    newer.run("db", "upgrade", "--config", config)
    newer.run("runs", "--config", config)
