"""``usher config``: prints the effective settings and the origin of each."""

from __future__ import annotations

import json

import click

from app.commands.frame import Invocation, UsherGroup, json_option, pass_invocation
from app.commands.screen import show_json, show_table


@click.group(cls=UsherGroup)
def config() -> None:
    """Show the effective settings."""


@config.command()
@json_option
@pass_invocation
def show(invocation: Invocation, as_json: bool) -> None:
    """Print the effective settings.

    Every setting with its origin. Secrets are masked.
    """
    from app.foundation.configuration.showing import setting_rows

    configuration = invocation.configuration()
    rows = setting_rows(configuration.settings, configuration.origins)
    if as_json:
        show_json({key: {"value": _parsed(value), "from": origin} for key, value, origin in rows})
    else:
        show_table(("key", "value", "from"), list(rows))


def _parsed(value: str) -> object:
    """A JSON value. Masks and URLs are not JSON, and remain text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
