"""Handlers of organization user groups: add groups, add and remove members."""

from sqlalchemy import Connection, delete, select

from app.backend.http.call import Call, Reply
from app.backend.http.results import Results, all_failed, by_id, per_id
from app.backend.resources.containers import NO_ORGANIZATION, ensure_organization, organization_exists
from app.backend.resources.removed_users import mark_removed
from app.backend.resources.tables import GROUP_MEMBER, USER_GROUP
from app.backend.scope import Scope, existing, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import insert_rows, where_given
from app.contract.groups import AddGroupsRequest, AddUsersToGroupsRequest, DeleteUsersFromGroupsRequest


def add_groups(call: Call[AddGroupsRequest], connection: Connection) -> Reply:
    request, scope = call.request, call.scope
    groups = by_id(request.organization_user_groups, "group_id")
    if not groups:
        return Reply("No groups to add.", {})
    if request.create_organization:
        ensure_organization(connection, scope, call.now)
    elif not organization_exists(connection, scope):
        return Reply("Groups processed.", all_failed(groups, NO_ORGANIZATION))
    stored = existing(connection, scope, USER_GROUP.c.group_id, groups)
    new = {group_id: group for group_id, group in groups.items() if group_id not in stored}
    rows = [
        scope.payload_row(
            group.unknown_fields() | json_columns.without_none(groupName=group.group_name), call.now, group_id=group_id
        )
        for group_id, group in new.items()
    ]
    insert_rows(connection, USER_GROUP, rows)
    return Reply("Groups processed.", per_id(groups, new, "Group added.", "Group already exists."))


def add_users_to_groups(call: Call[AddUsersToGroupsRequest], connection: Connection) -> Reply:
    """Adding a user who is in the group already succeeds."""
    scope = call.scope
    group_id = call.request.organization_user_group_id
    user_ids = dict.fromkeys(call.request.user_ids)
    if not user_ids:
        return Reply("No users to add.", {})
    if not organization_exists(connection, scope):
        return Reply(
            "Users processed.", {user_id: _result(group_id, NO_ORGANIZATION, success=False) for user_id in user_ids}
        )
    if not existing(connection, scope, USER_GROUP.c.group_id, [group_id]):
        insert_rows(connection, USER_GROUP, [scope.payload_row({}, call.now, group_id=group_id)])
    members = _members(connection, scope, group_id, list(user_ids))
    rows = [
        scope.columns() | {"group_id": group_id, "user_id": user_id, "created_at": call.now}
        for user_id in user_ids
        if user_id not in members
    ]
    insert_rows(connection, GROUP_MEMBER, rows)
    results: Results = {
        user_id: _result(
            group_id,
            "User is in the group already." if user_id in members else "User added to the group.",
            success=True,
        )
        for user_id in user_ids
    }
    return Reply("Users added to the group.", results)


def delete_users_from_groups(call: Call[DeleteUsersFromGroupsRequest], connection: Connection) -> Reply:
    request, scope = call.request, call.scope
    group_id = request.organization_user_group_id
    members = _members(connection, scope, group_id, request.user_ids)
    in_group = GROUP_MEMBER.c.group_id == group_id
    connection.execute(
        delete(GROUP_MEMBER).where(in_group, within_ids(connection, scope, GROUP_MEMBER.c.user_id, members))
    )
    mark_removed(connection, scope, members)
    results: Results = {
        user_id: _result(group_id, "User removed from the group.", success=True)
        if user_id in members
        else _result(group_id, "User does not exist in the group.", success=False)
        for user_id in dict.fromkeys(sorted(members) if request.user_ids is None else request.user_ids)
    }
    return Reply("Users removed from the group.", results)


def _members(connection: Connection, scope: Scope, group_id: str, user_ids: list[str] | None) -> set[str]:
    """The members of the group, all or those of these users."""
    query = select(GROUP_MEMBER.c.user_id).where(within(GROUP_MEMBER, scope), GROUP_MEMBER.c.group_id == group_id)
    return set(connection.scalars(where_given(connection, query, (GROUP_MEMBER.c.user_id, user_ids))))


def _result(group_id: str, message: str, *, success: bool) -> dict[str, object]:
    return {"success": success, "organizationUserGroupId": group_id, "message": message}
