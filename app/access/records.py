"""What a directory says: the nine kinds of record that the access model is made of.

Folders, documents and groups are identified within their organization, users across all. A record's ``key`` identifies
it (one record per key), and ``references`` names the records without which it means nothing. Times are aware UTC.
``further`` holds the fields that Usher does not know itself: they travel to the backend as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Literal

Key = tuple[str, ...]
"""The kind, then the ids in a fixed order; an id that does not apply is the empty string."""

NO_FURTHER_FIELDS: Mapping[str, object] = MappingProxyType({})


def _no_further_fields() -> Mapping[str, object]:
    # A dataclass refuses a read-only mapping as a plain default, because it cannot be hashed.
    return NO_FURTHER_FIELDS


class AccessType(StrEnum):
    """To whom a folder or document is open before any grant is looked at."""

    PUBLIC = "public"
    """Any user of the directory."""
    ORGANIZATION_PRIVATE = "organizationPrivate"
    """Members of the organization."""
    RESTRICTED = "restricted"
    """Only those who were let in by name."""


class AccessRole(StrEnum):
    """What someone who was let in may do."""

    VIEWER = "viewer"
    EDITOR = "editor"

    @property
    def rank(self) -> int:
        """How permissive the role is; the larger, the more."""
        return 1 if self is AccessRole.EDITOR else 0


Level = Literal["folder", "document"]
"""Where a grant can stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Organization:
    """An organization; ``access_type`` is what its folders and documents inherit at the top of the tree."""

    kind: ClassVar[str] = "organization"
    organization_id: str
    organization_name: str
    access_type: AccessType = AccessType.ORGANIZATION_PRIVATE
    disabled: bool = False
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)

    @property
    def key(self) -> Key:
        return (self.kind, self.organization_id)

    @property
    def references(self) -> tuple[Key, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person, known across all organizations."""

    kind: ClassVar[str] = "user"
    user_id: str
    name: str
    email: str
    initial: str | None = None
    disabled: bool = False
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)

    @property
    def key(self) -> Key:
        return (self.kind, self.user_id)

    @property
    def references(self) -> tuple[Key, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A user belongs to an organization, with a role, until it expires."""

    kind: ClassVar[str] = "membership"
    organization_id: str
    user_id: str
    access_role: AccessRole = AccessRole.EDITOR
    expires_at: datetime | None = None

    @property
    def key(self) -> Key:
        return (self.kind, self.organization_id, self.user_id)

    @property
    def references(self) -> tuple[Key, ...]:
        return ((Organization.kind, self.organization_id), (User.kind, self.user_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A user group of one organization."""

    kind: ClassVar[str] = "group"
    organization_id: str
    organization_user_group_id: str
    group_name: str
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)

    @property
    def key(self) -> Key:
        return (self.kind, self.organization_id, self.organization_user_group_id)

    @property
    def references(self) -> tuple[Key, ...]:
        return ((Organization.kind, self.organization_id),)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A user, or a whole other group, is in a group: exactly one of ``user_id`` and ``member_group_id`` is given."""

    kind: ClassVar[str] = "groupMember"
    organization_id: str
    organization_user_group_id: str
    user_id: str | None = None
    member_group_id: str | None = None

    @property
    def key(self) -> Key:
        return (
            self.kind,
            self.organization_id,
            self.organization_user_group_id,
            self.user_id or "",
            self.member_group_id or "",
        )

    @property
    def references(self) -> tuple[Key, ...]:
        member = (
            (User.kind, self.user_id)
            if self.user_id is not None
            else (Group.kind, self.organization_id, self.member_group_id or "")
        )
        return ((Group.kind, self.organization_id, self.organization_user_group_id), member)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder; without a type of its own it takes that of the nearest folder above, at last the organization's."""

    kind: ClassVar[str] = "folder"
    organization_id: str
    folder_id: str
    folder_name: str
    parent_folder_id: str | None = None
    access_type: AccessType | None = None
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)

    @property
    def key(self) -> Key:
        return (self.kind, self.organization_id, self.folder_id)

    @property
    def references(self) -> tuple[Key, ...]:
        organization = (Organization.kind, self.organization_id)
        if self.parent_folder_id is None:
            return (organization,)
        return (organization, (self.kind, self.organization_id, self.parent_folder_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document, in a folder or directly in the organization."""

    kind: ClassVar[str] = "document"
    organization_id: str
    document_id: str
    document_name: str
    folder_id: str | None = None
    access_type: AccessType | None = None
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)

    @property
    def key(self) -> Key:
        return (self.kind, self.organization_id, self.document_id)

    @property
    def references(self) -> tuple[Key, ...]:
        organization = (Organization.kind, self.organization_id)
        if self.folder_id is None:
            return (organization,)
        return (organization, (Folder.kind, self.organization_id, self.folder_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A user or a group was let in by name: on a folder and all below it, or on a document.

    Exactly one of ``folder_id`` and ``document_id``, and one of ``user_id`` and ``organization_user_group_id``, is
    given.
    """

    kind: ClassVar[str] = "grant"
    organization_id: str
    folder_id: str | None = None
    document_id: str | None = None
    user_id: str | None = None
    organization_user_group_id: str | None = None
    access_role: AccessRole = AccessRole.EDITOR
    expires_at: datetime | None = None

    @property
    def key(self) -> Key:
        return (
            self.kind,
            self.organization_id,
            self.folder_id or "",
            self.document_id or "",
            self.user_id or "",
            self.organization_user_group_id or "",
        )

    @property
    def references(self) -> tuple[Key, ...]:
        place = (
            (Folder.kind, self.organization_id, self.folder_id)
            if self.folder_id is not None
            else (Document.kind, self.organization_id, self.document_id or "")
        )
        return ((Organization.kind, self.organization_id), place, _holder(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGrant:
    """A user or a group may see the parts of documents whose context has ``field`` = ``value`` (``*``: any value).

    With ``document_id`` it counts on that document alone.
    """

    kind: ClassVar[str] = "contextGrant"
    organization_id: str
    user_id: str | None = None
    organization_user_group_id: str | None = None
    field: str
    value: str
    document_id: str | None = None
    expires_at: datetime | None = None

    @property
    def key(self) -> Key:
        return (
            self.kind,
            self.organization_id,
            self.user_id or "",
            self.organization_user_group_id or "",
            self.field,
            self.value,
            self.document_id or "",
        )

    @property
    def references(self) -> tuple[Key, ...]:
        organization = (Organization.kind, self.organization_id)
        if self.document_id is None:
            return (organization, _holder(self))
        return (organization, _holder(self), (Document.kind, self.organization_id, self.document_id))


def _holder(grant: Grant | ContextGrant) -> Key:
    if grant.user_id is not None:
        return (User.kind, grant.user_id)
    return (Group.kind, grant.organization_id, grant.organization_user_group_id or "")


Record = Organization | User | Membership | Group | GroupMember | Folder | Document | Grant | ContextGrant
