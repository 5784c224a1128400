"""Counts the problems of the directory at the end of a command, because an installation may have no worker."""

from sqlalchemy.exc import SQLAlchemyError

from app.access.stored_problems import count_problems
from app.commands.bootstrap.application import Application
from app.commands.screen import print_note
from app.foundation.database.errors import database_problem


def count_problems_now(parts: Application) -> None:
    """Counts them if the directory has changed. An error is only printed: the command has done its work."""
    try:
        count_problems(parts.engine, parts.clock)
    except SQLAlchemyError as error:
        print_note(f"the problems of the directory were not counted: {database_problem(error)}")
