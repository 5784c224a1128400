"""The table of workers: their signs of life."""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class WorkerRow(StoreTable, table=True):
    """A worker that has not said goodbye. Times are epoch milliseconds."""

    __tablename__ = "worker"

    worker_id: str = Field(primary_key=True)
    """Random: in a container every worker may have the same name."""
    name: str
    """Machine and process id, for people."""
    started_at: int = Field(sa_type=BigInteger)
    seen_at: int = Field(sa_type=BigInteger)
    """Its last sign of life."""
    leads: bool = False
    """Whether it held the right to synchronize then."""
