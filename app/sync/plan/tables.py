"""The tables of stored plans.

A plan has items, and for pages three summaries, so that a page reads a few rows of a plan of any size: the parts (runs
of similar neighbouring items, one row each), the number of affected users per organization, and for a dry run the
changes of access.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


class PlanRow(StoreTable, table=True):
    """A plan, made from one revision of the access model and one of the ledger."""

    plan_id: str = Field(primary_key=True)
    ledger_id: int
    revision: int = Field(sa_type=BigInteger)
    ledger_revision: int = Field(sa_type=BigInteger)
    plan_hash: str
    created_at: int = Field(sa_type=BigInteger)
    organization_ids: str = "[]"
    """Its selection as a JSON list. Empty means all."""
    user_ids: str = "[]"
    limits: str = "[]"
    """Its holds: a JSON list of {kind, organizationId, deletes, below, ledger, limit, allowed, reason}. ``below``: the
    items of other kinds that the deletes cover; ``ledger``: the items of the kind in the ledger."""


class PlanItemRow(StoreTable, table=True):
    """One operation on one item. Items are applied in the order of ``ordinal``."""

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
    """The operation of the contract, such as ``add_users``."""
    scope: str
    """The parameters that the items of a call share, as a JSON list (``app.sync.plan.rules.CallScope``)."""
    digest: str = ""
    parent_id: str = ""
    access_type: str = ""
    access_role: str = ""
    disabled: bool = False
    payload: str = ""
    """The fields to send as JSON. Empty if the operation sends none."""
    reason: str
    """Why it is necessary, in one sentence."""
    covered_by: int | None = Field(default=None, sa_type=BigInteger)
    """The ordinal of the delete that includes this delete."""
    in_force: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Of adds of items that the ledger does not contain: the access type in force, which is sent if the item exists."""
    was: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """Of updates of confirmed items: the former state as JSON with accessRole, accessType, disabled, parentId and, if
    the fields differ, ``fields`` (null: unknown). Otherwise empty."""
    status: str = "planned"
    """A value of ``app.sync.ledger.items.ItemStatus``."""
    message: str = ""


class PlanPartRow(StoreTable, table=True):
    """Neighbouring items of a plan that are alike: a row for all of them, and one for each organization."""

    plan_id: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    """Empty for the items of all organizations. Items that are organizations have no other row."""
    first_ordinal: int = Field(primary_key=True, sa_type=BigInteger)
    last_ordinal: int = Field(sa_type=BigInteger)
    phase: int
    kind: str
    action: str
    operation: str
    items: int = Field(sa_type=BigInteger)


class PlanImpactRow(StoreTable, table=True):
    """The users of an organization that a plan affects. See ``app.sync.plan.summary``."""

    __table_args__ = (Index(None, "plan_id", "people"),)

    plan_id: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    gain: int = Field(sa_type=BigInteger)
    """Users who only gain access."""
    lose: int = Field(sa_type=BigInteger)
    """Users who only lose access."""
    change: int = Field(sa_type=BigInteger)
    """All others: they gain and lose access, or it changes."""
    people: int = Field(sa_type=BigInteger)
    """The total."""


class PlanAccessRow(StoreTable, table=True):
    """A change of access that a dry run found. See ``app.sync.plan.access_impact.StoredAccessChange``."""

    plan_id: str = Field(primary_key=True)
    ordinal: int = Field(primary_key=True, sa_type=BigInteger)
    organization_id: str
    kind: str
    before: str
    """The role before. Empty for no access."""
    after: str
    users: int = Field(sa_type=BigInteger)
    resources: int = Field(sa_type=BigInteger)
    pairs: int = Field(sa_type=BigInteger)
    user_ids: str
    """A JSON list."""
    resource_ids: str
    """A JSON list."""
    names: str
    """The names of the first users and resources, and the causes, as JSON."""
