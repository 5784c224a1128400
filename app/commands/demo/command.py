"""``usher demo``: runs everything on one machine."""

from __future__ import annotations

from pathlib import Path

import click

from app.commands.frame import Invocation, UsherCommand, pass_invocation


@click.command(cls=UsherCommand)
@click.option("--once", is_flag=True, help="Stop after the tour. Default: keep running.")
@click.option("--port", type=int, metavar="N", help="The service's port; the backend uses the next one. Default: any.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the data here, and continue with it next time. Default: a temporary folder.",
)
@pass_invocation
def demo(invocation: Invocation, once: bool, port: int | None, data: Path | None) -> None:
    """Run everything on this machine, from scratch, with a sample company.

    Starts the self-hosted backend, the service and the worker with a sample directory. Needs no settings.
    """
    from app.commands.demo.tour import run_demo
    from app.foundation.logs import LogSettings, configure_logs

    # The processes write their own logs.
    configure_logs(LogSettings(level="debug" if invocation.verbosity else "error"))
    run_demo(once=once, port=port, data=data)
