"""``usher config``: the settings in force, and where each comes from."""

import click

from app.commands.frame import Invocation, UsherGroup, pass_invocation
from app.configuration.showing import listed
from app.screen import show_table


@click.group(cls=UsherGroup)
def config() -> None:
    """Look at the settings."""


@config.command()
@pass_invocation
def show(invocation: Invocation) -> None:
    """Print the settings in force.

    Every setting, secrets masked, with where it was given.
    """
    found = invocation.configuration()
    show_table(("key", "value", "from"), list(listed(found.settings, found.origins)))
