"""The ten kinds of record of a directory.

Ids of folders, documents and groups are unique within their organization, ids of users in the whole directory. A
record's ``key`` identifies it. Times are aware and in UTC. ``extra_fields`` contains fields that Usher does not use;
it sends them to the backend unchanged.

A record can name a user by an alias (``user_alias``) instead of the id. The merge of the sources replaces aliases by
ids, so decisions use only ids. Aliases are case-insensitive and stored case-folded.

These classes are the only definition of the kinds. Casting, tables, rows, exports and references are derived from their
fields (``app.access.kinds``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, TypeVar, dataclass_transform

Key = tuple[str, ...]
"""The kind, then the ids in a fixed order. An id that does not apply is the empty string."""

ORIGIN_SEPARATOR = "\x1f"
"""Separates the set from the id in the stored origin of a record. So names of sets cannot contain it."""


class FieldType(StrEnum):
    """The type of a field's value."""

    ID = "id"
    """Text of 1 to 512 bytes."""
    TEXT = "text"
    """Any text that decisions do not use. It is stored in the payload."""
    ALIAS = "alias"
    """Another id of a user, case-folded."""
    ALIASES = "aliases"
    """A list of aliases."""
    CONTEXT_VALUE = "contextValue"
    """An id. Numbers are converted to text."""
    FLAG = "flag"
    ACCESS_TYPE = "accessType"
    ACCESS_ROLE = "accessRole"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Form:
    """The type of a text field."""

    type: FieldType
    of: str = ""
    """The kind of record to which an id belongs. Empty for other types."""


OrganizationId = Annotated[str, Form(FieldType.ID, "organization")]
UserId = Annotated[str, Form(FieldType.ID, "user")]
GroupId = Annotated[str, Form(FieldType.ID, "group")]
FolderId = Annotated[str, Form(FieldType.ID, "folder")]
DocumentId = Annotated[str, Form(FieldType.ID, "document")]
Alias = Annotated[str, Form(FieldType.ALIAS)]
Aliases = Annotated[tuple[str, ...], Form(FieldType.ALIASES)]
ContextField = Annotated[str, Form(FieldType.ID)]
ContextValue = Annotated[str, Form(FieldType.CONTEXT_VALUE)]
Words = Annotated[str, Form(FieldType.TEXT)]

NO_EXTRA_FIELDS: Mapping[str, object] = MappingProxyType({})


def _no_extra_fields() -> Mapping[str, object]:
    # A dataclass refuses a read-only mapping as a plain default, because it cannot be hashed.
    return NO_EXTRA_FIELDS


class AccessType(StrEnum):
    """The users that have access to a folder or document without a grant."""

    PUBLIC = "public"
    """Any user of the directory."""
    ORGANIZATION_PRIVATE = "organizationPrivate"
    """Members of the organization."""
    RESTRICTED = "restricted"
    """Only users with a grant."""


class AccessRole(StrEnum):
    """The role of a user with access."""

    VIEWER = "viewer"
    EDITOR = "editor"

    @property
    def rank(self) -> int:
        """A larger rank is more permissive."""
        return 1 if self is AccessRole.EDITOR else 0


Level = Literal["folder", "document"]
"""The kinds of resource that can have grants."""

ResourceKind = Literal["organization", "folder", "document"]
"""The kinds of resource that users open."""


_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def _record(cls: type[_Class]) -> type[_Class]:
    """A dataclass that only the type checker keeps from changing.

    A frozen dataclass takes three times as long to create, which is a fifth of the time of a decision.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


class _Keyed:
    __slots__ = ()

    kind: ClassVar[str]
    key_fields: ClassVar[tuple[str, ...]]
    """The fields of the key, without an alias. An id of the record's own kind is the record's id."""
    exactly_one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of fields. A record has exactly one field of each group."""

    @property
    def key(self) -> Key:
        """Identifies the record. If it names a user by an alias, the alias is the last part."""
        ids = (self.kind, *[getattr(self, name) or "" for name in self.key_fields])
        alias = getattr(self, "user_alias", None)
        return ids if alias is None else (*ids, alias)


@_record
class Organization(_Keyed):
    """An organization. Folders and documents at the top of the tree inherit its ``access_type``."""

    kind: ClassVar[str] = "organization"
    key_fields = ("organization_id",)

    organization_id: OrganizationId
    organization_name: Words
    access_type: AccessType = AccessType.ORGANIZATION_PRIVATE
    disabled: bool = False
    extra_fields: Mapping[str, object] = field(default_factory=_no_extra_fields, hash=False)


@_record
class User(_Keyed):
    """A user of any number of organizations. ``aliases`` are other ids, which are not sent to the backend."""

    kind: ClassVar[str] = "user"
    key_fields = ("user_id",)

    user_id: UserId
    name: Words
    email: Words
    initial: Words | None = None
    disabled: bool = False
    aliases: Aliases = ()
    extra_fields: Mapping[str, object] = field(default_factory=_no_extra_fields, hash=False)


@_record
class Membership(_Keyed):
    """A user's membership of an organization, with a role and an optional end."""

    kind: ClassVar[str] = "membership"
    key_fields = ("organization_id", "user_id")
    exactly_one_of = (("user_id", "user_alias"),)

    organization_id: OrganizationId
    user_id: UserId | None = None
    user_alias: Alias | None = None
    access_role: AccessRole = AccessRole.EDITOR
    expires_at: datetime | None = None


@_record
class Group(_Keyed):
    """A user group of one organization."""

    kind: ClassVar[str] = "group"
    key_fields = ("organization_id", "organization_user_group_id")

    organization_id: OrganizationId
    organization_user_group_id: GroupId
    group_name: Words
    extra_fields: Mapping[str, object] = field(default_factory=_no_extra_fields, hash=False)


@_record
class GroupMember(_Keyed):
    """The membership of a user, or of another group, in a group."""

    kind: ClassVar[str] = "groupMember"
    key_fields = ("organization_id", "organization_user_group_id", "user_id", "member_group_id")
    exactly_one_of = (("user_id", "user_alias", "member_group_id"),)

    organization_id: OrganizationId
    organization_user_group_id: GroupId
    user_id: UserId | None = None
    user_alias: Alias | None = None
    member_group_id: GroupId | None = None


@_record
class Folder(_Keyed):
    """A folder. Without an access type it inherits that of the nearest folder above, or the organization's."""

    kind: ClassVar[str] = "folder"
    key_fields = ("organization_id", "folder_id")

    organization_id: OrganizationId
    folder_id: FolderId
    folder_name: Words
    parent_folder_id: FolderId | None = None
    access_type: AccessType | None = None
    extra_fields: Mapping[str, object] = field(default_factory=_no_extra_fields, hash=False)


@_record
class Document(_Keyed):
    """A document, in a folder or directly in the organization."""

    kind: ClassVar[str] = "document"
    key_fields = ("organization_id", "document_id")

    organization_id: OrganizationId
    document_id: DocumentId
    document_name: Words
    folder_id: FolderId | None = None
    access_type: AccessType | None = None
    extra_fields: Mapping[str, object] = field(default_factory=_no_extra_fields, hash=False)


@_record
class Grant(_Keyed):
    """Access of a user or a group to a folder and everything below it, or to a document."""

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


@_record
class ContextGrant(_Keyed):
    """Access of a user or a group to the parts of documents whose context has ``field`` = ``value`` (``*``: any value).

    With ``document_id`` it applies only to that document.
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


@_record
class Fill(_Keyed):
    """Additional fields of a user whose record is elsewhere, for example in another source.

    The user's own record takes precedence, then the fills in the order of the sources, field by field. The user is
    disabled if any of them is ``disabled``.
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
    extra_fields: Mapping[str, object] = field(default_factory=_no_extra_fields, hash=False)


Record = Organization | User | Membership | Group | GroupMember | Folder | Document | Grant | ContextGrant | Fill

Carrier = Organization | User | Group | Folder | Document | Fill
"""The kinds with ``extra_fields``."""
