"""The settings of a plan's limits: the section ``sync.limits``."""

from pydantic import Field

from app.foundation.configuration.schema import SettingsSection


class LimitSettings(SettingsSection):
    """The section ``sync.limits``: deletes above either limit are held for approval. The rest of the run continues.

    Both limits apply to each kind of item in each organization, and to all organizations. The delete of an organization
    always needs approval.
    """

    delete_count: int = Field(default=500, ge=0, le=1_000_000_000)
    """The maximum number of deletes. The delete of a folder or organization counts everything below it."""
    delete_percent: float = Field(default=20, ge=0, le=100)
    """The maximum of deletes, in percent of the items in the ledger. Does not apply below 10 items."""
