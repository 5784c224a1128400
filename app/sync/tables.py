"""The tables of synchronization: the ledger, plans, runs and the journal of calls.

An *item* is one thing in the backend, identified by ``(kind, organization_id, container_id, item_id)``:

========================  ==================  ==============
kind                      container_id        item_id
========================  ==================  ==============
organization              (empty)             organization
folder, document, group   (empty)             its own id
organizationUser          (empty)             user
folderUser                folder              user
documentUser              document            user
groupMember               group               user
========================  ==================  ==============

What it should be, or was last accepted as, stands in the same columns everywhere: ``digest`` (of the payload),
``parent_id`` (the folder above; empty at the top), ``access_type`` (empty: inherited), ``access_role``, ``disabled``.
Columns that do not apply to a kind are empty. Times are epoch milliseconds, UTC.
"""

from sqlalchemy import BigInteger, Index, false, text
from sqlmodel import Field

from app.foundation.database.tables import StoreTable

ITEM_KINDS = (
    "organization",
    "folder",
    "document",
    "group",
    "organizationUser",
    "folderUser",
    "documentUser",
    "groupMember",
)
"""What an item can be."""


class LedgerRow(StoreTable, table=True):
    """One backend that Usher keeps in step: a base URL and an API key."""

    __tablename__ = "ledger"
    __table_args__ = (Index(None, "base_url", "api_key_digest", unique=True),)

    ledger_id: int | None = Field(default=None, primary_key=True)
    base_url: str
    api_key_digest: str
    """SHA-256 of the API key: tells keys apart without keeping one."""
    ledger_revision: int = Field(default=0, sa_type=BigInteger)
    """Moves on by one with every change of the ledger's items."""
    created_at: int = Field(sa_type=BigInteger)
    verified_at: int | None = Field(default=None, sa_type=BigInteger)
    """When a whole verify last ended; none yet: the next run begins with one."""
    looked_at: int | None = Field(default=None, sa_type=BigInteger)
    """When the backend was last read back, as a whole or in part."""
    findings: str = Field(default="{}", sa_column_kwargs={"server_default": "{}"})
    """What that found, as JSON: missing, changed, adopted, … → how many items."""


class LedgerItemRow(StoreTable, table=True):
    """What the backend holds of ours, as it last accepted it. Nothing that is not here is ever deleted there."""

    __tablename__ = "ledger_item"
    __table_args__ = (
        Index(None, "ledger_id", "kind", "item_id"),
        Index(None, "ledger_id", "organization_id", "kind", "parent_id"),
        Index(
            "ix_ledger_item_gone",
            "ledger_id",
            "gone_at",
            sqlite_where=text("gone_at IS NOT NULL"),
            postgresql_where=text("gone_at IS NOT NULL"),
        ),
    )

    ledger_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)
    digest: str
    parent_id: str = ""
    access_type: str = ""
    access_role: str = ""
    disabled: bool = False
    certain: bool = True
    """False while a call about it was sent and its outcome is not known: the next plan sends it again."""
    gone_at: int | None = Field(default=None, sa_type=BigInteger)
    """When a plan first found that the directory no longer wants it; where the grace period starts."""


class DeletedItemRow(StoreTable, table=True):
    """What was ours and the backend said is deleted, until a verify has looked: a backend may lose what it confirmed.

    Without it such an item would be taken for somebody else's, and whoever was to be thrown out would stay for ever.
    The price: what somebody else adds under the very same key before that verify is taken for ours, and deleted within
    the limits. That is the safer side: the directory does not want it, the key is one that it gave out itself, and who
    was let in on purpose can be let in again, while nobody would ever look for who was never thrown out. It can happen
    once for each delete, because the verify forgets the key, whatever it found.

    The table holds no more than what was deleted since the last whole verify.
    """

    __tablename__ = "deleted_item"
    __table_args__ = (Index(None, "ledger_id", "kind", "item_id"),)

    ledger_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)


class ItemFailureRow(StoreTable, table=True):
    """How often writing (``add``, ``update``) or deleting an item failed in a row, and when to try again."""

    __tablename__ = "item_failure"
    __table_args__ = (
        # What is listed, and what is listed of one message: each a range, in the order of the list.
        Index(
            "ix_item_failure_listed",
            *("ledger_id", "parked", "kind", "organization_id", "container_id", "item_id", "deleting"),
        ),
        Index(
            "ix_item_failure_alike",
            *("ledger_id", "parked", "message_digest"),
            *("kind", "organization_id", "container_id", "item_id", "deleting"),
        ),
    )

    ledger_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)
    deleting: bool = Field(primary_key=True)
    fingerprint: str
    """What was tried (digest, parent, access type, role, disabled joined); another one is tried at once."""
    failures: int
    retry_at: int = Field(sa_type=BigInteger)
    parked: bool = False
    message: str
    message_digest: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The first 32 digits of the message's SHA-256: messages may be too long for an index."""
    failing_since: int | None = Field(default=None, sa_type=BigInteger)
    """When the first of these failures happened; None: before that was written down."""


class UnsupportedItemRow(StoreTable, table=True):
    """What the backend was not told for want of an operation; see ``app.sync.ledger.unsupported``."""

    __tablename__ = "untold_item"

    ledger_id: int = Field(primary_key=True)
    operation: str = Field(primary_key=True)
    plain: bool = Field(primary_key=True)
    """Whether it was told, but not its role or access type, for want of the path that takes them."""
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)


class DiscardedItemRow(StoreTable, table=True):
    """A delete that was held and that somebody discarded; see ``app.sync.plan.discards``."""

    __tablename__ = "discarded_item"

    ledger_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)
    fingerprint: str
    """What the delete would have done; another one is due."""
    run_id: str
    message: str
    """When, by whom and why, in one sentence."""


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


class RunRow(StoreTable, table=True):
    """One run of the synchronization, from its request to its end."""

    __tablename__ = "run"
    __table_args__ = (Index(None, "status", "requested_at"), Index(None, "requested_at"))

    run_id: str = Field(primary_key=True)
    trigger: str
    """schedule, verify_schedule, resync (HTTP), console, command."""
    asked_by: str | None = None
    """Who asked for it, as far as it is known; None: it came by itself, or before that was written down."""
    asked_reason: str | None = None
    """Why, in their words."""
    status: str
    """queued, reading, planning, applying, done, partial, held, failed, cancelled."""
    dry_run: bool = False
    verify: bool = False
    allow_deletes: bool = False
    retry: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether what waits after a failure, or is parked, is tried now."""
    kinds: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """Of which kinds, as a JSON list; empty: all."""
    organization_ids: str = "[]"
    user_ids: str = "[]"
    ledger_id: int | None = None
    requested_plan_id: str | None = None
    """The stored plan that was asked for; ``plan_id`` is the one that was made or taken."""
    plan_id: str | None = None
    revision: int | None = Field(default=None, sa_type=BigInteger)
    requested_at: int = Field(sa_type=BigInteger)
    started_at: int | None = Field(default=None, sa_type=BigInteger)
    finished_at: int | None = Field(default=None, sa_type=BigInteger)
    held_until: int | None = Field(default=None, sa_type=BigInteger)
    """Until when held deletes can be approved."""
    approved_at: int | None = Field(default=None, sa_type=BigInteger)
    """When someone let the held deletes go; the run is then queued again for exactly those."""
    held_at: int | None = Field(default=None, sa_type=BigInteger)
    """When it ended for the first time, with deletes that wait for somebody's word."""
    resumed_at: int | None = Field(default=None, sa_type=BigInteger)
    """When what was approved was begun; ``started_at`` stays as it was."""
    decision: str | None = None
    """What somebody said about it: approved, discarded (both of held deletes), cancelled."""
    decided_at: int | None = Field(default=None, sa_type=BigInteger)
    decided_by: str | None = None
    """Who said so, as far as it is known: the user of the command line, or which admin token."""
    decision_reason: str | None = None
    cancel_requested: bool = False
    worker: str | None = None
    interrupted: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Whether what ended it had nothing to do with it: another try goes on from there."""
    continued_by: str | None = None
    """The run that went on from there."""
    error: str | None = None
    counts: str = "{}"
    """JSON: kind → action → {planned, done, failed, held, …}, kept up to date with every settled call."""
    calls: int = 0
    """Write calls that were sent."""
    stages: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """When it came into which status, as a JSON list of [status, moment]; empty: before that was written down."""
    items: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """With ``retry``: which items alone, as a JSON list of [kind, organization, container, id]; empty: all."""
    report: str = "{}"
    """JSON: what an operator should know: sources, problems, what could not be told to the backend, what is foreign."""


class RunTallyRow(StoreTable, table=True):
    """How many runs ever ended in a status; runs themselves are forgotten after a while."""

    __tablename__ = "run_tally"

    status: str = Field(primary_key=True)
    runs: int = Field(sa_type=BigInteger)


class RunKeyRow(StoreTable, table=True):
    """Which run an idempotency key stands for: several keys may have been answered with the same queued run."""

    __tablename__ = "run_key"

    idempotency_key: str = Field(primary_key=True)
    run_id: str = Field(index=True)


class CallRow(StoreTable, table=True):
    """The journal: a call is written down before it is sent and settled, with its items, after it is answered."""

    __tablename__ = "call"
    __table_args__ = (Index(None, "settled_at"), Index(None, "plan_id", "first_ordinal"))

    call_id: int | None = Field(default=None, primary_key=True)
    run_id: str
    plan_id: str
    ledger_id: int
    operation: str
    ordinals: str
    """The plan's items that travel in it, as a JSON list."""
    first_ordinal: int = Field(default=0, sa_column_kwargs={"server_default": "0"}, sa_type=BigInteger)
    """The lowest of them: by it the call of an item is found, without a word in each item."""
    code: int | None = None
    """The HTTP status of the answer that says most; None: none came, or none was sent."""
    tries: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """How often something was sent, with the halves and other operations that a refusal made necessary."""
    answer: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The beginning of that answer, or why none came, where something was not done; secrets are masked."""
    sent_at: int = Field(sa_type=BigInteger)
    settled_at: int | None = Field(default=None, sa_type=BigInteger)


class ObservedItemRow(StoreTable, table=True):
    """What a verify saw in the backend: staged here, compared with the ledger in SQL, then thrown away."""

    __tablename__ = "observed_item"

    ledger_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)
    parent_id: str = ""
    access_type: str = ""
    access_role: str = ""
    disabled: bool = False
    payload: str = "{}"
    """The descriptive fields as the backend shows them, as JSON."""
    known: str = ""
    """Which of parent, access type, role and disabled the backend showed: some reads leave them out."""


LEDGER_TABLES = tuple(row.__table__ for row in (LedgerRow, LedgerItemRow, DeletedItemRow, ObservedItemRow))
"""The tables that a verify changes."""
