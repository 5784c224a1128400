"""The errors that a user can cause, each with a line that is meant for them."""

from app.bootstrap.requirements import SetUpError
from app.client.errors import ClientError
from app.contract.errors import ContractError
from app.database.backup import BackupError
from app.database.engine import DatabaseUrlError
from app.database.programs import ForeignDatabaseError, SchemaError
from app.edge.listening import BindError
from app.registration import RegistrationError
from app.runs.reading import UnknownSourceError
from app.runs.run import RunError
from app.runs.schedule import ScheduleError
from app.workspace import WorkspaceError

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
