"""Which errors can a user cause? Each of them carries a line that is meant for him."""

from app.bootstrap import SetUpError
from app.client.errors import ClientError
from app.contract.errors import ContractError
from app.database.engine import DatabaseUrlError
from app.database.migrations import SchemaNewerError
from app.edge.gunicorn import BindError
from app.store.runs import RunError
from app.sync.reading import UnknownSourceError
from app.sync.schedule import ScheduleError
from app.workspace import WorkspaceError

USER_ERRORS: tuple[type[Exception], ...] = (
    BindError,
    ClientError,
    ContractError,
    DatabaseUrlError,
    RunError,
    ScheduleError,
    SchemaNewerError,
    SetUpError,
    UnknownSourceError,
    WorkspaceError,
)
