"""The settings of a plan's limits: the section ``sync.limits``."""

from pydantic import BaseModel, ConfigDict, Field


class LimitSettings(BaseModel):
    """The section ``sync.limits``: deletes above either limit are held back for approval; the rest of a run goes on.

    Both count per kind of item within each organization (organizations themselves are counted together). Deleting an
    organization always waits for approval, whatever these say.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delete_count: int = Field(default=500, ge=0, le=1_000_000_000)
    """So many deletes go through; the delete of a folder or an organization counts everything below it."""
    delete_percent: float = Field(default=20, ge=0, le=100)
    """So many percent of what the ledger holds of that kind there go through; does not count below 10 items."""
