"""The tables of the access model: one for each kind of record, as of the current revision.

For each key they contain what the most authoritative source provides, whether or not the record is effective: what a
record refers to may be missing. ``source_id`` is that source. Only ``app.access.effective`` and the merge may read them
without checking references.

Absent ids are stored as the empty string, so that they can be part of primary keys and compare by ``=``; no real id is
empty. ``payload`` contains the record's descriptive fields, including unknown ones, as canonical JSON (sorted keys, no
spaces). ``digest`` is a hash of it, so that planning need not parse it. Times are epoch milliseconds, UTC.
"""

from sqlalchemy import BigInteger, Column, Index, String, text
from sqlmodel import Field

from app.foundation.database.tables import StoreTable

KEYED = {"sqlite_with_rowid": False}
"""SQLite stores the rows in the primary key itself: half the size, and one lookup instead of two."""


ZERO = {"server_default": "0"}


class ModelOrganizationRow(StoreTable, table=True):
    """``payload``: organizationId, organizationName and extra fields."""

    __tablename__ = "model_organization"

    organization_id: str = Field(primary_key=True)
    access_type: str
    disabled: bool
    payload: str
    digest: str
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelUserRow(StoreTable, table=True):
    """``payload``: userId, name, email, initial if present, and extra fields."""

    __tablename__ = "model_user"
    __table_args__ = (KEYED,)

    user_id: str = Field(primary_key=True)
    disabled: bool
    payload: str
    digest: str
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelUserAliasRow(StoreTable, table=True):
    """An alias of a user, case-folded. Records cannot refer to a user by an alias of several users."""

    __tablename__ = "model_user_alias"
    __table_args__ = (Index(None, "user_id"), KEYED)

    alias: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)


class ModelMembershipRow(StoreTable, table=True):
    __tablename__ = "model_membership"
    __table_args__ = (Index(None, "user_id", "organization_id"), KEYED)

    organization_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    access_role: str
    expires_at: int | None = Field(default=None, sa_type=BigInteger)
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelGroupRow(StoreTable, table=True):
    """``payload``: organizationUserGroupId, groupName and extra fields."""

    __tablename__ = "model_group"

    organization_id: str = Field(primary_key=True)
    organization_user_group_id: str = Field(primary_key=True)
    payload: str
    digest: str
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelGroupMemberRow(StoreTable, table=True):
    """A user (``member_group_id`` empty) or another group (``user_id`` empty) in a group."""

    __tablename__ = "model_group_member"
    __table_args__ = (
        Index(None, "organization_id", "user_id", "organization_user_group_id"),
        Index(None, "organization_id", "member_group_id", "organization_user_group_id"),
        Index(None, "user_id", "organization_id"),
        KEYED,
    )

    organization_id: str = Field(primary_key=True)
    organization_user_group_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    member_group_id: str = Field(primary_key=True)
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelFolderRow(StoreTable, table=True):
    """``payload``: folderId, folderName and extra fields. ``access_type`` is empty if it is inherited."""

    __tablename__ = "model_folder"
    __table_args__ = (Index("ix_model_folder_within", "organization_id", "parent_folder_id", "folder_id"), KEYED)

    organization_id: str = Field(primary_key=True)
    folder_id: str = Field(primary_key=True)
    parent_folder_id: str
    access_type: str
    payload: str
    digest: str
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelDocumentRow(StoreTable, table=True):
    """``payload``: documentId, documentName and extra fields. ``access_type`` is empty if it is inherited."""

    __tablename__ = "model_document"
    __table_args__ = (Index("ix_model_document_within", "organization_id", "folder_id", "document_id"), KEYED)

    organization_id: str = Field(primary_key=True)
    document_id: str = Field(primary_key=True)
    folder_id: str
    access_type: str
    payload: str
    digest: str
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelGrantRow(StoreTable, table=True):
    """On a folder or a document (the other id is empty), to a user or a group (the other id is empty)."""

    __tablename__ = "model_grant"
    __table_args__ = (
        # Covers the queries for a user's grants, so that they do not read the table.
        Index(None, "user_id", "organization_id", "folder_id", "document_id", "access_role", "expires_at"),
        # There are far fewer grants to groups than to users. Pages list those of a group by folder and document,
        Index(
            "ix_model_grant_to_group",
            "organization_id",
            "organization_user_group_id",
            "folder_id",
            "document_id",
            sqlite_where=text("user_id = ''"),
            postgresql_where=text("user_id = ''"),
        ),
        # and decisions look up those on one folder or document.
        Index(
            "ix_model_grant_of_groups",
            "organization_id",
            "folder_id",
            "document_id",
            "organization_user_group_id",
            "access_role",
            "expires_at",
            sqlite_where=text("user_id = ''"),
            postgresql_where=text("user_id = ''"),
        ),
        KEYED,
    )

    organization_id: str = Field(primary_key=True)
    folder_id: str = Field(primary_key=True)
    document_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    organization_user_group_id: str = Field(primary_key=True)
    access_role: str
    expires_at: int | None = Field(default=None, sa_type=BigInteger)
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class ModelContextGrantRow(StoreTable, table=True):
    __tablename__ = "model_context_grant"
    __table_args__ = (KEYED,)

    organization_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    organization_user_group_id: str = Field(primary_key=True)
    field: str = Field(primary_key=True)
    value: str = Field(primary_key=True)
    document_id: str = Field(primary_key=True)
    expires_at: int | None = Field(default=None, sa_type=BigInteger)
    source_id: int = Field(default=0, sa_column_kwargs=ZERO)


class FormerPayloadRow(StoreTable, table=True):
    """The payload of a record before it was changed or removed; see ``app.access.refresh.revision``."""

    __tablename__ = "former_payload"
    __table_args__ = (KEYED,)

    kind: str = Field(primary_key=True)
    """organization, user, group, folder or document."""
    organization_id: str = Field(primary_key=True)
    """Empty for organizations themselves and for users."""
    item_id: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    payload: str


class AccessCountRow(StoreTable, table=True):
    """The number of records of a kind in the access model. Refreshes update it by their changes."""

    __tablename__ = "access_count"
    __table_args__ = (KEYED,)

    organization_id: str = Field(primary_key=True)
    """Empty: the total, including users and organizations."""
    kind: str = Field(primary_key=True)
    records: int = Field(sa_type=BigInteger)
    """Never 0 for an organization."""


BYTEWISE = String().with_variant(String(collation="C"), "postgresql")
"""A text that is compared byte by byte, so that texts with the same beginning are one range in any locale."""


class AccessNameRow(StoreTable, table=True):
    """A name by which a record of the access model is found; see ``app.access.search``."""

    __tablename__ = "access_name"
    __table_args__ = (KEYED,)

    kind: str = Field(primary_key=True)
    """organization, user, group, folder or document."""
    name: str = Field(sa_column=Column(BYTEWISE, primary_key=True))
    """Without case and accents, 64 characters at most."""
    organization_id: str = Field(primary_key=True)
    """Empty for organizations themselves and for users."""
    item_id: str = Field(primary_key=True)


class RevisionRow(StoreTable, table=True):
    """The revisions of the access model; the highest one is the current one. No row: never read."""

    __tablename__ = "access_revision"

    revision: int = Field(primary_key=True, sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    changes: str
    """The changes of this revision, as JSON: kind → {added, updated, removed}."""
