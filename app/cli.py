"""The command ``usher``."""

import click

from app.commands.frame import Entry

COMMANDS = {
    "demo": "app.commands.demo:demo",
    "serve": "app.commands.serve:serve",
    "worker": "app.commands.serve:worker",
    "plan": "app.commands.sync:plan",
    "sync": "app.commands.sync:sync",
    "runs": "app.commands.runs:runs",
    "approve": "app.commands.runs:approve",
    "discard": "app.commands.runs:discard",
    "check": "app.commands.check:check",
    "directory": "app.commands.directory:directory",
    "doctor": "app.commands.doctor:doctor",
    "backend": "app.commands.backend:backend",
    "db": "app.commands.database:db",
    "config": "app.commands.settings:config",
}


@click.group(
    cls=Entry,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="usher", message="usher %(version)s")
def usher() -> None:
    """Keep a collaboration backend in step with a company's directory, and answer it who may see what.

    Begin with: usher demo
    """


def main() -> None:
    """The entry point of the installed command."""
    usher(prog_name="usher")
