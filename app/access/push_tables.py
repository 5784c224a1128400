"""The tables of pushes: how far each source's have come, what reads must leave alone, and what a sync has to follow.

The rules: ``app/service/push/README.md``.
"""

from sqlalchemy import BigInteger
from sqlmodel import Field

from app.access.tables import KEYED
from app.foundation.database.tables import StoreTable


class DirectoryPushRow(StoreTable, table=True):
    """How far the pushes to one source have come; there from the first push on."""

    __tablename__ = "directory_push"

    source_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    sequence: int = Field(sa_type=BigInteger)
    """That of the last push that was applied."""
    answer: str
    """What was answered to it, as JSON: who did not get the answer asks again, and is answered the same."""
    pushed_at: int = Field(sa_type=BigInteger)
    """When it was applied, in epoch milliseconds."""
    pushed_by: str
    """The fingerprint of the token that was shown."""
    pushes: int = Field(sa_type=BigInteger)
    """How many were applied, ever."""
    digests: str = Field(default="[]", sa_column_kwargs={"server_default": "[]"})
    """The sequences of the latest pushes with digests of their content, as a JSON list of pairs."""


class PushedKeyRow(StoreTable, table=True):
    """A key that was pushed or removed since the last complete read of its source."""

    __tablename__ = "pushed_key"
    __table_args__ = (KEYED,)

    source_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    key_digest: str = Field(primary_key=True)
    """BLAKE2b-128 of ``key``: the key itself may be too long for an index."""
    key: str
    """The key's ids as a JSON list, in the order of the columns of its table."""
    read_number: int = Field(sa_type=BigInteger)
    """How many reads of the source had begun: those up to this number do not know of the push."""


class TouchedRow(StoreTable, table=True):
    """An organization, or a user, that changed between two syncs, until a run that is about it is queued."""

    __tablename__ = "touched"
    __table_args__ = (KEYED,)

    sort: str = Field(primary_key=True)
    """``organization`` or ``user``."""
    item_id: str = Field(primary_key=True)
    since: int = Field(sa_type=BigInteger)
    """When it changed first, in epoch milliseconds."""
