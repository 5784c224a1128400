"""Commands without a configured source."""

from pathlib import Path

import pytest

from tests.commands.conftest import Usher

WITHOUT = """\
database_url: sqlite:///usher.db
provider: {auth_tokens: [a-token-of-twenty-letters]}
backend: {base_url: 'http://127.0.0.1:1', api_key: key, auth_token: token}
self_hosted_backend: {database_url: 'sqlite:///backend.db'}
"""


@pytest.mark.parametrize(
    "command",
    [["serve"], ["serve", "--with-worker"], ["worker"], ["sync"], ["plan"], ["directory", "check"],
     ["directory", "refresh"]],
    ids=" ".join,
)  # fmt: skip
def test_missing_sources_are_named_with_the_fix(usher_in: Usher, folder: Path, command: list[str]) -> None:
    (folder / "usher.yaml").write_text(WITHOUT)
    result = usher_in(*command)
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line.startswith(
        "error: directory.sources is empty: name the directory file, for example directory: {sources: [{"
    )
    assert result.stdout == ""


def test_missing_sources_queue_nothing(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text(WITHOUT)
    usher_in("sync")
    assert usher_in("runs").stdout == "no runs yet\n"


def test_doctor_names_the_setting(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text(WITHOUT)
    result = usher_in("doctor")
    assert result.exit_code == 1
    [line] = [line for line in result.stdout.splitlines() if line.split("\t")[1] == "directory"]
    assert line.startswith("problem\tdirectory\tdirectory.sources is empty: nobody would have access\tname the")


@pytest.mark.parametrize(
    "command", [["config", "show"], ["db", "upgrade"], ["backend", "upgrade"], ["runs"]], ids=" ".join
)
def test_commands_that_need_no_sources_work(usher_in: Usher, folder: Path, command: list[str]) -> None:
    (folder / "usher.yaml").write_text(WITHOUT)
    result = usher_in(*command)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
