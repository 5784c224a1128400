"""Handlers that add, remove and report permissions.

A permission is an entry of the user on a resource, with a role and perhaps an end.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Column, Connection, delete, select

from app.backend.http.call import Call, Reply
from app.backend.permissions.access_check import check_access, key_of
from app.backend.permissions.own_data_view import OwnDataView
from app.backend.permissions.provider_call import AccessVerdict
from app.backend.resources import user_entries
from app.backend.resources.containers import NO_DOCUMENT, NO_FOLDER, NO_ORGANIZATION, organization_exists
from app.backend.resources.removed_users import mark_removed
from app.backend.resources.tables import DOCUMENT, FOLDER, USER_ENTRY
from app.backend.resources.user_entries import Entry, EntryContainer, EntryLevel
from app.backend.scope import Scope, existing, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import Writable, insert_rows
from app.contract.base import DEFAULT_ACCESS_ROLE
from app.contract.errors import NotFound
from app.contract.permission_call import Question
from app.contract.permissions import (
    AddPermissionsRequest,
    GetPermissionsRequest,
    RemovePermissionsRequest,
    ResourceGrant,
    ResourceReference,
)
from app.foundation.batches import grouped

ResourceT = TypeVar("ResourceT", bound=ResourceReference)

_MISSING = {"organization": NO_ORGANIZATION, "folder": NO_FOLDER, "document": NO_DOCUMENT}
_COLUMNS: Mapping[EntryLevel, Column[str]] = {"folder": FOLDER.c.folder_id, "document": DOCUMENT.c.document_id}
_SECTIONS = {"organization": "organization", "folder": "folders", "document": "documents"}


def add_permissions(call: Call[AddPermissionsRequest], connection: Connection) -> Reply:
    request = call.request
    grant(connection, call.principal.api_key_id, request.user.user_id, request.permissions.resources, call.now)
    return Reply("Permissions added successfully.", None)


def grant(connection: Connection, api_key_id: str, user_id: str, grants: Sequence[ResourceGrant], now: int) -> None:
    """Grants all permissions, which replace role and end of existing ones, or none. Raises ``NotFound`` for the first
    resource that does not exist."""
    for organization_id, resources in _by_organization(grants):
        scope = Scope(api_key_id, organization_id)
        _require(connection, scope, resources)
        # Of several grants on one resource, the last one wins.
        by_container = {_container(resource): resource for resource in resources}
        entries = _entries(connection, scope, user_id, by_container)
        payload = next(iter(entries.values())).payload if entries else _metadata(connection, scope, user_id)
        new: list[Writable] = []
        changed: list[Writable] = []
        for container, resource in by_container.items():
            entry = entries.get(container) or Entry(user_id, DEFAULT_ACCESS_ROLE, None, dict(payload))
            entry.access_role = resource.access_role or DEFAULT_ACCESS_ROLE
            entry.expires_at = None if resource.expires_at is None else resource.expires_at * 1000
            (changed if container in entries else new).append(user_entries.row(scope, container, entry, now))
        insert_rows(connection, USER_ENTRY, new)
        user_entries.save(connection, changed)


def remove_permissions(call: Call[RemovePermissionsRequest], connection: Connection) -> Reply:
    """Removing a missing permission succeeds. Entries on other levels are kept."""
    for organization_id, resources in _by_organization(call.request.permissions.resources):
        scope = Scope(call.principal.api_key_id, organization_id)
        mark_removed(connection, scope, [call.request.user_id])
        for level, container_ids in _by_level(map(_container, resources)).items():
            connection.execute(
                delete(USER_ENTRY).where(
                    within_ids(connection, scope, USER_ENTRY.c.container_id, container_ids),
                    USER_ENTRY.c.level == level,
                    USER_ENTRY.c.user_id == call.request.user_id,
                )
            )
    return Reply("Permissions removed successfully.", None)


def get_permissions(call: Call[GetPermissionsRequest]) -> Reply:
    questions = _questions(call.request)
    verdicts, view = check_access(call.backend, call.scope, questions, call.now)
    data: dict[str, dict[str, dict[str, object]]] = {
        user_id: {section: {} for section in _SECTIONS.values()} for user_id in call.request.user_ids
    }
    for question in questions:
        data[question.user_id][_SECTIONS[question.type]][question.resource_id] = (
            _permission(question, verdicts[key_of(question)], view)
            if key_of(question) in verdicts
            else {"error": _MISSING[question.type], "errorCode": "does_not_exist"}
        )
    return Reply("Permissions retrieved successfully.", data)


def _questions(request: GetPermissionsRequest) -> list[Question]:
    organization_id = request.organization_id
    resources = [
        ("organization", organization_id),
        *(("folder", folder_id) for folder_id in dict.fromkeys(request.folder_ids or ())),
        *(("document", document_id) for document_id in dict.fromkeys(request.document_ids or ())),
    ]
    return [
        Question(user_id, kind, resource_id, organization_id)  # type: ignore[arg-type]  # one of the three above
        for user_id in dict.fromkeys(request.user_ids)
        for kind, resource_id in resources
    ]


def _permission(question: Question, verdict: AccessVerdict | None, view: OwnDataView) -> dict[str, object]:
    if verdict is None:
        return {"error": "The permission provider gave no answer.", "errorCode": "something_went_wrong"}
    if not verdict.has_access:
        return {"error": "The user has no access.", "errorCode": "permission_denied"}
    permission: dict[str, object] = {"accessRole": verdict.access_role}
    if question.type != "organization":
        permission["accessType"] = view.access_type_of(question)
    if verdict.expires_at is not None:
        # Rounded down, so that it is never too late.
        permission["expiresAt"] = verdict.expires_at // 1000
    return permission


def _by_organization(resources: Iterable[ResourceT]) -> Iterable[tuple[str, list[ResourceT]]]:
    return grouped((resource.organization_id or resource.id, resource) for resource in resources).items()


def _container(resource: ResourceReference) -> EntryContainer:
    if resource.type == "organization":
        return user_entries.THE_ORGANIZATION
    return EntryContainer(resource.type, resource.id)


def _by_level(containers: Iterable[EntryContainer]) -> dict[EntryLevel, list[str]]:
    return grouped((container.level, container.container_id) for container in containers)


def _require(connection: Connection, scope: Scope, resources: Iterable[ResourceReference]) -> None:
    """Raises ``NotFound`` with the first resource that does not exist."""
    if not organization_exists(connection, scope):
        raise NotFound(f"{NO_ORGANIZATION} ({scope.organization_id})")
    by_level = _by_level(map(_container, resources))
    for level, column in _COLUMNS.items():
        ids = by_level.get(level, [])
        missing = sorted(set(ids) - existing(connection, scope, column, ids)) if ids else []
        if missing:
            raise NotFound(f"{_MISSING[level]} ({missing[0]})")


def _entries(
    connection: Connection, scope: Scope, user_id: str, containers: Iterable[EntryContainer]
) -> dict[EntryContainer, Entry]:
    """The user's entries in these containers."""
    entries: dict[EntryContainer, Entry] = {}
    for level, container_ids in _by_level(containers).items():
        query = select(
            USER_ENTRY.c.container_id, USER_ENTRY.c.access_role, USER_ENTRY.c.expires_at, USER_ENTRY.c.payload
        ).where(
            within_ids(connection, scope, USER_ENTRY.c.container_id, container_ids),
            USER_ENTRY.c.level == level,
            USER_ENTRY.c.user_id == user_id,
        )
        for row in connection.execute(query):
            entry = Entry(user_id, row.access_role, row.expires_at, json_columns.load_object(row.payload))
            entries[EntryContainer(level, row.container_id)] = entry
    return entries


def _metadata(connection: Connection, scope: Scope, user_id: str) -> dict[str, object]:
    """The user's metadata from any entry in the organization, because the request contains none."""
    payload = connection.scalar(
        select(USER_ENTRY.c.payload).where(within(USER_ENTRY, scope), USER_ENTRY.c.user_id == user_id).limit(1)
    )
    return {} if payload is None else json_columns.load_object(payload)
