"""Handlers of users: add, update, read and delete their entries on organizations, folders and documents."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Select, delete, select, union

from app.backend import scope as scopes
from app.backend.http.call import Call, Reply
from app.backend.http.results import (
    TOO_LARGE,
    Results,
    all_failed,
    by_id,
    done,
    failed,
    grows_too_large,
    merged_by_id,
    per_id,
)
from app.backend.resources import user_entries
from app.backend.resources.containers import (
    NO_FOLDER,
    ensure_document,
    ensure_folder,
    ensure_organization,
    folder_exists,
)
from app.backend.resources.removed_users import clear_removed, mark_removed
from app.backend.resources.tables import GROUP_MEMBER, USER_ENTRY
from app.backend.resources.user_entries import THE_ORGANIZATION, Entry, EntryContainer
from app.backend.scope import Scope, delete_rows, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.paging import cut, page_rows
from app.backend.storage.rows import insert_rows, where_given
from app.contract.base import DEFAULT_ACCESS_ROLE
from app.contract.users import AddUsersRequest, DeleteUsersRequest, GetUsersRequest, UpdateUsersRequest, UserInput
from app.foundation.batches import grouped

_COLUMNS = (
    USER_ENTRY.c.container_id,
    USER_ENTRY.c.user_id,
    USER_ENTRY.c.access_role,
    USER_ENTRY.c.expires_at,
    USER_ENTRY.c.payload,
)
NO_USER = "User does not exist."


def add_users(call: Call[AddUsersRequest], connection: Connection) -> Reply:
    users = by_id(call.request.users, "user_id")
    if not users:
        return Reply("No users to add.", {})
    scope = call.scope
    container = _container(call.request)
    if not _ensure_container(call, connection, container):
        return Reply("Users processed.", all_failed(users, NO_FOLDER))
    user_entries.drop_expired(connection, scope, container, call.now, users)
    existing = user_entries.existing(connection, scope, container, users)
    new = {user_id: user for user_id, user in users.items() if user_id not in existing}
    rows = [user_entries.row(scope, container, _new_entry(user), call.now) for user in new.values()]
    insert_rows(connection, USER_ENTRY, rows)
    if container == THE_ORGANIZATION:
        clear_removed(connection, scope, users)
    return Reply("User(s) added successfully.", per_id(users, new, "User added.", "User already exists."))


def update_users(call: Call[UpdateUsersRequest], connection: Connection) -> Reply:
    scope = call.scope
    container = _container(call.request)
    users = merged_by_id(call.request.users, "user_id")
    entries = user_entries.load(connection, scope, container, users, call.now)
    results: Results = {}
    for user_id, user in users.items():
        entry = entries.get(user_id)
        if entry is None:
            results[user_id] = failed(user_id, NO_USER)
        elif grows_too_large(entry.payload, _payload(user)):
            results[user_id] = failed(user_id, TOO_LARGE)
        else:
            _update(entry, user)
            results[user_id] = done(user_id, "User updated.")
    user_entries.save(connection, [user_entries.row(scope, container, entry, call.now) for entry in entries.values()])
    return Reply("User(s) updated successfully.", results)


def delete_users(call: Call[DeleteUsersRequest], connection: Connection) -> Reply:
    scope = call.scope
    container = _container(call.request)
    user_ids = dict.fromkeys(call.request.user_ids)
    if container == THE_ORGANIZATION:
        removed = _remove_everywhere(connection, scope, user_ids)
    else:
        removed = user_entries.existing(connection, scope, container, user_ids)
        connection.execute(delete(USER_ENTRY).where(user_entries.of_users(connection, scope, container, removed)))
    mark_removed(connection, scope, removed)
    if container.level != "folder":
        for delete_addressed in call.backend.on_users_removed:
            delete_addressed(connection, scope, removed, container.container_id or None)
    results: Results = {
        user_id: {"success": True, "message": "User removed."}
        if user_id in removed
        else {"success": False, "message": NO_USER}
        for user_id in user_ids
    }
    return Reply("User(s) deleted successfully.", results)


def get_users(call: Call[GetUsersRequest], connection: Connection) -> Reply:
    request = call.request
    if request.all_documents:
        return _users_of_all_documents(call, connection)
    container = _container(request)
    if container == THE_ORGANIZATION and request.organization_user_group_ids is not None:
        return _members_of_groups(call, connection, request.organization_user_group_ids)
    query = _filtered(call, connection, select(*_COLUMNS).where(user_entries.at(call.scope, container)))
    page, token = call.page(connection, query, (USER_ENTRY.c.user_id,))
    return Reply("User(s) retrieved successfully.", [user_entries.row_to_wire(row) for row in page], token)


def _users_of_all_documents(call: Call[GetUsersRequest], connection: Connection) -> Reply:
    """One entry for each document and user. If they are not grouped, each has its ``documentId``."""
    query = select(*_COLUMNS).where(within(USER_ENTRY, call.scope), USER_ENTRY.c.level == "document")
    query = _filtered(call, connection, query)
    page, token = call.page(connection, query, (USER_ENTRY.c.container_id, USER_ENTRY.c.user_id))
    if call.request.group_by_document_id:
        documents = grouped((row.container_id, user_entries.row_to_wire(row)) for row in page)
        return Reply("User(s) retrieved successfully.", documents, token)
    data = [user_entries.row_to_wire(row) | {"documentId": row.container_id} for row in page]
    return Reply("User(s) retrieved successfully.", data, token)


def _members_of_groups(call: Call[GetUsersRequest], connection: Connection, group_ids: Iterable[str]) -> Reply:
    """The members of these groups. Some may have entries only on folders or documents of the organization."""
    scope = call.scope
    size = page_rows(call.request.page_size)
    after = call.position(call.request.page_token)
    queries = [_first_members(call, connection, group_id, after, size + 1) for group_id in dict.fromkeys(group_ids)]
    members: list[str] = []
    if queries:
        members = list(connection.scalars(union(*queries).order_by("user_id").limit(size + 1)))
    entries = user_entries.load(connection, scope, THE_ORGANIZATION, members, call.now)
    elsewhere = _metadata_elsewhere(connection, scope, [user_id for user_id in members if user_id not in entries])
    users = [
        user_entries.to_wire(user_id, entry.access_role, entry.expires_at, entry.payload)
        if (entry := entries.get(user_id)) is not None
        else user_entries.to_wire(user_id, None, None, elsewhere.get(user_id, {}))
        for user_id in members
    ]
    page, has_more = cut(users, size, lambda user: len(json_columns.dump(user)))
    token = call.token_after([members[len(page) - 1]]) if has_more else None
    return Reply("User(s) retrieved successfully.", page, token)


def _first_members(
    call: Call[GetUsersRequest], connection: Connection, group_id: str, after: Sequence[str] | None, limit: int
) -> Select[str]:
    """The first members of a group, by id. One query for all groups would make PostgreSQL read all their members."""
    query = select(GROUP_MEMBER.c.user_id).where(within(GROUP_MEMBER, call.scope), GROUP_MEMBER.c.group_id == group_id)
    query = where_given(connection, query, (GROUP_MEMBER.c.user_id, call.request.user_ids))
    if after is not None:
        query = query.where(GROUP_MEMBER.c.user_id > after[0])
    return select(query.order_by(GROUP_MEMBER.c.user_id).limit(limit).subquery().c.user_id)


def _filtered(
    call: Call[GetUsersRequest], connection: Connection, query: Select[str, str, str, int | None, str]
) -> Select[str, str, str, int | None, str]:
    request = call.request
    query = where_given(connection, query, (USER_ENTRY.c.user_id, request.user_ids))
    query = query.where(user_entries.not_expired(call.now))
    if request.organization_user_group_ids is not None:
        in_groups = within_ids(connection, call.scope, GROUP_MEMBER.c.group_id, request.organization_user_group_ids)
        query = query.where(USER_ENTRY.c.user_id.in_(select(GROUP_MEMBER.c.user_id).where(in_groups)))
    return query


def _metadata_elsewhere(connection: Connection, scope: Scope, user_ids: list[str]) -> dict[str, dict[str, object]]:
    """The metadata of these users from any entry in the organization."""
    if not user_ids:
        return {}
    query = select(USER_ENTRY.c.user_id, USER_ENTRY.c.payload).where(
        within_ids(connection, scope, USER_ENTRY.c.user_id, user_ids)
    )
    return {user_id: json_columns.load_object(payload) for user_id, payload in connection.execute(query)}


def _remove_everywhere(connection: Connection, scope: Scope, user_ids: Iterable[str]) -> set[str]:
    """Removes the users from the organization and everything in it. Returns those who were in any of it."""
    removed: set[str] = set()
    for table in (USER_ENTRY, GROUP_MEMBER):
        removed |= scopes.existing(connection, scope, table.c.user_id, user_ids)
        delete_rows(connection, scope, table.c.user_id, user_ids)
    return removed


def _ensure_container(call: Call[AddUsersRequest], connection: Connection, container: EntryContainer) -> bool:
    """Creates the organization and the container. Returns False if the folder does not exist, which is created only on
    request, because its place in the tree is unknown."""
    scope, container_id = call.scope, container.container_id
    is_folder = container.level == "folder"
    if is_folder and not call.request.create_folder and not folder_exists(connection, scope, container_id):
        return False
    ensure_organization(connection, scope, call.now)
    if is_folder:
        ensure_folder(connection, scope, container_id, call.backend.settings, call.now)
    elif container.level == "document":
        ensure_document(connection, scope, container_id, call.now)
    return True


def _container(request: AddUsersRequest | UpdateUsersRequest | GetUsersRequest | DeleteUsersRequest) -> EntryContainer:
    if request.document_id is not None:
        return EntryContainer("document", request.document_id)
    if request.folder_id is not None:
        return EntryContainer("folder", request.folder_id)
    return THE_ORGANIZATION


def _new_entry(user: UserInput) -> Entry:
    payload = json_columns.without_none(initial=derived_initial(user.name)) | _payload(user)
    expires_at = None if user.expires_at is None else user.expires_at * 1000
    return Entry(user.user_id, user.access_role or DEFAULT_ACCESS_ROLE, expires_at, payload)


def _update(entry: Entry, user: UserInput) -> None:
    old_name = entry.payload.get("name")
    was_derived = isinstance(old_name, str) and entry.payload.get("initial") == derived_initial(old_name)
    entry.payload |= _payload(user)
    if user.name is not None and user.initial is None and (was_derived or "initial" not in entry.payload):
        entry.payload.pop("initial", None)
        entry.payload |= json_columns.without_none(initial=derived_initial(user.name))
    if user.access_role is not None:
        entry.access_role = user.access_role
    if user.expires_at is not None:
        entry.expires_at = user.expires_at * 1000


def _payload(user: UserInput) -> dict[str, object]:
    payload = user.unknown_fields()
    # Get Users adds it to each entry. It is not metadata if a client sends it back.
    payload.pop("documentId", None)
    return payload | json_columns.without_none(name=user.name, email=user.email, initial=user.initial)


def derived_initial(name: str | None) -> str | None:
    """The first letter of a name, in upper case. None for an empty name."""
    first = (name or "").strip()[:1]
    # The upper case of some letters is two letters.
    return (first.upper() if len(first.upper()) == 1 else first) or None
