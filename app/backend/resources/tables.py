"""Tables of organizations and their contents.

Every primary key begins with the API key, so that tenants are separate. An absent id is stored as the empty string.
``payload`` contains names and metadata as JSON. Times are epoch milliseconds in UTC. On SQLite the tables are ``WITHOUT
ROWID``, so that reading a range of the primary key needs no second lookup.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from app.backend.storage.base import CLUSTERED, ScopedTable


class OrganizationRow(ScopedTable, table=True):
    __table_args__ = (CLUSTERED,)

    disabled: bool
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class FolderRow(ScopedTable, table=True):
    """``ancestors`` is a JSON list of folder ids, the topmost first. It, ``depth`` and ``access_type`` are derived."""

    __table_args__ = (Index(None, "api_key_id", "organization_id", "parent_folder_id"), CLUSTERED)

    folder_id: str = Field(primary_key=True)
    parent_folder_id: str = ""
    ancestors: str
    depth: int
    own_access_type: str | None = None
    """None: inherited."""
    access_type: str
    """The effective access type."""
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class DocumentRow(ScopedTable, table=True):
    __table_args__ = (Index(None, "api_key_id", "organization_id", "folder_id", "document_id"), CLUSTERED)

    document_id: str = Field(primary_key=True)
    folder_id: str = ""
    own_access_type: str | None = None
    """None: inherited from the folder."""
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class UserEntryRow(ScopedTable, table=True):
    """A user on the organization (with an empty ``container_id``), a folder or a document."""

    __table_args__ = (Index(None, "api_key_id", "user_id", "organization_id", "level", "container_id"), CLUSTERED)

    level: str = Field(primary_key=True)
    """``organization``, ``folder`` or ``document``."""
    container_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    access_role: str
    expires_at: int | None = Field(default=None, sa_type=BigInteger)
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class UserGroupRow(ScopedTable, table=True):
    __table_args__ = (CLUSTERED,)

    group_id: str = Field(primary_key=True)
    payload: str
    created_at: int = Field(sa_type=BigInteger)
    updated_at: int = Field(sa_type=BigInteger)


class GroupMemberRow(ScopedTable, table=True):
    __table_args__ = (Index(None, "api_key_id", "organization_id", "user_id"), CLUSTERED)

    group_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    created_at: int = Field(sa_type=BigInteger)


class RemovedUserRow(ScopedTable, table=True):
    """A user who was removed from something in the organization, and not added to the organization since."""

    __table_args__ = (CLUSTERED,)

    user_id: str = Field(primary_key=True)


ORGANIZATION = OrganizationRow.__table__
FOLDER = FolderRow.__table__
DOCUMENT = DocumentRow.__table__
USER_ENTRY = UserEntryRow.__table__
USER_GROUP = UserGroupRow.__table__
GROUP_MEMBER = GroupMemberRow.__table__
REMOVED_USER = RemovedUserRow.__table__
