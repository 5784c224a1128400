"""Tables of the nodes: their activity, runs of the doctor, and schema compatibility. Times are epoch milliseconds."""

from sqlalchemy import BigInteger, Column, Index, Text
from sqlmodel import Field

from app.foundation.database.programs import COMPATIBILITY_TABLE
from app.foundation.database.tables import StoreTable

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of latency buckets, of ``node_minute`` and of metrics, in seconds. A last bucket counts slower calls."""


class NodeMinuteRow(StoreTable, table=True):
    """The activity of one node in one minute."""

    __table_args__ = (Index(None, "minute"),)

    node: str = Field(primary_key=True)
    """The host, and the port at which it listens."""
    role: str = Field(primary_key=True)
    """service or worker (``activity.ProcessRole``)."""
    minute: int = Field(primary_key=True, sa_type=BigInteger)
    """The beginning of the minute."""
    seen_at: int = Field(sa_type=BigInteger)
    """The last heartbeat of one of its processes."""
    version: str
    allowed: int = Field(default=0, sa_type=BigInteger)
    denied: int = Field(default=0, sa_type=BigInteger)
    errors: int = Field(default=0, sa_type=BigInteger)
    # Calls in each latency bucket, as columns, so that processes can add to them.
    calls_0: int = Field(default=0, sa_type=BigInteger)
    calls_1: int = Field(default=0, sa_type=BigInteger)
    calls_2: int = Field(default=0, sa_type=BigInteger)
    calls_3: int = Field(default=0, sa_type=BigInteger)
    calls_4: int = Field(default=0, sa_type=BigInteger)
    calls_5: int = Field(default=0, sa_type=BigInteger)
    calls_6: int = Field(default=0, sa_type=BigInteger)
    calls_7: int = Field(default=0, sa_type=BigInteger)
    calls_8: int = Field(default=0, sa_type=BigInteger)
    calls_9: int = Field(default=0, sa_type=BigInteger)
    calls_10: int = Field(default=0, sa_type=BigInteger)
    calls_11: int = Field(default=0, sa_type=BigInteger)
    calls_12: int = Field(default=0, sa_type=BigInteger)


class ExaminationRow(StoreTable, table=True):
    """A run of the doctor that was started in the console."""

    examination_id: int | None = Field(default=None, primary_key=True)
    slot: int | None = Field(default=None, unique=True)
    """1 while it runs: the unique constraint allows one at a time over all nodes."""
    asked_by: str
    node: str
    """The node that runs it."""
    started_at: int = Field(sa_type=BigInteger)
    finished_at: int | None = Field(default=None, sa_type=BigInteger, nullable=True)
    outcome: str
    """``running``, ``done``, or the reason for which it ended early."""
    findings: str = Field(sa_column=Column(Text, nullable=False))
    """The findings so far, as a JSON list."""


class SchemaCompatibilityRow(StoreTable, table=True):
    """One row: the oldest revision whose software can use the database. Each upgrade writes it."""

    __tablename__ = COMPATIBILITY_TABLE

    oldest_revision: str = Field(primary_key=True)
