"""Organization user groups: add groups, add users to one, take users out of one."""

from operator import attrgetter

from sqlalchemy import Connection, delete, select

from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, all_failed, by_id, per_id
from app.backend.resources.containers import NO_ORGANIZATION, ensure_organization, organization_exists
from app.backend.resources.removed_users import note_removed
from app.backend.resources.tables import GROUP_MEMBER, USER_GROUP
from app.backend.scope import Scope, existing, within
from app.backend.storage import json_sets
from app.backend.storage.rows import insert_rows
from app.contract.groups import AddGroupsRequest, AddUsersToGroupsRequest, DeleteUsersFromGroupsRequest, GroupInput


def add_groups(call: Call[AddGroupsRequest], connection: Connection) -> Reply:
    request = call.request
    scope = call.scope
    groups = by_id(request.organization_user_groups, attrgetter("group_id"))
    if not groups:
        return Reply("No groups to add.", {})
    if request.create_organization:
        ensure_organization(connection, scope, call.now)
    elif not organization_exists(connection, scope):
        return Reply("Groups processed.", all_failed(groups, NO_ORGANIZATION))
    there = existing(connection, scope, USER_GROUP.c.group_id, groups)
    new = {group_id: group for group_id, group in groups.items() if group_id not in there}
    rows = [_row(scope, group_id, _payload(group), call.now) for group_id, group in new.items()]
    insert_rows(connection, USER_GROUP, rows)
    return Reply("Groups processed.", per_id(groups, new, "Group added.", "Group already exists."))


def add_users_to_groups(call: Call[AddUsersToGroupsRequest], connection: Connection) -> Reply:
    """Someone who is in the group already stays in it: that is what was asked for."""
    request = call.request
    scope = call.scope
    group_id = request.organization_user_group_id
    wanted = dict.fromkeys(request.user_ids)
    if not wanted:
        return Reply("No users to add.", {})
    if not organization_exists(connection, scope):
        return Reply("Users processed.", {user_id: _failed(group_id, NO_ORGANIZATION) for user_id in wanted})
    if not existing(connection, scope, USER_GROUP.c.group_id, [group_id]):
        insert_rows(connection, USER_GROUP, [_row(scope, group_id, {}, call.now)])
    there = _members(connection, scope, group_id, list(wanted))
    rows = [
        scope.columns() | {"group_id": group_id, "user_id": user_id, "created_at": call.now}
        for user_id in wanted
        if user_id not in there
    ]
    insert_rows(connection, GROUP_MEMBER, rows)
    results: Results = {
        user_id: _done(group_id, "User is in the group already." if user_id in there else "User added to the group.")
        for user_id in wanted
    }
    return Reply("Users added to the group.", results)


def delete_users_from_groups(call: Call[DeleteUsersFromGroupsRequest], connection: Connection) -> Reply:
    request = call.request
    scope = call.scope
    group_id = request.organization_user_group_id
    there = _members(connection, scope, group_id, request.user_ids)
    connection.execute(
        delete(GROUP_MEMBER).where(
            within(GROUP_MEMBER, scope),
            GROUP_MEMBER.c.group_id == group_id,
            GROUP_MEMBER.c.user_id.in_(json_sets.texts(connection, there)),
        )
    )
    note_removed(connection, scope, there)
    named = dict.fromkeys(sorted(there) if request.user_ids is None else request.user_ids)
    results: Results = {
        user_id: _done(group_id, "User removed from the group.")
        if user_id in there
        else _failed(group_id, "User does not exist in the group.")
        for user_id in named
    }
    return Reply("Users removed from the group.", results)


def _members(connection: Connection, scope: Scope, group_id: str, user_ids: list[str] | None) -> set[str]:
    """Those of the users who are in the group; all of its members without a list."""
    query = select(GROUP_MEMBER.c.user_id).where(within(GROUP_MEMBER, scope), GROUP_MEMBER.c.group_id == group_id)
    if user_ids is not None:
        query = query.where(GROUP_MEMBER.c.user_id.in_(json_sets.texts(connection, user_ids)))
    return set(connection.scalars(query))


def _row(scope: Scope, group_id: str, payload: dict[str, object], now: int) -> dict[str, object]:
    payload_text = json_sets.dump(payload)
    return scope.columns() | {"group_id": group_id, "payload": payload_text, "created_at": now, "updated_at": now}


def _payload(group: GroupInput) -> dict[str, object]:
    return group.unknown_fields() | json_sets.without_none(groupName=group.group_name)


def _done(group_id: str, message: str) -> dict[str, object]:
    return {"success": True, "organizationUserGroupId": group_id, "message": message}


def _failed(group_id: str, message: str) -> dict[str, object]:
    return {"success": False, "organizationUserGroupId": group_id, "message": message}
