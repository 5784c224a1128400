"""What processes did minute by minute, examinations by the doctor, and which versions can use the
database. Times are epoch milliseconds, UTC."""

from sqlalchemy import BigInteger, Column, Index, Text
from sqlmodel import Field

from app.foundation.database.programs import COMPATIBILITY_TABLE
from app.foundation.database.tables import StoreTable

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds in seconds of the latency buckets of ``node_minute``; a last bucket holds what took longer."""


class NodeMinuteRow(StoreTable, table=True):
    """What the processes of one node did in one minute."""

    __tablename__ = "node_minute"
    __table_args__ = (Index(None, "minute"),)

    node: str = Field(primary_key=True)
    """The machine's name, and the port at which it listens."""
    role: str = Field(primary_key=True)
    """service or worker."""
    minute: int = Field(primary_key=True, sa_type=BigInteger)
    """When it began."""
    seen_at: int = Field(sa_type=BigInteger)
    """When one of these processes last wrote."""
    version: str
    allowed: int = Field(default=0, sa_type=BigInteger)
    denied: int = Field(default=0, sa_type=BigInteger)
    errors: int = Field(default=0, sa_type=BigInteger)
    # How many calls took at most so long: columns, so that processes can add to them.
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
    """One look of the doctor at everything, asked for at the console."""

    __tablename__ = "examination"

    examination_id: int | None = Field(default=None, primary_key=True)
    slot: int | None = Field(default=None, unique=True)
    """1 while it is under way: there is one at a time, over all nodes."""
    asked_by: str
    node: str
    """Where it runs."""
    started_at: int = Field(sa_type=BigInteger)
    finished_at: int | None = Field(default=None, sa_type=BigInteger, nullable=True)
    outcome: str
    """``running``, ``done``, or why it ended before."""
    findings: str = Field(sa_column=Column(Text, nullable=False))
    """A JSON list of what was found so far."""


class ConsoleSignInRow(StoreTable, table=True):
    """Unused. Nodes of version 1.0 store sign-ins through an issuer here, and go on while an upgrade replaces them."""

    __tablename__ = "console_sign_in"
    __table_args__ = (Index(None, "address", "created_at"),)

    attempt_digest: str = Field(primary_key=True)
    """SHA-256 of the secret that the browser keeps meanwhile."""
    address: str
    back: str
    """The page of the console that they wanted."""
    created_at: int = Field(sa_type=BigInteger)


class SchemaCompatibilityRow(StoreTable, table=True):
    """One row: the oldest revision whose software can use the database. Upgrades write it."""

    __tablename__ = COMPATIBILITY_TABLE

    oldest_revision: str = Field(primary_key=True)
