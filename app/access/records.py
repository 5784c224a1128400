"""What a directory says: the ten kinds of record.

Folders, documents and groups are identified within their organization, users across all. A record's ``key`` identifies
it (one record per key). Times are aware UTC. ``further`` holds the fields that Usher does not know itself: they travel
to the backend as they are.

Wherever a record names a user it may name one of their aliases instead (``user_alias``): which user that is, is looked
up when the sources are merged. Aliases are compared without regard to case; records have them case-folded. The access
model, and so whatever decides, has users' ids alone.

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
    ALIAS = "alias"
    """An id in its own right by which a user may be named; case-folded."""
    ALIASES = "aliases"
    """A list of them."""
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
Alias = Annotated[str, Form(Sort.ALIAS)]
Aliases = Annotated[tuple[str, ...], Form(Sort.ALIASES)]
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
    """What identifies a record, beside an alias; an id of its own kind among them is the record's own."""
    exactly_one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Fields of which exactly one is given."""

    @property
    def key(self) -> Key:
        """What there is one record of; the alias by which it names a user stands last, and only then."""
        ids = (self.kind, *[getattr(self, name) or "" for name in self.key_fields])
        alias = getattr(self, "user_alias", None)
        return ids if alias is None else (*ids, alias)


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
    """A person, known across all organizations; ``aliases`` are other names for them, which nobody is sent."""

    kind: ClassVar[str] = "user"
    key_fields = ("user_id",)

    user_id: UserId
    name: Words
    email: Words
    initial: Words | None = None
    disabled: bool = False
    aliases: Aliases = ()
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership(_Keyed):
    """A user belongs to an organization, with a role, until it expires."""

    kind: ClassVar[str] = "membership"
    key_fields = ("organization_id", "user_id")
    exactly_one_of = (("user_id", "user_alias"),)

    organization_id: OrganizationId
    user_id: UserId | None = None
    user_alias: Alias | None = None
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
    """A user, or a whole other group, is in a group."""

    kind: ClassVar[str] = "groupMember"
    key_fields = ("organization_id", "organization_user_group_id", "user_id", "member_group_id")
    exactly_one_of = (("user_id", "user_alias", "member_group_id"),)

    organization_id: OrganizationId
    organization_user_group_id: GroupId
    user_id: UserId | None = None
    user_alias: Alias | None = None
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
    """A user or a group was let in by name: on a folder and all below it, or on a document."""

    kind: ClassVar[str] = "grant"
    key_fields = ("organization_id", "folder_id", "document_id", "user_id", "organization_user_group_id")
    exactly_one_of = (("folder_id", "document_id"), ("user_id", "user_alias", "organization_user_group_id"))

    organization_id: OrganizationId
    folder_id: FolderId | None = None
    document_id: DocumentId | None = None
    user_id: UserId | None = None
    user_alias: Alias | None = None
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
    exactly_one_of = (("user_id", "user_alias", "organization_user_group_id"),)

    organization_id: OrganizationId
    user_id: UserId | None = None
    user_alias: Alias | None = None
    organization_user_group_id: GroupId | None = None
    field: ContextField
    value: ContextValue
    document_id: DocumentId | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill(_Keyed):
    """Further fields of a user whom another record, perhaps another source, gives.

    What the user's own record says stands; of several fills the source further up in the configuration wins, field by
    field. ``disabled`` counts wherever it is true.
    """

    kind: ClassVar[str] = "fill"
    key_fields = ("user_id",)
    exactly_one_of = (("user_id", "user_alias"),)

    user_id: UserId | None = None
    user_alias: Alias | None = None
    name: Words | None = None
    email: Words | None = None
    initial: Words | None = None
    disabled: bool = False
    further: Mapping[str, object] = field(default_factory=_no_further_fields, hash=False)


Record = Organization | User | Membership | Group | GroupMember | Folder | Document | Grant | ContextGrant | Fill

Carrier = Organization | User | Group | Folder | Document | Fill
"""Those that may have further fields."""
