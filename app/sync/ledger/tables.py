"""The tables of the ledger and of the journal of calls.

The columns of an item: ``kind``, ``organization_id``, ``container_id`` and ``item_id`` identify it
(``app.sync.ledger.items``). ``digest`` (of its fields), ``parent_id`` (the folder above; empty at the top),
``access_type`` (empty: inherited), ``access_role`` and ``disabled`` describe it. Columns that do not apply to a kind
are empty. Times are epoch milliseconds.
"""

from sqlalchemy import BigInteger, Index, text
from sqlmodel import Field

from app.foundation.database.tables import StoreTable


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
