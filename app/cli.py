"""The command ``usher``."""

import gc

import click

from app.commands.frame import UsherCommands

COMMANDS = {
    "demo": "app.commands.demo.command:demo",
    "serve": "app.commands.serve:serve",
    "worker": "app.commands.serve:worker",
    "plan": "app.commands.sync:plan",
    "sync": "app.commands.sync:sync",
    "runs": "app.commands.runs:runs",
    "approve": "app.commands.runs:approve",
    "discard": "app.commands.runs:discard",
    "check": "app.commands.check:check",
    "directory": "app.commands.directory:directory",
    "doctor": "app.commands.doctor.command:doctor",
    "provider": "app.commands.provider:provider",
    "health": "app.commands.health:health",
    "backend": "app.commands.backend:backend",
    "db": "app.commands.database:db",
    "config": "app.commands.settings:config",
}
HELPS = {
    "demo": "Run everything on this machine, from scratch, with a sample company.",
    "serve": "Serve permission calls, the operators' API and the console.",
    "worker": "Run scheduled and queued syncs.",
    "plan": "Show what a sync would do, without doing it.",
    "sync": "Sync the backend with the directory now.",
    "runs": "List past runs, newest first, or show one with its items.",
    "approve": "Approve the held deletes of a run.",
    "discard": "Discard the held deletes of a run.",
    "check": "Show what a user may do with a resource, and why.",
    "directory": "Check, preview and read the directory's sources.",
    "doctor": "Check the whole installation, and print advice.",
    "provider": "Register this service with the backend as its permission provider.",
    "health": "Check the health of the Usher processes that run here.",
    "backend": "The self-hosted collaboration backend.",
    "db": "Upgrade and back up Usher's own database.",
    "config": "Show the effective settings.",
}
"""The first sentence of each command's help, repeated here because ``usher --help`` imports no command."""


@click.group(
    cls=UsherCommands,
    modules=COMMANDS,
    helps=HELPS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="usher", message="usher %(version)s")
def usher() -> None:
    """Sync a collaboration backend with a company's directory, and answer its permission calls.

    To see it, run: usher demo
    """


def main() -> None:
    """The entry point of the installed command."""
    # Importing modules creates no garbage, but with Python's default thresholds it triggers a hundred collections.
    gc.set_threshold(50_000, 20, 100)
    usher(prog_name="usher")
