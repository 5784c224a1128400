"""Help imports only what it needs."""

import subprocess
import sys

import click
import pytest

from app.cli import COMMANDS, usher
from tests.choice import sampled

HEAVY = ("sqlalchemy", "sqlmodel", "pydantic", "flask", "requests", "alembic", "gunicorn", "cryptography", "numpy")
"""Packages that take longer to import than everything that a help text needs."""
MOST = 400
"""Maximum number of modules. Python and click alone import about 200."""

PROGRAM = """
import sys
from app.cli import main
sys.argv[0] = "usher"
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
sys.stdout = sys.__stderr__
print(*sorted(sys.modules))
"""


def _all_commands() -> list[str]:
    context = click.Context(usher)
    found = []
    for name in COMMANDS:
        command = usher.get_command(context, name)
        inner = list(command.commands) if isinstance(command, click.Group) else []
        found += [name, *(f"{name} {one}" for one in inner)]
    return found


@pytest.mark.process
@pytest.mark.parametrize("command", sampled(_all_commands(), sample=8))
def test_help_loads_nothing_heavy(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *command.split(), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(f"Usage: usher {command}")
    modules = done.stderr.split()
    assert [name for name in HEAVY if name in modules] == []
    assert len(modules) < MOST
