"""The settings of the index."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class IndexSettings(BaseModel):
    """The section ``index``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path | None = None
    """The folder of this node's index, on a local disk. None: beside the SQLite file, or in ``var``."""
    max_staleness: float = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds for which permission calls are answered while the database cannot be reached; 0: as
    ``directory.max_age``, and without that any time."""
