"""The command ``usher``."""

# ruff: noqa: E402 - Ctrl-C while modules are imported ends the process without a traceback.

import signal

_on_interrupt = signal.getsignal(signal.SIGINT)
if _on_interrupt is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import click

from app.commands.frame import UsherCommands

signal.signal(signal.SIGINT, _on_interrupt)

COMMANDS = {
    "demo": ("app.commands.demo.command:demo", "Run everything on this machine, from scratch, with a sample company."),
    "init": ("app.commands.init.command:init", "Write a first settings file, and check the directory."),
    "serve": ("app.commands.serve:serve", "Serve permission calls, the operators' API and the console."),
    "worker": ("app.commands.worker:worker", "Run scheduled and queued syncs."),
    "plan": ("app.commands.sync:plan", "Show what a sync would do, without doing it."),
    "sync": ("app.commands.sync:sync", "Sync the backend with the directory now."),
    "runs": ("app.commands.runs:runs", "List past runs, newest first, or show one with its items."),
    "approve": ("app.commands.runs:approve", "Approve the held deletes of a run."),
    "discard": ("app.commands.runs:discard", "Discard the held deletes of a run."),
    "check": ("app.commands.check:check", "Show what a user may do with a resource, and why."),
    "access": ("app.commands.access:access", "List what a user may open, or who may open a resource."),
    "directory": ("app.commands.directory:directory", "Check, preview and read the directory's sources."),
    "doctor": ("app.commands.doctor.command:doctor", "Check the whole installation, and print advice."),
    "provider": (
        "app.commands.provider:provider",
        "Register this service with the backend as its permission provider.",
    ),
    "health": ("app.commands.health:health", "Check the health of the Usher processes that run here."),
    "backend": ("app.commands.backend:backend", "The self-hosted collaboration backend."),
    "db": ("app.commands.database:db", "Upgrade and back up Usher's own database."),
    "config": ("app.commands.settings:config", "Show the effective settings."),
}
"""name → module and function, and the first sentence of the help. ``usher --help`` imports no command."""


@click.group(
    cls=UsherCommands,
    targets=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="usher", message="usher %(version)s")
def usher() -> None:
    """Sync a collaboration backend with a company's directory, and answer its permission calls.

    To see it, run: usher demo
    """


def main() -> None:
    """The entry point of the installed command."""
    usher(prog_name="usher")
