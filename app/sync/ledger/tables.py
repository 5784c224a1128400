"""The tables of the ledger and of the journal of calls.

The columns of an item: ``kind``, ``organization_id``, ``container_id`` and ``item_id`` identify it
(``app.sync.ledger.items``). ``digest`` (of its fields), ``parent_id`` (the folder above; empty at the top),
``access_type`` (empty: inherited), ``access_role`` and ``disabled`` describe it. Columns that do not apply to a kind
are empty. Times are epoch milliseconds.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.foundation.database.tables import StoreTable, index_of_rows


class LedgerRow(StoreTable, table=True):
    """One backend: a base URL and an API key."""

    __table_args__ = (Index(None, "base_url", "api_key_digest", unique=True),)

    ledger_id: int | None = Field(default=None, primary_key=True)
    base_url: str
    api_key_digest: str
    """SHA-256 of the API key."""
    ledger_revision: int = Field(default=0, sa_type=BigInteger)
    """Incremented with every change of the ledger's items."""
    created_at: int = Field(sa_type=BigInteger)
    verified_at: int | None = Field(default=None, sa_type=BigInteger)
    """When the last complete verify ended. If None, the next run begins with one."""
    looked_at: int | None = Field(default=None, sa_type=BigInteger)
    """When the last verify ended, complete or not."""
    findings: str = Field(default="{}", sa_column_kwargs={"server_default": "{}"})
    """Its findings as JSON: missing, changed, adopted, … → number of items."""


class _OfItem(StoreTable):
    """The columns of all tables about items of a ledger."""

    ledger_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)


class LedgerItemRow(_OfItem, table=True):
    """An item that the backend accepted from Usher. Other items are never deleted."""

    __table_args__ = (
        Index(None, "ledger_id", "kind", "item_id"),
        Index(None, "ledger_id", "organization_id", "kind", "parent_id"),
        index_of_rows("ix_ledger_item_gone", "ledger_id", "gone_at", where="gone_at IS NOT NULL"),
        index_of_rows("ix_ledger_item_unconfirmed", "ledger_id", where="NOT certain"),
    )

    digest: str
    parent_id: str = ""
    access_type: str = ""
    access_role: str = ""
    disabled: bool = False
    certain: bool = True
    """Whether it is confirmed. If not, the next plan sends it again."""
    gone_at: int | None = Field(default=None, sa_type=BigInteger)
    """When a plan first found it gone from the directory, which began its grace period."""


class DeletedItemRow(_OfItem, table=True):
    """An item that the backend reported as deleted, until a complete verify has checked it.

    Without this table, an item that exists in spite of the report would count as foreign and stay for ever. In return,
    an item that another system adds under the same key before the verify counts as ours and is deleted, within the
    limits."""

    __table_args__ = (Index(None, "ledger_id", "kind", "item_id"),)


class ItemFailureRow(_OfItem, table=True):
    """The failures in a row of writing or deleting an item, and when it is retried."""

    __table_args__ = (
        # The list of failures, and the list for one message.
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

    deleting: bool = Field(primary_key=True)
    fingerprint: str
    """The state that was to be set. An item with another fingerprint is tried at once."""
    failures: int
    retry_at: int = Field(sa_type=BigInteger)
    parked: bool = False
    message: str
    message_digest: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """The first 32 digits of its SHA-256, because messages may be too long for an index."""
    failing_since: int | None = Field(default=None, sa_type=BigInteger)
    """When the first of these failures happened. None if unknown."""


class UnsupportedItemRow(StoreTable, table=True):
    """An item to send once the backend supports the operation. See ``app.sync.apply.capabilities``."""

    __tablename__ = "untold_item"

    ledger_id: int = Field(primary_key=True)
    operation: str = Field(primary_key=True)
    plain: bool = Field(primary_key=True)
    """Whether it was sent without its role or access type."""
    kind: str = Field(primary_key=True)
    organization_id: str = Field(primary_key=True)
    container_id: str = Field(primary_key=True)
    item_id: str = Field(primary_key=True)


class DiscardedItemRow(_OfItem, table=True):
    """A held delete that an operator discarded. See ``app.sync.plan.discards``."""

    fingerprint: str
    """The effect of the delete. A delete with another one is due."""
    run_id: str
    message: str
    """When, by whom and why."""


class CallRow(StoreTable, table=True):
    """A call in the journal, recorded before it is sent and settled after its answer."""

    __table_args__ = (Index(None, "settled_at"), Index(None, "plan_id", "first_ordinal"))

    call_id: int | None = Field(default=None, primary_key=True)
    run_id: str
    plan_id: str
    ledger_id: int
    operation: str
    ordinals: str
    """Its items, as a JSON list."""
    first_ordinal: int = Field(default=0, sa_column_kwargs={"server_default": "0"}, sa_type=BigInteger)
    """The lowest of them, by which the call of an item is found."""
    code: int | None = None
    """The HTTP status of the last refusal, or else of the last answer. None without an answer."""
    tries: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    """The number of requests, with the further calls that a refusal caused."""
    answer: str = Field(default="", sa_column_kwargs={"server_default": ""})
    """If something was not done: the beginning of that answer without secrets, or why there is none."""
    sent_at: int = Field(sa_type=BigInteger)
    settled_at: int | None = Field(default=None, sa_type=BigInteger)


class ObservedItemRow(_OfItem, table=True):
    """An item that a verify has read from the backend, until it is compared with the ledger."""

    parent_id: str = ""
    access_type: str = ""
    access_role: str = ""
    disabled: bool = False
    payload: str = "{}"
    """Its fields as JSON."""
    known: str = ""
    """The attributes that the backend returned. See ``app.sync.ledger.observed.Observed``."""


VERIFIED_TABLES = tuple(row.__table__ for row in (LedgerRow, LedgerItemRow, DeletedItemRow, ObservedItemRow))
"""The tables that a verify changes."""
