"""``usher doctor`` on the command line."""

import json
from pathlib import Path

import click
import pytest

from app.commands.doctor.command import _show
from app.commands.doctor.finding import problem
from tests.commands.conftest import Usher


def test_doctor_prints_a_line_for_each_finding_and_exits_with_1(usher_read: Usher) -> None:
    result = usher_read("doctor")
    assert result.exit_code == 1
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    by_name = {row[1]: row for row in rows}
    assert {len(row) for row in rows} == {3, 4}
    assert by_name["database"][0] == "ok"
    assert by_name["schema"][0] == "ok"
    assert by_name["directory"][0] == "ok"
    assert by_name["directory"][2].startswith("directory.yaml: 10 records; 10 records in force, last read ")
    assert by_name["backend"] == [
        "problem",
        "backend",
        "backend.api_key or backend.auth_token is empty: nothing can be synced",
        "set both (usher backend bootstrap makes some for the self-hosted backend)",
    ]


@pytest.mark.process
def test_doctor_exits_with_0_without_problems(usher_with_backend: Usher, folder: Path) -> None:
    with (folder / "usher.yaml").open("a") as settings:
        settings.write("provider: {auth_tokens: [ask-me-for-tests]}\n")
    assert usher_with_backend("sync").exit_code == 0
    result = usher_with_backend("doctor", "--json")
    output = json.loads(result.stdout)
    assert (result.exit_code, output["healthy"]) == (0, True)
    states = {finding["name"]: finding["state"] for finding in output["findings"]}
    assert states == {
        "settings": "ok",
        "admin": "warning",
        "index": "ok",
        "notifications": "warning",
        "database": "ok",
        "schema": "ok",
        "access model": "ok",
        "runs": "ok",
        "directory": "ok",
        "backend": "ok",
        "clock": "ok",
        "registration": "warning",
    }
    assert all(("advice" in finding) is (finding["state"] != "ok") for finding in output["findings"])


def test_doctor_reports_invalid_settings(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text("backend: {auth_tokn: TOPSECRET}\n")
    result = usher_in("doctor")
    assert result.exit_code == 1
    assert "problem\tsettings\tbackend.auth_tokn: not a setting" in result.stdout
    assert "TOPSECRET" not in result.output
    assert result.stderr == ""


def test_runs_lists_what_needs_attention(usher_read: Usher, folder: Path) -> None:
    (folder / "directory.yaml").unlink()
    usher_read("directory", "refresh")
    result = usher_read("runs")
    assert result.exit_code == 0
    assert "source directory.yaml cannot be read: " in result.stderr


@pytest.mark.parametrize("columns", [80, 60, 200])
def test_lines_are_wrapped_between_words(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.doctor.command.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    message = "the backend at https://backend.acme.example:8443 is not there, and nobody at all knows why that is"
    advice = "see that it runs, and that backend.base_url is the address of the one that is meant by all of this"
    _show(problem("backend", message, advice))
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    words = " ".join(lines).split()
    assert words == ["✗", "backend", *message.split(), "→", *advice.split()]
    assert max(map(len, lines)) <= columns
