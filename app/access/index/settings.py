"""The settings of the index."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from app.foundation.configuration.schema import SettingsSection


def _folder(value: object) -> object:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must not contain a NUL character")
    return None if value == "" else value


class IndexSettings(SettingsSection):
    """The section ``index``."""

    path: Annotated[Path | None, BeforeValidator(_folder)] = None
    """The folder of this node's index, on a local disk. None or empty: beside the SQLite file, or in ``var``."""
    max_staleness: float = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds for which permission calls are answered while the database cannot be reached. 0: as
    ``directory.max_age``, and without that any time."""
