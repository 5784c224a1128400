"""Converts rows of the view's queries to records.

Rows are lists in the order of the columns in ``app.access.view.queries``. Without descriptive fields, ``payload`` is
None, and the records have empty names.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Membership,
    Organization,
    User,
)
from app.foundation.clock import from_epoch_ms

Row = list[Any]

_ROLES = {role.value: role for role in AccessRole}
_TYPES: Mapping[str, AccessType | None] = {"": None, **{access_type.value: access_type for access_type in AccessType}}


def organization_from_row(row: Row) -> Organization:
    organization_id, access_type, disabled, payload = row
    fields = _fields(payload, "organizationId")
    return Organization(
        organization_id=organization_id,
        organization_name=fields.pop("organizationName", ""),
        access_type=AccessType(access_type),
        disabled=bool(disabled),
        extra_fields=fields,
    )


def user_from_row(row: Row) -> User:
    user_id, disabled, payload = row
    fields = _fields(payload, "userId")
    return User(
        user_id=user_id,
        name=fields.pop("name", ""),
        email=fields.pop("email", ""),
        initial=fields.pop("initial", None),
        disabled=bool(disabled),
        extra_fields=fields,
    )


def membership_from_row(row: Row) -> Membership:
    organization_id, user_id, access_role, expires_at = row
    return Membership(
        organization_id=organization_id,
        user_id=user_id,
        access_role=_ROLES[access_role],
        expires_at=_moment(expires_at),
    )


def folder_from_row(row: Row) -> Folder:
    organization_id, folder_id, parent_folder_id, access_type, payload, _grants = row
    fields = _fields(payload, "folderId")
    return Folder(
        organization_id=organization_id,
        folder_id=folder_id,
        folder_name=fields.pop("folderName", ""),
        parent_folder_id=parent_folder_id or None,
        access_type=_TYPES[access_type],
        extra_fields=fields,
    )


def document_from_row(row: Row) -> Document:
    organization_id, document_id, folder_id, access_type, payload, _grants = row
    fields = _fields(payload, "documentId")
    return Document(
        organization_id=organization_id,
        document_id=document_id,
        document_name=fields.pop("documentName", ""),
        folder_id=folder_id or None,
        access_type=_TYPES[access_type],
        extra_fields=fields,
    )


def grant_from_row(row: Row) -> Grant:
    organization_id, folder_id, document_id, user_id, group_id, access_role, expires_at = row
    return Grant(
        organization_id=organization_id,
        folder_id=folder_id or None,
        document_id=document_id or None,
        user_id=user_id or None,
        organization_user_group_id=group_id or None,
        access_role=_ROLES[access_role],
        expires_at=_moment(expires_at),
    )


def group_grant(organization_id: str, folder_id: str | None, document_id: str | None, row: Row) -> Grant:
    """A group's grant that was read with its folder or document."""
    group_id, access_role, expires_at = row
    return Grant(
        organization_id=organization_id,
        folder_id=folder_id,
        document_id=document_id,
        organization_user_group_id=group_id,
        access_role=_ROLES[access_role],
        expires_at=_moment(expires_at),
    )


def own_grant(organization_id: str, user_id: str, row: Row) -> Grant:
    """A user's grant that was read with all their grants."""
    folder_id, document_id, access_role, expires_at = row
    return Grant(
        organization_id=organization_id,
        folder_id=folder_id or None,
        document_id=document_id or None,
        user_id=user_id,
        access_role=_ROLES[access_role],
        expires_at=_moment(expires_at),
    )


def context_grant_from_row(row: Row) -> ContextGrant:
    organization_id, user_id, group_id, field, value, document_id, expires_at = row
    return ContextGrant(
        organization_id=organization_id,
        user_id=user_id or None,
        organization_user_group_id=group_id or None,
        field=field,
        value=value,
        document_id=document_id or None,
        expires_at=_moment(expires_at),
    )


def _fields(payload: str | None, id_name: str) -> dict[str, Any]:
    """The descriptive fields of a record without its id; empty if they were not read."""
    if payload is None:
        return {}
    fields: dict[str, Any] = orjson.loads(payload)
    fields.pop(id_name, None)
    return fields


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else from_epoch_ms(milliseconds)
