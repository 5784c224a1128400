"""Faults of real installations, one by one. Each is reported in one line with its cause and advice."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from sqlalchemy import make_url

from app.cli import usher
from tests.commands.doctor.stage import ASK, PEOPLE, RULE, CannotPlantError, Servers, Stage, lines, running_servers
from tests.conftest import empty_postgres_database

FAULTS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "planted.yaml").read_text("utf-8"))
SECRETS = (ASK, RULE, "QSBzZWNyZXQ")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with running_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


@pytest.fixture
def stage(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A healthy installation in its own folder."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("USHER_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    shutil.copy(servers.database, tmp_path / "usher.db")
    (tmp_path / "people.jsonl").write_bytes(lines(PEOPLE))
    settings = {
        "database_url": "sqlite:///usher.db",
        "provider": {"auth_tokens": [ASK]},
        "admin": {"tokens": [RULE]},
        "backend": {"base_url": servers.words["backend"], "api_key": servers.api_key, "auth_token": servers.auth_token},
        "directory": {"sources": [{"type": "file", "path": "people.jsonl", "name": "people"}]},
        "notifications": {
            "webhook": {
                "url": "https://hooks.acme.example/usher",
                "secret": "whsec_QSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyAxMjM=",
            }
        },
    }
    made = Stage(tmp_path, settings, dict(servers.words), servers.call_backend, servers.backend)
    with made.cleanup:
        yield made


def run(*arguments: str) -> tuple[int, str]:
    config = [] if "--config" in arguments else ["--config", "usher.yaml"]
    result = CliRunner().invoke(usher, [*arguments, *config], prog_name="usher")
    return result.exit_code, result.output


def run_beside(*arguments: str) -> tuple[int, str]:
    """Runs a server in another process, because gunicorn expects a fresh one."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-P", "-m", "app", *arguments, "--config", "usher.yaml"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout + result.stderr


def test_list_of_faults_is_complete() -> None:
    assert [fault["number"] for fault in FAULTS] == list(range(1, 78))


def test_installation_without_a_fault(stage: Stage) -> None:
    stage.plant({})
    code, output = run("doctor")
    assert code == 0, output
    assert {line.partition("\t")[0] for line in output.splitlines()} == {"ok"}, output


@pytest.mark.extended
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault['number']} {fault['planted']}")
def test_planted_fault_is_reported(stage: Stage, fault: dict[str, Any], request: pytest.FixtureRequest) -> None:
    if "<postgres" in str(fault):
        stage.words["postgres"] = request.getfixturevalue("postgres_database")
        empty_postgres_database(stage.words["postgres"])
        nobody = make_url(stage.words["postgres"]).set(username="nobody_at_all")
        stage.words["postgres as nobody"] = nobody.render_as_string(hide_password=False)
    try:
        stage.plant(fault)
    except CannotPlantError as error:
        pytest.skip(str(error))
    for name, value in fault.get("environment", {}).items():
        request.getfixturevalue("monkeypatch").setenv(name, stage.filled(value))
    if "first" in fault:
        run(*fault["first"])
    way = run_beside if fault.get("process") else run
    code, output = way(*stage.filled(fault.get("command", ["doctor"])))
    wanted = stage.filled(fault["line"])
    assert any(all(part in line for part in wanted) for line in output.splitlines()), output
    assert code == fault["exit"], output
    assert "Traceback" not in output
    assert not [secret for secret in (*SECRETS, stage.words["token"]) if secret in output]
