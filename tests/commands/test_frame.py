"""Behaviour that all commands share."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.cli import COMMANDS, usher
from tests.commands.conftest import Usher


def commands(command: click.Command, name: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names of all commands and groups."""
    yield name
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(found, (*name, inner))


EVERY = list(commands(usher))
NAMED = [
    "demo", "serve", "worker", "backend serve", "plan", "sync", "runs", "approve", "discard",
    "db backup", "check", "directory check", "directory refresh", "directory export", "db upgrade",
    "backend bootstrap", "config show",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_command_exists(name: str) -> None:
    assert tuple(name.split()) in EVERY


@pytest.mark.parametrize("name", EVERY, ids=" ".join)
def test_command_has_the_common_options(name: tuple[str, ...]) -> None:
    result = CliRunner().invoke(usher, [*name, "--help"], prog_name="usher")
    assert result.exit_code == 0
    assert result.stdout.startswith(" ".join(("Usage: usher", *name)))
    for option in ("--config FILE", "-v, --verbose", "--help"):
        assert option in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["plan", "--nonsense"],
        ["check", "ada"],
        ["check", "ada", "planet", "x", "--organization", "acme"],
        ["check", "ada", "document", "x"],
        ["check", "ada", "document", "x", "--organization", "acme", "--context", "a=b"],
        ["check", "ada", "context", "x", "--organization", "acme", "--context", "ab"],
        ["check", "ada", "document", "x", "--organization", "acme", "--at", "noon"],
        ["check", "ada", "document", "x", "--organization", "acme", "--at", "2026-01-01T12:00:00"],
        ["sync", "--plan", "p", "--user", "u"],
        ["approve"],
        ["serve", "--workers", "0"],
        ["backend", "bootstrap"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(usher_in: Usher, arguments: list[str]) -> None:
    result = usher_in(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


@pytest.mark.parametrize("name", [name for name in NAMED if name != "demo"])
def test_invalid_settings_are_one_line(usher_in: Usher, folder: Path, name: str) -> None:
    (folder / "usher.yaml").write_text("provder: {}\n")
    arguments = {
        "approve": ["x"], "discard": ["x"], "check": ["a", "organization", "b"], "directory export": ["out.jsonl"],
        "db backup": ["out"],
        "backend bootstrap": ["--email", "a@b.example"],
    }.get(name, [])  # fmt: skip
    result = usher_in(*name.split(), *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: provder: not a setting (usher.yaml:1); did you mean provider?\n"


def test_common_options_work_before_and_after_the_command(usher_in: Usher, folder: Path) -> None:
    (folder / "other.yaml").write_text("log: {level: error}\n")
    before = CliRunner().invoke(usher, ["--config", "other.yaml", "config", "show"])
    after = usher_in("config", "show", config="other.yaml")
    assert before.stdout == after.stdout
    assert 'log.level\t"error"\tother.yaml:1' in after.stdout.splitlines()


def test_missing_settings_file_is_an_error(usher_in: Usher) -> None:
    result = usher_in("config", "show", config="nowhere.yaml")
    assert result.exit_code == 1
    assert result.stderr == "error: settings file nowhere.yaml: No such file or directory; name another with --config\n"


def test_unusable_database_is_one_line_without_its_password(usher_in: Usher, folder: Path) -> None:
    url = "postgresql+psycopg://me:TOPSECRET@127.0.0.1:1/nothing"
    (folder / "usher.yaml").write_text(f"database_url: {url}\n")
    result = usher_in("runs")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: the database cannot be used: ")
    assert result.stderr.count("\n") == 1
    assert "TOPSECRET" not in result.stderr


def test_verbose_shows_the_traceback_of_an_error(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text("database_url: sqlite:///directory.yaml/usher.db\n")
    quiet, loud = usher_in("runs"), usher_in("runs", "-v")
    assert quiet.exit_code == loud.exit_code == 1
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr


@pytest.mark.parametrize("command", [["plan"], ["sync"], ["worker"], ["serve", "--with-worker"]])
def test_missing_credentials_are_named(usher_in: Usher, folder: Path, command: list[str]) -> None:
    (folder / "usher.yaml").write_text(
        "provider: {auth_tokens: [ask-me-for-tests]}\ndatabase_url: sqlite:///usher.db\n"
    )
    result = usher_in(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: backend.api_key and backend.auth_token are empty: ")
    assert result.stderr.count("\n") == 1


def test_serve_requires_provider_tokens(usher_in: Usher) -> None:
    result = usher_in("serve")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: provider.auth_tokens is empty: ")
    assert result.stderr.count("\n") == 1


def test_serve_refuses_short_tokens(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text(
        "provider: {auth_tokens: [sixteen-letters-, 15-letters-long]}\nadmin: {tokens: [x]}\n"
    )
    result = usher_in("serve")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: provider.auth_tokens[1] and admin.tokens[0] are shorter than 16 characters")
    assert result.stderr.count("\n") == 1
    assert "15-letters-long" not in result.stderr


def test_config_show_masks_the_path_of_a_webhook(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text(
        "notifications: {webhook: {url: 'https://hooks.example:8443/services/TOPSECRET?x=TOPSECRET', secret: "
        f"{'whsec_' + 'c2VjcmV0' * 4}}}}}"
    )
    shown = usher_in("config", "show")
    assert "TOPSECRET" not in shown.output
    assert '"https://hooks.example:8443/********"' in shown.stdout


def test_config_show_prints_every_setting_with_its_origin(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text(
        "database_url: postgresql://u:TOPSECRET@h/n\nbackend: {api_key: TOPSECRET}\nadmin: {tokens: [TOPSECRET]}\n"
    )
    result = usher_in("config", "show")
    assert result.exit_code == 0
    assert "TOPSECRET" not in result.output
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert ["database_url", "postgresql://u:********@h/n", "usher.yaml:1"] in rows
    assert ["backend.api_key", "********", "usher.yaml:2"] in rows
    assert ["backend.timeout", "30", "default"] in rows


def test_missing_setting_hints_at_a_missing_file(folder: Path) -> None:
    (folder / "usher.yaml").write_text("backend: {api_key: k, auth_token: t}\n")
    found = CliRunner().invoke(usher, ["provider", "register", "--url", "https://x.example/permissions/check"])
    assert found.exit_code == 1
    [line] = found.stderr.splitlines()
    assert line.startswith("error: backend.api_key and backend.auth_token are empty")
    assert line.endswith("; no settings file was read: name yours with --config or USHER_CONFIG")

    named = CliRunner().invoke(usher, ["plan", "--config", "usher.yaml"])
    assert named.exit_code == 1
    assert "directory.sources is empty" in named.stderr
    assert "no settings file was read" not in named.stderr


def test_list_of_commands_matches_their_help() -> None:
    context = click.Context(usher)
    commands = {name: usher.get_command(context, name) for name in usher.list_commands(context)}
    assert {name: command.get_short_help_str(200) for name, command in commands.items() if command} == {
        name: text for name, (_, text) in COMMANDS.items()
    }


@pytest.mark.process
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_only_what_it_needs(argument: str) -> None:
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "app", argument], capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in process.stderr.splitlines()}
    assert "click" in imported
    slow = {"sqlalchemy", "sqlmodel", "pydantic", "flask", "requests", "rich", "structlog", "gunicorn", "alembic"}
    assert imported & slow == set()


@pytest.mark.process
def test_completion_names_commands_without_importing_them() -> None:
    environment = {"_USHER_COMPLETE": "bash_complete", "COMP_WORDS": "usher di", "COMP_CWORD": "1"}
    script = "import sys; from app.cli import main; sys.argv = ['usher']\ntry: main()\nfinally: print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    *names, modules = process.stdout.splitlines()
    assert names == ["plain,discard", "plain,directory"]
    assert "sqlalchemy" not in modules.split()


@pytest.mark.process
def test_refresh_of_a_file_imports_only_what_it_needs(usher_in: Usher) -> None:
    usher_in("directory", "refresh")  # migrations need more
    *output, modules = in_a_process("directory", "refresh")
    assert output[-1] == "revision 1: nothing changed"
    slow = {
        "alembic",
        "flask",
        "requests",
        "ldap",
        "app.monitoring.notify.concerns",
        "app.sync.runs.lifecycle",
        "app.sync.ledger.ledger",
    }
    slow |= {
        "app.sync.plan.tables",
        "app.sync.runs.tables",
        "app.directory.connectors.sql.source",
        "app.directory.mapping.source",
    }
    assert {"app.access.refresh.refresh"} <= {*modules.split()}
    assert slow & {*modules.split()} == set()


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.parametrize("arguments", [["plan"], ["sync", "--json"], ["runs", "20990101"]], ids=" ".join)
@pytest.mark.usefixtures("usher_with_backend")
def test_commands_import_no_web_framework(arguments: list[str]) -> None:
    *_, modules = in_a_process(*arguments)
    assert {"app.commands.bootstrap.application"} <= {*modules.split()}
    assert {"flask", "werkzeug", "jinja2", "gunicorn"} & {*modules.split()} == set()


def in_a_process(*arguments: str) -> list[str]:
    """The output of a command in another process. The last line names all imported modules."""
    script = "import sys; from app.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments, "--config", "usher.yaml"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in process.stderr
    return process.stdout.splitlines()


INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))
sys.meta_path.insert(0, Interrupt())
import app.cli
assert signal.getsignal(signal.SIGINT) is getattr(signal, sys.argv[1])
"""


@pytest.mark.parametrize(("handler", "status"), [("default_int_handler", -signal.SIGINT), ("SIG_IGN", 0)])
def test_an_interrupt_during_imports_prints_no_traceback(handler: str, status: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED, handler]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (status, "")


def test_imports_restore_the_handler_of_interrupts() -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import app.cli;"
    code += "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True)
