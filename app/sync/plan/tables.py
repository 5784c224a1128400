"""The tables of plans: plans, their items, their parts, and how many users they affect.

Parts and impact are written with the plan, so that pages read a few rows of a plan of any size.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class PlanRow(StoreTable, table=True):
    """A frozen plan: made from one revision of the access model and one of the ledger, at one moment."""

    __tablename__ = "plan"

    plan_id: str = Field(primary_key=True)
    ledger_id: int
    revision: int = Field(sa_type=BigInteger)
    ledger_revision: int = Field(sa_type=BigInteger)
    plan_hash: str
    created_at: int = Field(sa_type=BigInteger)
    organization_ids: str = "[]"
    """What it was narrowed to, as a JSON list; empty: everything."""
    user_ids: str = "[]"
    limits: str = "[]"
    """The numbers behind what was held: JSON list of {kind, organizationId, deletes, ledger, reason}."""


class PlanItemRow(StoreTable, table=True):
    """One operation on one item; ``ordinal`` is the order in which a plan is applied."""

    __tablename__ = "plan_item"
    __table_args__ = (
        Index(None, "plan_id", "status", "ordinal"),
        Index(None, "plan_id", "kind", "organization_id", "container_id", "item_id"),
        Index(None, "plan_id", "covered_by"),
        Index(None, "plan_id", "item_id", "ordinal"),
    )

    plan_id: str = Field(primary_key=True)
    ordinal: int = Field(primary_key=True, sa_type=BigInteger)
    phase: int
    action: str
    """``add``, ``update`` or ``delete``."""
    kind: str
    organization_id: str
    container_id: str
    item_id: str
    operation: str
    """The name of the contract's operation, as ``add_users``."""
    scope: str
    """Items next to each other with the same phase, operation and scope share a call: a JSON list of what the call
    itself carries beside its items (organization, container, folder, access type, disabled)."""
    digest: str = ""
    parent_id: str = ""
    access_type: str = ""
    access_role: str = ""
    disabled: bool = False
    payload: str = ""
    """The record's descriptive fields as JSON; empty where the operation needs none."""
    reason: str
    """Which record brought it about, in one short sentence."""
    covered_by: int | None = Field(default=None, sa_type=BigInteger)
    """The ordinal of the delete in whose call this delete is contained."""
    in_force: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Of an add of what the ledger does not know at all: the access type in force there (of an organization: for what
    is in it). Should the thing be there already, it is told all that it is to be."""
    was: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Of an update of what is confirmed: what it knew when planned, as JSON with accessRole, accessType,
    disabled, parentId and, where the fields differ, ``fields`` (null: not known). Otherwise empty."""
    status: str = "planned"
    """planned, done, failed, held (limits), discarded (was held, and somebody said no), waiting (grace, or a pause
    after a failure), parked, skipped, cancelled."""
    message: str = ""


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
