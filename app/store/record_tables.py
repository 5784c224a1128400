"""The row codecs: how a record stands in its table of the access model, and how it is read back.

One ``KindTable`` per kind of record, in the order in which references point: whatever a record refers to is of a kind
before its own (or of its own: folders in folders).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, cast

import orjson
from sqlalchemy import Row, Table
from sqlmodel import SQLModel

from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    User,
)
from app.clock import epoch_ms, from_epoch_ms
from app.store.access_tables import (
    ContextGrantRow,
    DocumentRow,
    FolderRow,
    GrantRow,
    GroupMemberRow,
    GroupRow,
    MembershipRow,
    OrganizationRow,
    UserRow,
)

Values = tuple[object, ...]
"""The values of one row, in the order of the table's columns."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Columns that name a record of another kind; the last one is empty when there is no such reference."""

    kind: str
    columns: tuple[str, ...]
    """In the order of the other table's key."""
    field: str
    """The last column as the directory calls it, for reports."""


@dataclass(frozen=True)
class KindTable:
    """The table of one kind of record."""

    kind: str
    table: Table
    values_from_record: Callable[[Any], Values]
    record_from_row: Callable[[Any], Record]
    references: tuple[Reference, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a record."""
        return tuple(column.name for column in self.table.primary_key.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.table.columns)


def _ms(time: datetime | None) -> int | None:
    return None if time is None else epoch_ms(time)


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else from_epoch_ms(ms)


def payload_and_digest(fields: Mapping[str, object]) -> tuple[str, str]:
    """Descriptive fields as canonical JSON (sorted keys, no spaces), and BLAKE2b-128 of its bytes in hexadecimal."""
    payload = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return payload.decode(), blake2b(payload, digest_size=16).hexdigest()


def _described(row: Row[Any], *known: str) -> tuple[dict[str, Any], dict[str, object]]:
    """The payload's known fields, and the further ones."""
    payload: dict[str, Any] = orjson.loads(row.payload)
    return payload, {name: value for name, value in payload.items() if name not in known}


def _values_from_organization(record: Organization) -> Values:
    described = {"organizationId": record.organization_id, "organizationName": record.organization_name}
    return (
        record.organization_id,
        record.access_type.value,
        record.disabled,
        *payload_and_digest({**record.further, **described}),
    )


def _organization_from_row(row: Row[Any]) -> Organization:
    payload, further = _described(row, "organizationId", "organizationName")
    return Organization(
        organization_id=row.organization_id,
        organization_name=payload["organizationName"],
        access_type=AccessType(row.access_type),
        disabled=bool(row.disabled),
        further=further,
    )


def _values_from_user(record: User) -> Values:
    described = {"userId": record.user_id, "name": record.name, "email": record.email}
    if record.initial is not None:
        described["initial"] = record.initial
    return (record.user_id, record.disabled, *payload_and_digest({**record.further, **described}))


def _user_from_row(row: Row[Any]) -> User:
    payload, further = _described(row, "userId", "name", "email", "initial")
    return User(
        user_id=row.user_id,
        name=payload["name"],
        email=payload["email"],
        initial=payload.get("initial"),
        disabled=bool(row.disabled),
        further=further,
    )


def _values_from_membership(record: Membership) -> Values:
    return (record.organization_id, record.user_id, record.access_role.value, _ms(record.expires_at))


def _membership_from_row(row: Row[Any]) -> Membership:
    return Membership(
        organization_id=row.organization_id,
        user_id=row.user_id,
        access_role=AccessRole(row.access_role),
        expires_at=_time(row.expires_at),
    )


def _values_from_group(record: Group) -> Values:
    described = {"organizationUserGroupId": record.organization_user_group_id, "groupName": record.group_name}
    return (
        record.organization_id,
        record.organization_user_group_id,
        *payload_and_digest({**record.further, **described}),
    )


def _group_from_row(row: Row[Any]) -> Group:
    payload, further = _described(row, "organizationUserGroupId", "groupName")
    return Group(
        organization_id=row.organization_id,
        organization_user_group_id=row.organization_user_group_id,
        group_name=payload["groupName"],
        further=further,
    )


def _values_from_group_member(record: GroupMember) -> Values:
    return (
        record.organization_id,
        record.organization_user_group_id,
        record.user_id or "",
        record.member_group_id or "",
    )


def _group_member_from_row(row: Row[Any]) -> GroupMember:
    return GroupMember(
        organization_id=row.organization_id,
        organization_user_group_id=row.organization_user_group_id,
        user_id=row.user_id or None,
        member_group_id=row.member_group_id or None,
    )


def _values_from_folder(record: Folder) -> Values:
    described = {"folderId": record.folder_id, "folderName": record.folder_name}
    return (
        record.organization_id,
        record.folder_id,
        record.parent_folder_id or "",
        record.access_type.value if record.access_type else "",
        *payload_and_digest({**record.further, **described}),
    )


def _folder_from_row(row: Row[Any]) -> Folder:
    payload, further = _described(row, "folderId", "folderName")
    return Folder(
        organization_id=row.organization_id,
        folder_id=row.folder_id,
        folder_name=payload["folderName"],
        parent_folder_id=row.parent_folder_id or None,
        access_type=AccessType(row.access_type) if row.access_type else None,
        further=further,
    )


def _values_from_document(record: Document) -> Values:
    described = {"documentId": record.document_id, "documentName": record.document_name}
    return (
        record.organization_id,
        record.document_id,
        record.folder_id or "",
        record.access_type.value if record.access_type else "",
        *payload_and_digest({**record.further, **described}),
    )


def _document_from_row(row: Row[Any]) -> Document:
    payload, further = _described(row, "documentId", "documentName")
    return Document(
        organization_id=row.organization_id,
        document_id=row.document_id,
        document_name=payload["documentName"],
        folder_id=row.folder_id or None,
        access_type=AccessType(row.access_type) if row.access_type else None,
        further=further,
    )


def _values_from_grant(record: Grant) -> Values:
    return (
        record.organization_id,
        record.folder_id or "",
        record.document_id or "",
        record.user_id or "",
        record.organization_user_group_id or "",
        record.access_role.value,
        _ms(record.expires_at),
    )


def _grant_from_row(row: Row[Any]) -> Grant:
    return Grant(
        organization_id=row.organization_id,
        folder_id=row.folder_id or None,
        document_id=row.document_id or None,
        user_id=row.user_id or None,
        organization_user_group_id=row.organization_user_group_id or None,
        access_role=AccessRole(row.access_role),
        expires_at=_time(row.expires_at),
    )


def _values_from_context_grant(record: ContextGrant) -> Values:
    return (
        record.organization_id,
        record.user_id or "",
        record.organization_user_group_id or "",
        record.field,
        record.value,
        record.document_id or "",
        _ms(record.expires_at),
    )


def _context_grant_from_row(row: Row[Any]) -> ContextGrant:
    return ContextGrant(
        organization_id=row.organization_id,
        user_id=row.user_id or None,
        organization_user_group_id=row.organization_user_group_id or None,
        field=row.field,
        value=row.value,
        document_id=row.document_id or None,
        expires_at=_time(row.expires_at),
    )


def core_table(row_type: type[SQLModel]) -> Table:
    """The table behind a SQLModel class, for set operations."""
    return cast("Table", row_type.__table__)  # type: ignore[attr-defined] # SQLModel's types do not show it


_ORGANIZATION = Reference(Organization.kind, ("organization_id",), "organizationId")
_USER = Reference(User.kind, ("user_id",), "userId")
_GROUP = Reference(Group.kind, ("organization_id", "organization_user_group_id"), "organizationUserGroupId")
_MEMBER_GROUP = Reference(Group.kind, ("organization_id", "member_group_id"), "memberGroupId")
_FOLDER = Reference(Folder.kind, ("organization_id", "folder_id"), "folderId")
_PARENT_FOLDER = Reference(Folder.kind, ("organization_id", "parent_folder_id"), "parentFolderId")
_DOCUMENT = Reference(Document.kind, ("organization_id", "document_id"), "documentId")

KIND_TABLES: Sequence[KindTable] = (
    KindTable(Organization.kind, core_table(OrganizationRow), _values_from_organization, _organization_from_row, ()),
    KindTable(User.kind, core_table(UserRow), _values_from_user, _user_from_row, ()),
    KindTable(Group.kind, core_table(GroupRow), _values_from_group, _group_from_row, (_ORGANIZATION,)),
    KindTable(
        Folder.kind, core_table(FolderRow), _values_from_folder, _folder_from_row, (_ORGANIZATION, _PARENT_FOLDER)
    ),
    KindTable(
        Document.kind, core_table(DocumentRow), _values_from_document, _document_from_row, (_ORGANIZATION, _FOLDER)
    ),
    KindTable(
        Membership.kind,
        core_table(MembershipRow),
        _values_from_membership,
        _membership_from_row,
        (_ORGANIZATION, _USER),
    ),
    # Where a record refers to a group, folder or document, that one vouches for the organization.
    KindTable(
        GroupMember.kind,
        core_table(GroupMemberRow),
        _values_from_group_member,
        _group_member_from_row,
        (_GROUP, _USER, _MEMBER_GROUP),
    ),
    KindTable(
        Grant.kind, core_table(GrantRow), _values_from_grant, _grant_from_row, (_FOLDER, _DOCUMENT, _USER, _GROUP)
    ),
    KindTable(
        ContextGrant.kind,
        core_table(ContextGrantRow),
        _values_from_context_grant,
        _context_grant_from_row,
        (_ORGANIZATION, _USER, _GROUP, _DOCUMENT),
    ),
)
"""Every kind, referred-to kinds first."""
