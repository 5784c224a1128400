"""The errors that a user can cause, each with a line that is meant for them."""

from app.client.errors import ClientError
from app.client.registration import RegistrationError
from app.client.workspace import WorkspaceError
from app.commands.bootstrap.requirements import SetUpError
from app.contract.errors import ContractError
from app.foundation.database.backup import BackupError
from app.foundation.database.engine import DatabaseUrlError
from app.foundation.database.programs import ForeignDatabaseError, SchemaError
from app.http.listening import BindError
from app.sync.runs.refresh import UnknownSourceError
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
