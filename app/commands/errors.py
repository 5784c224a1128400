"""Makes the error lines of commands from exceptions other than ``CommandError``."""

from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError

from app.client.errors import ClientError
from app.client.registration import RegistrationError
from app.client.workspace import WorkspaceError
from app.commands.bootstrap.requirements import MissingSettingError, SetUpError
from app.contract.errors import ContractError
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.configuration.showing import without_secrets
from app.foundation.database.backup import BackupError
from app.foundation.database.errors import cause_with_remedy
from app.foundation.database.programs import ForeignDatabaseError, SchemaError
from app.foundation.database.url import DatabaseUrlError
from app.foundation.text import printable
from app.http.listening import BindError
from app.sync.runs.directory_reads import UnknownSourceError
from app.sync.runs.run import RunError
from app.sync.runs.schedule import ScheduleError

USER_ERRORS: tuple[type[Exception], ...] = (
    BackupError,
    BindError,
    ClientError,
    ContractError,
    DatabaseUrlError,
    ForeignDatabaseError,
    RegistrationError,
    RunError,
    ScheduleError,
    SchemaError,
    SetUpError,
    UnknownSourceError,
    WorkspaceError,
)
"""Errors that a user can cause. Their text is one line for the user."""

_NO_FILE = "; no settings file was read: name yours with --config or USHER_CONFIG"


def error_lines(error: Exception, *, without_file: bool) -> Sequence[str]:
    """One line for each problem. ``without_file``: no settings file was read, which may explain a missing setting."""
    if isinstance(error, ConfigurationError):
        return [printable(problem) for problem in error.problems]
    line = _sentence(error)
    if line is None:
        text = without_secrets(printable(str(error)))
        return [f"something unexpected went wrong ({type(error).__name__}: {text}); run with -v for details"]
    hint = _NO_FILE if without_file and isinstance(error, MissingSettingError) else ""
    return [without_secrets(printable(line)) + hint]


def _sentence(error: Exception) -> str | None:
    """The line for an expected error. None for any other."""
    if isinstance(error, USER_ERRORS):
        return str(error)
    if isinstance(error, SQLAlchemyError):
        return f"the database cannot be used: {cause_with_remedy(error)}"
    if isinstance(error, UnicodeEncodeError):
        return "the input is not valid UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return None
