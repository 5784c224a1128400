"""Users at the three levels: add, update, read with every filter, delete."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from sqlalchemy import Connection, Select, delete, select, union

from app.backend.http.call import Call, Reply
from app.backend.http.results import TOO_HEAVY, Results, all_failed, by_id, done, failed, grows_too_heavy, per_id
from app.backend.resources import user_entries
from app.backend.resources.containers import (
    NO_FOLDER,
    ensure_document,
    ensure_folder,
    ensure_organization,
    folder_exists,
)
from app.backend.resources.removed_users import note_removed, welcome
from app.backend.resources.tables import GROUP_MEMBER, USER_ENTRY
from app.backend.resources.user_entries import THE_ORGANIZATION, Entry, EntryContainer
from app.backend.scope import Scope, within
from app.backend.storage import json_sets
from app.backend.storage.paging import cut, page_rows
from app.backend.storage.rows import insert_rows
from app.contract.base import DEFAULT_ACCESS_ROLE
from app.contract.users import AddUsersRequest, DeleteUsersRequest, GetUsersRequest, UpdateUsersRequest, UserInput

_COLUMNS = (
    USER_ENTRY.c.container_id,
    USER_ENTRY.c.user_id,
    USER_ENTRY.c.access_role,
    USER_ENTRY.c.expires_at,
    USER_ENTRY.c.payload,
)
NO_USER = "User does not exist."
_TOLD_BY_GET_USERS = frozenset({"documentId"})
"""What it says of an entry itself, and therefore is nobody's metadata."""


def add_users(call: Call[AddUsersRequest], connection: Connection) -> Reply:
    request = call.request
    users = by_id(request.users, attrgetter("user_id"))
    if not users:
        return Reply("No users to add.", {})
    scope = call.scope
    container = _container(request)
    problem = _make_room(call, connection, scope, container)
    if problem is not None:
        return Reply("Users processed.", all_failed(users, problem))
    user_entries.drop_expired(connection, scope, container, call.now, users)
    there = user_entries.existing(connection, scope, container, users)
    new = {user_id: user for user_id, user in users.items() if user_id not in there}
    rows = [user_entries.row(scope, container, _new_entry(user), call.now) for user in new.values()]
    insert_rows(connection, USER_ENTRY, rows)
    if container == THE_ORGANIZATION:
        welcome(connection, scope, users)
    return Reply("User(s) added successfully.", per_id(users, new, "User added.", "User already exists."))


def update_users(call: Call[UpdateUsersRequest], connection: Connection) -> Reply:
    scope = call.scope
    container = _container(call.request)
    entries = user_entries.load(connection, scope, container, {user.user_id for user in call.request.users}, call.now)
    results: Results = {}
    for user in call.request.users:
        entry = entries.get(user.user_id)
        if entry is None:
            results[user.user_id] = failed(user.user_id, NO_USER)
            continue
        if grows_too_heavy(entry.payload, entry.payload | _payload(user)):
            results[user.user_id] = failed(user.user_id, TOO_HEAVY)
            continue
        _change(entry, user)
        results[user.user_id] = done(user.user_id, "User updated.")
    user_entries.save(connection, [user_entries.row(scope, container, entry, call.now) for entry in entries.values()])
    return Reply("User(s) updated successfully.", results)


def delete_users(call: Call[DeleteUsersRequest], connection: Connection) -> Reply:
    scope = call.scope
    container = _container(call.request)
    wanted = dict.fromkeys(call.request.user_ids)
    if container == THE_ORGANIZATION:
        there = _remove_everywhere(connection, scope, wanted)
    else:
        there = user_entries.existing(connection, scope, container, wanted)
        connection.execute(
            delete(USER_ENTRY).where(
                user_entries.at(scope, container), USER_ENTRY.c.user_id.in_(json_sets.texts(connection, there))
            )
        )
    note_removed(connection, scope, there)
    if container.level != "folder":
        call.backend.cascade.delete_of_users(connection, scope, there, container.container_id or None)
    results: Results = {
        user_id: {"success": True, "message": "User removed."}
        if user_id in there
        else {"success": False, "message": NO_USER}
        for user_id in wanted
    }
    return Reply("User(s) deleted successfully.", results)


def get_users(call: Call[GetUsersRequest], connection: Connection) -> Reply:
    request = call.request
    if request.all_documents:
        return _users_of_all_documents(call, connection)
    container = _container(request)
    if container == THE_ORGANIZATION and request.organization_user_group_ids is not None:
        return _members_of_groups(call, connection)
    query = _filtered(call, connection, select(*_COLUMNS).where(user_entries.at(call.scope, container)))
    page, token = call.page(connection, query, (USER_ENTRY.c.user_id,))
    return Reply("User(s) retrieved successfully.", [user_entries.row_to_wire(found) for found in page], token)


def _users_of_all_documents(call: Call[GetUsersRequest], connection: Connection) -> Reply:
    """One entry per document and user, by document. Ungrouped, each says which document it is about."""
    query = select(*_COLUMNS).where(within(USER_ENTRY, call.scope), USER_ENTRY.c.level == "document")
    query = _filtered(call, connection, query)
    page, token = call.page(connection, query, (USER_ENTRY.c.container_id, USER_ENTRY.c.user_id))
    if call.request.group_by_document_id:
        documents: dict[str, list[dict[str, object]]] = {}
        for found in page:
            documents.setdefault(found.container_id, []).append(user_entries.row_to_wire(found))
        return Reply("User(s) retrieved successfully.", documents, token)
    data = [user_entries.row_to_wire(found) | {"documentId": found.container_id} for found in page]
    return Reply("User(s) retrieved successfully.", data, token)


def _members_of_groups(call: Call[GetUsersRequest], connection: Connection) -> Reply:
    """Everybody who is in one of the groups, also those who stand on no more than a folder or a document of the
    organization.
    """
    request = call.request
    scope = call.scope
    size = page_rows(request.page_size)
    after = call.position(request.page_token)
    group_ids = dict.fromkeys(request.organization_user_group_ids or ())
    first_of_each = [_first_members(call, connection, group_id, after, size + 1) for group_id in group_ids]
    members: list[str] = []
    if first_of_each:
        members = list(connection.scalars(union(*first_of_each).order_by("user_id").limit(size + 1)))
    entries = user_entries.load(connection, scope, THE_ORGANIZATION, members, call.now)
    elsewhere = _metadata_elsewhere(connection, scope, [user_id for user_id in members if user_id not in entries])
    found = [
        user_entries.to_wire(user_id, entry.access_role, entry.expires_at, entry.payload)
        if (entry := entries.get(user_id)) is not None
        else user_entries.to_wire(user_id, None, None, elsewhere.get(user_id, {}))
        for user_id in members
    ]
    page, more = cut(found, size, lambda wire: len(json_sets.dump(wire)))
    token = call.next_page_token([members[len(page) - 1]]) if more else None
    return Reply("User(s) retrieved successfully.", page, token)


def _first_members(
    call: Call[GetUsersRequest], connection: Connection, group_id: str, after: Sequence[str] | None, number: int
) -> Select[str]:
    """So many of one group's members, in the order of their ids. (Asked for all groups at once, PostgreSQL would read
    through everybody who is in any.)
    """
    user_ids = call.request.user_ids
    query = select(GROUP_MEMBER.c.user_id).where(within(GROUP_MEMBER, call.scope), GROUP_MEMBER.c.group_id == group_id)
    if user_ids is not None:
        query = query.where(GROUP_MEMBER.c.user_id.in_(json_sets.texts(connection, user_ids)))
    if after is not None:
        query = query.where(GROUP_MEMBER.c.user_id > after[0])
    return select(query.order_by(GROUP_MEMBER.c.user_id).limit(number).subquery().c.user_id)


def _filtered(
    call: Call[GetUsersRequest], connection: Connection, query: Select[str, str, str, int | None, str]
) -> Select[str, str, str, int | None, str]:
    request = call.request
    query = query.where(user_entries.in_force(call.now))
    if request.user_ids is not None:
        query = query.where(USER_ENTRY.c.user_id.in_(json_sets.texts(connection, request.user_ids)))
    if request.organization_user_group_ids is not None:
        members = select(GROUP_MEMBER.c.user_id).where(
            within(GROUP_MEMBER, call.scope),
            GROUP_MEMBER.c.group_id.in_(json_sets.texts(connection, request.organization_user_group_ids)),
        )
        query = query.where(USER_ENTRY.c.user_id.in_(members))
    return query


def _metadata_elsewhere(connection: Connection, scope: Scope, user_ids: list[str]) -> dict[str, dict[str, object]]:
    """What folders or documents of the organization know about these users."""
    if not user_ids:
        return {}
    query = select(USER_ENTRY.c.user_id, USER_ENTRY.c.payload).where(
        within(USER_ENTRY, scope), USER_ENTRY.c.user_id.in_(json_sets.texts(connection, user_ids))
    )
    return {user_id: json_sets.load_object(payload) for user_id, payload in connection.execute(query)}


def _remove_everywhere(connection: Connection, scope: Scope, user_ids: Iterable[str]) -> set[str]:
    """Takes the users out of the organization with all that is in it; those who were in it anywhere."""
    there: set[str] = set()
    for table in (USER_ENTRY, GROUP_MEMBER):
        whose = table.c.user_id.in_(json_sets.texts(connection, user_ids))
        there |= set(connection.scalars(select(table.c.user_id).distinct().where(within(table, scope), whose)))
        connection.execute(delete(table).where(within(table, scope), whose))
    return there


def _make_room(
    call: Call[AddUsersRequest], connection: Connection, scope: Scope, container: EntryContainer
) -> str | None:
    """Makes what has to be there before users can be added in this container; why that cannot be, if it cannot.

    The organization and the document come into being (with core operations alone there is no other way to make them),
    a folder only on request: Add Folder makes those, and where a folder belongs nobody says here.
    """
    ensures_folder = container.level == "folder" and not folder_exists(connection, scope, container.container_id)
    if ensures_folder and not call.request.create_folder:
        return NO_FOLDER
    ensure_organization(connection, scope, call.now)
    if ensures_folder:
        ensure_folder(connection, scope, container.container_id, call.backend.settings, call.now)
    elif container.level == "document":
        ensure_document(connection, scope, container.container_id, call.now)
    return None


def _container(request: AddUsersRequest | UpdateUsersRequest | GetUsersRequest | DeleteUsersRequest) -> EntryContainer:
    if request.document_id is not None:
        return EntryContainer("document", request.document_id)
    if request.folder_id is not None:
        return EntryContainer("folder", request.folder_id)
    return THE_ORGANIZATION


def _new_entry(user: UserInput) -> Entry:
    payload = _payload(user)
    initial = derived_initial(user.name)
    if user.initial is None and initial is not None:
        payload["initial"] = initial
    expires_at = None if user.expires_at is None else user.expires_at * 1000
    return Entry(user.user_id, user.access_role or DEFAULT_ACCESS_ROLE, expires_at, payload)


def _change(entry: Entry, user: UserInput) -> None:
    old_name = entry.payload.get("name")
    was_derived = isinstance(old_name, str) and entry.payload.get("initial") == derived_initial(old_name)
    entry.payload |= _payload(user)
    if user.name is not None and user.initial is None and (was_derived or "initial" not in entry.payload):
        # An initial that came from the name goes with the name.
        initial = derived_initial(user.name)
        if initial is None:
            entry.payload.pop("initial", None)
        else:
            entry.payload["initial"] = initial
    if user.access_role is not None:
        entry.access_role = user.access_role
    if user.expires_at is not None:
        entry.expires_at = user.expires_at * 1000


def _payload(user: UserInput) -> dict[str, object]:
    payload = {name: value for name, value in user.unknown_fields().items() if name not in _TOLD_BY_GET_USERS}
    return payload | json_sets.without_none(name=user.name, email=user.email, initial=user.initial)


def derived_initial(name: str | None) -> str | None:
    """The first letter of a name, in upper case; None for a name without any."""
    first = (name or "").strip()[:1]
    # Of some letters the upper case is two.
    return (first.upper() if len(first.upper()) == 1 else first) or None
