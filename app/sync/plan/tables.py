"""The tables beside those of plans: their parts, and whom they affect.

Both are written with the plan, so that pages which show a plan of any size read a few rows.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class PlanPartRow(StoreTable, table=True):
    """Items of a plan that stand next to each other and are alike: one row for all of them, and one for each
    organization among them."""

    __tablename__ = "plan_part"

    plan_id: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    """Empty: the items of all organizations. Items that are organizations are not told apart."""
    first_ordinal: int = Field(primary_key=True, sa_type=BigInteger)
    last_ordinal: int = Field(sa_type=BigInteger)
    phase: int
    kind: str
    action: str
    operation: str
    items: int = Field(sa_type=BigInteger)


class PlanImpactRow(StoreTable, table=True):
    """How many people of one organization a plan affects, each counted once; see ``app.sync.plan.impact``."""

    __tablename__ = "plan_impact"
    __table_args__ = (Index(None, "plan_id", "people"),)

    plan_id: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    gain: int = Field(sa_type=BigInteger)
    lose: int = Field(sa_type=BigInteger)
    change: int = Field(sa_type=BigInteger)
    people: int = Field(sa_type=BigInteger)
    """All of them together."""
