"""``usher config``: the settings in force, and where each comes from."""

from __future__ import annotations

import json

import click

from app.commands.frame import Invocation, UsherGroup, pass_invocation
from app.commands.screen import show_json, show_table


@click.group(cls=UsherGroup)
def config() -> None:
    """Show the settings in force."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_invocation
def show(invocation: Invocation, as_json: bool) -> None:
    """Print the settings in force.

    Every setting, secrets masked, with where it was given.
    """
    from app.foundation.configuration.showing import listed

    found = invocation.configuration()
    if as_json:
        rows = listed(found.settings, found.origins)
        show_json({key: {"value": _value(value), "from": origin} for key, value, origin in rows})
        return
    show_table(("key", "value", "from"), list(listed(found.settings, found.origins)))


def _value(shown: str) -> object:
    """What is shown as JSON, as that; a mask or a URL as text."""
    try:
        return json.loads(shown)
    except ValueError:
        return shown
