"""The frame of every command: its common options, how it ends, and how it gets at the settings.

Results go to standard output, everything else to standard error. Whatever a user can cause ends in one line that begins
with ``error:`` and in exit code 1; click's own usage errors are 2.
"""

import errno
import importlib
import logging
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from app.commands.screen import without_colours
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.foundation.configuration.loading import Configuration
    from app.settings import Settings

# Everything else is imported where it is needed: whoever asks for help waits for none of it.


class CommandError(Exception):
    """A command cannot do what it was asked for; the text is one line for the user."""

    exit_code = 1


class EndedBySignalError(Exception):
    """A command was told to stop in the middle; the text is one line that says how far it was."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


@dataclass
class Invocation:
    """What the common options of one run of the command line say."""

    config: Path | None = None
    verbosity: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    """Settings that the command line gives, by dotted key."""
    without_file: bool = False
    """Whether the settings come from no file."""
    settings_file: Path | None = None
    """The file that they come from."""

    def configuration(self, *, server: bool = False) -> "Configuration[Settings]":
        """The settings in force; sets the logs up, too: quiet for commands, talkative for servers."""
        from app.foundation.logs import configure_logs
        from app.settings import load_settings

        found = load_settings(self.config, command_line=self.values)
        self.without_file = found.file is None
        self.settings_file = found.file
        log = found.settings.log
        if self.verbosity:
            log = log.model_copy(update={"level": "debug"})
        elif not server and "log.level" not in found.origins:
            # Where no person looks, a command says its one line and nothing beside it.
            log = log.model_copy(update={"level": "warning" if sys.stderr.isatty() else "error"})
        configure_logs(log)
        if self.verbosity == 1:
            for name in ("sqlalchemy", "urllib3", "alembic"):
                logging.getLogger(name).setLevel(logging.INFO if name == "alembic" else logging.WARNING)
        return found

    def settings(self, *, server: bool = False) -> "Settings":
        """As above, without the origins."""
        return self.configuration(server=server).settings


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


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
            help="Settings file; without it USHER_CONFIG, then config/usher.yaml if it is there.",
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_set_verbosity,
            help="Say more on standard error; twice: the libraries, too.",
        ),
    ]


class UsherCommand(click.Command):
    """A command with the common options."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params = [*self.params, *_common_options()]


class UsherGroup(click.Group):
    """A group whose commands, and itself, have the common options."""

    command_class = UsherCommand

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.params = [*self.params, *_common_options()]


UsherGroup.group_class = UsherGroup


class UsherCommands(UsherGroup):
    """The command itself: loads the module of a command when it is asked for, and turns errors into lines."""

    def __init__(self, *arguments: Any, modules: Mapping[str, str], helps: Mapping[str, str], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._modules = modules
        self._helps = helps

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order in which people need them, not by the alphabet."""
        return list(self._modules)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """The list of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._helps[name]) for name in self._modules])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, without importing any of them; and the options."""
        names = [name for name in self._modules if name.startswith(incomplete)]
        found = [CompletionItem(name, help=self._helps[name]) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command of that name; ``app.commands.sync:plan`` is imported now and not before."""
        where = self._modules.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command that was asked for."""
        if without_colours():
            # Contexts of the commands inherit it, and click takes the colours out of all that is printed.
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
        except OSError as error:
            if error.errno == errno.EPIPE:
                # Whoever read the output has seen enough.
                sys.stdout = None
                ctx.exit(0)
            _end(ctx, error)
        except Exception as error:  # noqa: BLE001 - no user ever gets to see a traceback that they did not ask for
            _end(ctx, error)


def _end(context: click.Context, error: Exception) -> NoReturn:
    invocation = context.ensure_object(Invocation)
    if invocation.verbosity:
        from app.foundation.configuration.showing import without_password

        text = "".join(traceback.format_exception(error))
        click.echo(without_password(text), err=True, nl=False)
    # Whoever has a settings file wonders why nothing of it counts.
    hint = _NO_FILE if invocation.without_file and _is_missing_setting(error) else ""
    for line in lines_for(error):
        click.echo(f"error: {line}{hint}", err=True)
    context.exit(error.exit_code if isinstance(error, CommandError) else 1)


_NO_FILE = "; no settings file was read: name yours with --config or USHER_CONFIG"


def _is_missing_setting(error: Exception) -> bool:
    from app.commands.bootstrap.requirements import MissingSettingError

    return isinstance(error, MissingSettingError)


def lines_for(error: Exception) -> Sequence[str]:
    """What a user is told about an error, one line for each thing that is wrong."""
    from app.foundation.configuration.problems import ConfigurationError
    from app.foundation.configuration.showing import without_password

    if isinstance(error, ConfigurationError):
        return [printable(problem) for problem in error.problems]
    known = _sentence(error)
    if known is None:
        text = without_password(printable(str(error)))
        return [f"something unexpected went wrong ({type(error).__name__}: {text}); run with -v for details"]
    return [without_password(printable(known))]


def _sentence(error: Exception) -> str | None:
    """The line for an error that a user can cause; None for those that nobody thought of."""
    from sqlalchemy.exc import SQLAlchemyError

    from app.commands.failures import USER_ERRORS
    from app.foundation.database.errors import cause_with_remedy

    if isinstance(error, (CommandError, *USER_ERRORS)):
        return str(error)
    if isinstance(error, SQLAlchemyError):
        return f"the database cannot be used: {cause_with_remedy(error)}"
    if isinstance(error, UnicodeEncodeError):
        return "what was given is not valid UTF-8"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return None
