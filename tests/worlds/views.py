"""The view of the access model in the transaction of a test."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from app.access.decide import DecisionPolicy, PermissionRequest
from app.model.view import loader
from app.model.view.cache import Structure
from app.model.view.queries import AT_FIRST, statements
from app.model.view.sql_view import SqlAccessView


def load_view(
    connection: Connection, asked: Sequence[PermissionRequest], *, policy: DecisionPolicy, names: bool = False
) -> SqlAccessView:
    """The view of the revision that the transaction sees, by the same statements."""
    dialect = connection.dialect.name
    driver: Any = connection.connection.dbapi_connection
    if AT_FIRST[dialect]:
        driver.execute(AT_FIRST[dialect])
    hints = policy.unknown_document == "inherit_folder"
    return loader._load(asked, statements(dialect, names=names), loader._runner(driver), Structure, hints=hints)
