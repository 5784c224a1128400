"""The command ``usher``."""

import gc

import click

from app.commands.frame import UsherCommands

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
    "provider": "app.commands.provider:provider",
    "health": "app.commands.health:health",
    "backend": "app.commands.backend:backend",
    "db": "app.commands.database:db",
    "config": "app.commands.settings:config",
}
HELPS = {
    "demo": "Show everything on one machine, from nothing.",
    "serve": "Answer permission questions and operators.",
    "worker": "Run the schedule and the syncs.",
    "plan": "Show what a sync would do, without doing it.",
    "sync": "Bring the backend in step with the directory, now.",
    "runs": "List past runs, newest first, or show one with its items.",
    "approve": "Approve the held deletes of a run.",
    "discard": "Discard the held deletes of a run.",
    "check": "Decide what a user may see.",
    "directory": "Look at the directory's sources, and read them.",
    "doctor": "Look at everything, and say what to do.",
    "provider": "Let the backend ask this service who may see what.",
    "health": "Ask the process that this container runs whether it is well; ends with 0 if so.",
    "backend": "The self-hosted collaboration backend.",
    "db": "Look after Usher's own database.",
    "config": "Look at the settings.",
}
"""The first sentence of each command's help, here as well: the list of commands imports none of them."""


@click.group(
    cls=UsherCommands,
    modules=COMMANDS,
    helps=HELPS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="usher", message="usher %(version)s")
def usher() -> None:
    """Keep a collaboration backend in step with a company's directory, and answer it who may see what.

    Begin with: usher demo
    """


def main() -> None:
    """The entry point of the installed command."""
    # Modules, tables and models that are loaded are no garbage, and records that pass through are not made of cycles:
    # Python's own thresholds look through all of it some hundred times before a command has begun.
    gc.set_threshold(50_000, 20, 100)
    usher(prog_name="usher")
