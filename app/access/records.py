"""What a directory says: the nine kinds of record that the access model is made of.

Folders, documents and groups are identified within their organization, users across all. A record's ``key`` identifies
it (one record per key). Times are aware UTC. ``further`` holds the fields that Usher does not know itself: they travel
to the backend as they are.

These classes are the one description of the kinds: casting, rows, exports and references follow from their fields, by
way of ``app.access.kinds``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

Key = tuple[str, ...]
"""The kind, then the ids in a fixed order; an id that does not apply is the empty string."""


class Sort(StrEnum):
    """What stands in a field."""

    ID = "id"
    """Text of 1 to 512 bytes."""
    TEXT = "text"
    """Any text; it decides about nothing, and stands in the payload."""
    CONTEXT_VALUE = "contextValue"
    """An id that may be given as a number."""
    FLAG = "flag"
    ACCESS_TYPE = "accessType"
    ACCESS_ROLE = "accessRole"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Form:
    """What a text is."""

    sort: Sort
    of: str = ""
    """Of an id: the kind of record that it identifies, or helps to."""


OrganizationId = Annotated[str, Form(Sort.ID, "organization")]
UserId = Annotated[str, Form(Sort.ID, "user")]
GroupId = Annotated[str, Form(Sort.ID, "group")]
FolderId = Annotated[str, Form(Sort.ID, "folder")]
DocumentId = Annotated[str, Form(Sort.ID, "document")]
ContextField = Annotated[str, Form(Sort.ID)]
ContextValue = Annotated[str, Form(Sort.CONTEXT_VALUE)]
Words = Annotated[str, Form(Sort.TEXT)]

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


class _Keyed:
    __slots__ = ()

    kind: ClassVar[str]
    key_fields: ClassVar[tuple[str, ...]]
    """What identifies a record of the kind; of those whose further fields travel on, the last one is their own id."""
    exactly_one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Fields of which exactly one is given."""

    @property
    def key(self) -> Key:
        """What there is one record of."""
        return (self.kind, *[getattr(self, name) or "" for name in self.key_fields])


@dataclass(frozen=True, slots=True, kw_only=True)
class Organization(_Keyed):
    """An organization; ``access_type`` is what its folders and documents inherit at the top of the tree."""

    kind: ClassVar[str] = "organization"
    key_fields = ("organization_id",)

    organization_id: OrganizationId
    organization_name: Words
    access_type: AccessType = AccessType.ORGANIZATION_PRIVATE
    disabled: bool = False
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class User(_Keyed):
    """A person, known across all organizations."""

    kind: ClassVar[str] = "user"
    key_fields = ("user_id",)

    user_id: UserId
    name: Words
    email: Words
    initial: Words | None = None
    disabled: bool = False
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership(_Keyed):
    """A user belongs to an organization, with a role, until it expires."""

    kind: ClassVar[str] = "membership"
    key_fields = ("organization_id", "user_id")

    organization_id: OrganizationId
    user_id: UserId
    access_role: AccessRole = AccessRole.EDITOR
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(_Keyed):
    """A user group of one organization."""

    kind: ClassVar[str] = "group"
    key_fields = ("organization_id", "organization_user_group_id")

    organization_id: OrganizationId
    organization_user_group_id: GroupId
    group_name: Words
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember(_Keyed):
    """A user, or a whole other group, is in a group: exactly one of ``user_id`` and ``member_group_id`` is given."""

    kind: ClassVar[str] = "groupMember"
    key_fields = ("organization_id", "organization_user_group_id", "user_id", "member_group_id")
    exactly_one_of = (("user_id", "member_group_id"),)

    organization_id: OrganizationId
    organization_user_group_id: GroupId
    user_id: UserId | None = None
    member_group_id: GroupId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder(_Keyed):
    """A folder; without a type of its own it takes that of the nearest folder above, at last the organization's."""

    kind: ClassVar[str] = "folder"
    key_fields = ("organization_id", "folder_id")

    organization_id: OrganizationId
    folder_id: FolderId
    folder_name: Words
    parent_folder_id: FolderId | None = None
    access_type: AccessType | None = None
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(_Keyed):
    """A document, in a folder or directly in the organization."""

    kind: ClassVar[str] = "document"
    key_fields = ("organization_id", "document_id")

    organization_id: OrganizationId
    document_id: DocumentId
    document_name: Words
    folder_id: FolderId | None = None
    access_type: AccessType | None = None
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(_Keyed):
    """A user or a group was let in by name: on a folder and all below it, or on a document.

    Exactly one of ``folder_id`` and ``document_id``, and one of ``user_id`` and ``organization_user_group_id``, is
    given.
    """

    kind: ClassVar[str] = "grant"
    key_fields = ("organization_id", "folder_id", "document_id", "user_id", "organization_user_group_id")
    exactly_one_of = (("folder_id", "document_id"), ("user_id", "organization_user_group_id"))

    organization_id: OrganizationId
    folder_id: FolderId | None = None
    document_id: DocumentId | None = None
    user_id: UserId | None = None
    organization_user_group_id: GroupId | None = None
    access_role: AccessRole = AccessRole.EDITOR
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGrant(_Keyed):
    """A user or a group may see the parts of documents whose context has ``field`` = ``value`` (``*``: any value).

    With ``document_id`` it counts on that document alone.
    """

    kind: ClassVar[str] = "contextGrant"
    key_fields = (
        "organization_id",
        "user_id",
        "organization_user_group_id",
        "field",
        "value",
        "document_id",
    )
    exactly_one_of = (("user_id", "organization_user_group_id"),)

    organization_id: OrganizationId
    user_id: UserId | None = None
    organization_user_group_id: GroupId | None = None
    field: ContextField
    value: ContextValue
    document_id: DocumentId | None = None
    expires_at: datetime | None = None


Record = Organization | User | Membership | Group | GroupMember | Folder | Document | Grant | ContextGrant

Carrier = Organization | User | Group | Folder | Document
"""Those whose further fields travel to the backend."""
