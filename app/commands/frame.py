"""The frame of every command: common options, access to the settings, errors and exit codes.

Results go to standard output, everything else to standard error. An error ends in a line that begins with ``error:``
and in exit code 1. click's usage errors end in 2.

This module and the modules of commands import only what ``--help`` needs. Commands import the rest when they run.
"""

import errno
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from app.foundation.text import printable

if TYPE_CHECKING:
    from app.foundation.configuration.loading import Configuration
    from app.settings import Settings


class CommandError(Exception):
    """A command failed. The text is one line for the user."""

    exit_code = 1


class EndedBySignalError(Exception):
    """A signal stopped a command. The text is one line about its progress."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


@dataclass
class Invocation:
    """The common options of one invocation, and the settings that follow from them."""

    config: Path | None = None
    verbosity: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    """Settings from the command line, by dotted key."""
    without_file: bool = False
    """Whether the settings were loaded without a file."""
    settings_file: Path | None = None
    """The file that they were loaded from."""
    environment: Mapping[str, str] | None = None
    """The environment with settings. None: that of this process."""

    def configuration(self, *, server: bool = False) -> "Configuration[Settings]":
        """Loads the settings and configures the logs. Servers log more than commands."""
        from app.foundation.logs import configure_logs
        from app.settings import load_settings

        configuration = load_settings(self.config, environment=self.environment, command_line=self.values)
        self.without_file = configuration.file is None
        self.settings_file = configuration.file
        log = configuration.settings.log
        if self.verbosity:
            log = log.model_copy(update={"level": "debug"})
        elif not server and "log.level" not in configuration.origins:
            # Without a terminal, a command prints its error line and no warnings.
            log = log.model_copy(update={"level": "warning" if sys.stderr.isatty() else "error"})
        configure_logs(log)
        if self.verbosity == 1:
            for name in ("sqlalchemy", "urllib3", "alembic"):
                logging.getLogger(name).setLevel(logging.INFO if name == "alembic" else logging.WARNING)
        return configuration

    def settings(self, *, server: bool = False) -> "Settings":
        """Loads the settings, as ``configuration`` does."""
        return self.configuration(server=server).settings


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _set_config(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).config = value


def _set_verbosity(context: click.Context, _parameter: click.Parameter, value: int) -> None:
    invocation = context.ensure_object(Invocation)
    invocation.verbosity = max(invocation.verbosity, value)


def _common_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            expose_value=False,
            callback=_set_config,
            help="Settings file. Default: USHER_CONFIG, then config/usher.yaml if it exists.",
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_set_verbosity,
            help="Print more on standard error. Twice: messages of libraries, too.",
        ),
    ]


class UsherCommand(click.Command):
    """A command with the common options."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params = [*self.params, *_common_options()]


class UsherGroup(UsherCommand, click.Group):
    """A group with the common options, as have its commands."""

    command_class = UsherCommand


class UsherCommands(UsherGroup):
    """The command ``usher``: imports the module of a subcommand on demand, and prints errors as lines."""

    def __init__(self, *arguments: Any, targets: Mapping[str, tuple[str, str]], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._targets = targets

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order of ``targets``, not sorted."""
        return list(self._targets)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Writes the list of commands without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._targets.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes names of commands without importing their modules, and options."""
        names = [name for name in self._targets if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._targets[name][1]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Imports a command, such as ``app.commands.sync:plan``."""
        if cmd_name not in self._targets:
            return None
        module, _, name = self._targets[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command and turns errors into lines and exit codes."""
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            # Commands inherit it, and click removes the colours from all output.
            ctx.color = False
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            ctx.exit(128 + signal.SIGINT)
        except EndedBySignalError as error:
            click.echo(f"stopped: {printable(str(error))}", err=True)
            ctx.exit(128 + error.number)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - tracebacks are printed only with -v
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                # The reader of the output closed the pipe.
                sys.stdout = None
                ctx.exit(0)
            _print_and_exit(ctx, error)


def _print_and_exit(context: click.Context, error: Exception) -> NoReturn:
    from app.commands.errors import error_lines
    from app.foundation.configuration.showing import without_secrets

    invocation = context.ensure_object(Invocation)
    if invocation.verbosity:
        click.echo(without_secrets("".join(traceback.format_exception(error))), err=True, nl=False)
    if isinstance(error, CommandError):
        lines: Sequence[str] = [without_secrets(printable(str(error)))]
    else:
        lines = error_lines(error, without_file=invocation.without_file)
    for line in lines:
        click.echo(f"error: {line}", err=True)
    context.exit(error.exit_code if isinstance(error, CommandError) else 1)
