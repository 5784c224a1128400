"""Without the packages of the extra, the commands that need them say so in one line, and the others work."""

import pytest
from click.testing import CliRunner

from app.cli import usher
from app.commands import backend


@pytest.mark.parametrize("command", [["serve"], ["deliver"], ["upgrade"]])
def test_commands_of_the_backend_name_the_extra_that_is_missing(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "BACKEND_EXTRA", ("numpy", "not_a_package_of_anyone"))
    result = CliRunner().invoke(usher, ["backend", *command])
    assert result.exit_code == 1
    assert "needs not_a_package_of_anyone: pip install 'usher[backend]'" in result.stderr
    assert "Traceback" not in result.output


def test_bootstrap_needs_nothing_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BACKEND_EXTRA", ("not_a_package_of_anyone",))
    result = CliRunner().invoke(
        usher,
        ["backend", "bootstrap", "--email", "ada@acme.example.com"],
        env={"USHER_BACKEND__BASE_URL": "http://127.0.0.1:9", "USHER_BACKEND__TIMEOUT": "1"},
    )
    assert result.exit_code == 1
    assert "usher[backend]" not in result.stderr
