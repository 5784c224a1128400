"""``usher demo``: everything on one machine, from nothing."""

from __future__ import annotations

from pathlib import Path

import click

from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.screen import note


@click.command(cls=UsherCommand)
@click.option("--once", is_flag=True, help="Show it and stop; without it everything keeps serving.")
@click.option(
    "--port",
    type=int,
    metavar="N",
    help="The service's port, and the next one for the backend; any free ones if it is left out.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the data here and go on from it next time; a temporary folder if it is left out.",
)
@pass_invocation
def demo(invocation: Invocation, once: bool, port: int | None, data: Path | None) -> None:
    """Run everything on this machine, from scratch, with a sample company.

    The self-hosted backend, the service, the worker and a sample directory; needs no settings.
    """
    from app.commands.demo.tour import DemoError, run_demo
    from app.foundation.logs import LogSettings, configure_logs

    # What matters is on the screen; the processes write logs of their own.
    configure_logs(LogSettings(level="debug" if invocation.verbosity else "error"))
    try:
        run_demo(once=once, port=port, data=data)
    except DemoError as error:
        for line in error.log:
            note(f"  {line}")
        raise CommandError(str(error)) from error
