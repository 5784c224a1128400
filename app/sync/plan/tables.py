"""The tables of stored plans, and the temporary tables with which a plan is made.

A plan has items, and for pages three summaries, so that a page reads a few rows of a plan of any size: the parts (runs
of similar neighbouring items, one row each), the number of affected users per organization, and for a dry run the
changes of access.
"""

from collections.abc import Mapping

from sqlalchemy import BigInteger, Connection, Index
from sqlmodel import Field

from app.foundation.database.engine import is_sqlite
from app.foundation.database.statements import run
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
    """The users of an organization that a plan affects. See ``app.sync.plan.user_impact``."""

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
    """A change of access that a dry run found. See ``app.sync.plan.stored_access``."""

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


_ITEM = "kind TEXT NOT NULL, organization_id TEXT NOT NULL, container_id TEXT NOT NULL, item_id TEXT NOT NULL"
_STATE = """digest TEXT NOT NULL, parent_id TEXT NOT NULL, access_type TEXT NOT NULL, access_role TEXT NOT NULL,
  disabled BOOLEAN NOT NULL"""
_PLACE = "kind TEXT NOT NULL, organization_id TEXT NOT NULL, item_id TEXT NOT NULL"
_BY_ITEM = "PRIMARY KEY (kind, organization_id, container_id, item_id)"
_BY_PLACE = "PRIMARY KEY (kind, organization_id, item_id)"

_TEMPORARY: Mapping[str, str] = {
    # What the backend should contain: ``app.sync.plan.desired``.
    "desired": f"""({_ITEM}, {_STATE},
      depth INTEGER NOT NULL, in_force TEXT NOT NULL, via TEXT NOT NULL, {_BY_ITEM}) @keyed""",
    "container": f"({_ITEM}, {_BY_ITEM}) @keyed",
    # The scope of a plan of changes: ``app.sync.plan.scope``.
    "unsettled": f"({_ITEM}, {_BY_ITEM}) @keyed",
    "touched_user": "(user_id TEXT NOT NULL PRIMARY KEY) @keyed",
    "touched_container": f"({_PLACE}, {_BY_PLACE}) @keyed",
    # Groups whose members are all needed: they are touched, or have a grant on a touched container.
    "touched_group": """(organization_id TEXT NOT NULL, item_id TEXT NOT NULL,
      PRIMARY KEY (organization_id, item_id)) @keyed""",
    # The items of the ledger in scope.
    "touched_item": f"({_ITEM}, {_BY_ITEM}) @keyed",
    # The folders and documents of all items in scope, and the folders above them.
    "place": f"({_PLACE}, {_BY_PLACE}) @keyed",
    "place_folder": """(organization_id TEXT NOT NULL, parent_folder_id TEXT NOT NULL, folder_id TEXT NOT NULL,
      access_type TEXT NOT NULL, PRIMARY KEY (organization_id, parent_folder_id, folder_id)) @keyed""",
    # Items that differ from the ledger, and the rules that make plan items of them: ``app.sync.plan.differences``.
    "diff": f"""({_ITEM}, aspects INTEGER NOT NULL, depth INTEGER NOT NULL, {_STATE}, via TEXT NOT NULL,
      cover_kind TEXT NOT NULL, cover_id TEXT NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL, why TEXT NOT NULL,
      {_BY_ITEM}) @keyed""",
    "rule": """(kind TEXT NOT NULL, aspect INTEGER NOT NULL, action TEXT NOT NULL, phase INTEGER NOT NULL,
      operation TEXT NOT NULL, scope_form TEXT NOT NULL, sentence TEXT NOT NULL, sends_payload BOOLEAN NOT NULL,
      PRIMARY KEY (kind, aspect)) @keyed""",
    "ordered_diff": f"(ordinal @ordinal, {_ITEM}, aspect INTEGER NOT NULL, scope TEXT NOT NULL) @brief",
    # Deletes by kind and organization: ``app.sync.plan.limits``.
    "tally": """(kind TEXT NOT NULL, organization_id TEXT NOT NULL, own INTEGER NOT NULL, below INTEGER NOT NULL,
      ledger BIGINT, exceeded TEXT NOT NULL, held_kind TEXT NOT NULL, held_items INTEGER NOT NULL, reason TEXT NOT NULL,
      PRIMARY KEY (kind, organization_id)) @keyed""",
    "covered_pair": """(kind TEXT NOT NULL, organization_id TEXT NOT NULL, cover_kind TEXT NOT NULL,
      cover_organization_id TEXT NOT NULL, items INTEGER NOT NULL,
      PRIMARY KEY (kind, organization_id, cover_kind)) @keyed""",
}


_ANALYZE_FROM = 1_000


def create_temporary(connection: Connection, *names: str) -> None:
    """Creates temporary tables of planning, empty."""
    for name in names:
        run(connection, f"CREATE TEMPORARY TABLE {name} {_TEMPORARY[name]}")


def analyze(connection: Connection, table: str, *, rows: int = _ANALYZE_FROM) -> None:
    """Collects the statistics of a table on PostgreSQL, unless fewer than 1,000 ``rows`` were added to it.

    Without them, PostgreSQL expects one row of each kind, joins by organization, and compares all pairs."""
    if rows >= _ANALYZE_FROM and not is_sqlite(connection):
        run(connection, f"ANALYZE {table}")


def drop_temporary(connection: Connection) -> None:
    """Drops the temporary tables of planning that exist."""
    for name in _TEMPORARY:
        run(connection, f"DROP TABLE IF EXISTS {name}")
