"""People in what the directory holds: users and groups, with what reaches them."""

from collections.abc import Callable, Sequence
from typing import Any

from flask import Response
from sqlalchemy import Connection

from app.access.browse.grants import MAX_GROUPS, GrantEntry, chain_to, grants_of_groups, grants_of_user, groups_of_user
from app.access.browse.lists import ListEntry, groups_in, organizations_of, outer_groups, users_in
from app.access.browse.lookup import find, may_be_stored, names_of
from app.access.browse.sizes import sizes_of
from app.access.records import Group, Membership, Organization, User
from app.service.console.console import Console, query
from app.service.console.pages.browse import show_unknown
from app.service.console.paging import Listing, Lists
from app.service.console.views import Views

VIEWS = Views()


@VIEWS.read("user")
def user(console: Console, connection: Connection) -> Response:
    given = query("id", "organization", "after")
    user_id, organization_id = given["id"], given["organization"]
    found = find(connection, User, user_id)
    if found is None or not may_be_stored(organization_id):
        return show_unknown(console, connection, "user", "", user_id)
    if not organization_id:
        first = organizations_of(connection, user_id, after="", limit=1)
        organization_id = first[0].item_id if first else ""
    lists = Lists(
        given["after"], {"organizations": 1, "groups": 1, "grants": 2, "through": 3}, user_id, organization_id
    )
    organizations = lists.page_by_id(
        "organizations",
        lambda after, limit: organizations_of(connection, user_id, after=after, limit=limit),
        lambda one: one.item_id,
    )
    within = find(connection, Organization, organization_id) if organization_id else None
    return console.show(
        "browse_user.html",
        current="browse",
        user=found,
        within=within,
        organization_id=organization_id,
        membership=None if within is None else find(connection, Membership, organization_id, user_id),
        organizations=organizations,
        sizes=sizes_of(connection, "user", organization_id, user_id),
        turned=lists.turned,
        **_reach_of(console, connection, lists, organization_id if within is not None else "", user_id),
    )


@VIEWS.read("group")
def group(console: Console, connection: Connection) -> Response:
    given = query("organization", "id", "after")
    organization_id, group_id = given["organization"], given["id"]
    lists = Lists(given["after"], {"users": 1, "inside": 1, "around": 1, "grants": 3}, organization_id, group_id)
    found = find(connection, Group, organization_id, group_id)
    within = find(connection, Organization, organization_id)
    if found is None or within is None:
        return show_unknown(console, connection, "group", organization_id, group_id)

    def nested(name: str, read: Callable[..., Sequence[ListEntry]]) -> Listing[ListEntry] | None:
        return lists.page_by_id(
            name,
            lambda after, limit: read(connection, organization_id, group_id, after=after, limit=limit),
            lambda one: one.item_id,
        )

    return console.show(
        "browse_group.html",
        current="browse",
        organization=within,
        group=found,
        sizes=sizes_of(connection, "group", organization_id, group_id),
        turned=lists.turned,
        users=nested("users", users_in),
        inside=nested("inside", groups_in),
        around=nested("around", outer_groups),
        grants=lists.page(
            "grants",
            lambda after, limit: grants_of_groups(connection, organization_id, [group_id], after=after, limit=limit),
            _group_key,
        ),
    )


def _reach_of(
    console: Console, connection: Connection, lists: Lists, organization_id: str, user_id: str
) -> dict[str, Any]:
    """The groups that a user is in, and the grants that reach them: their own, and through groups."""
    if not organization_id or lists.turned == "organizations":
        return {"groups": None, "grants": None, "through": None, "more_groups": False, "chains": {}}
    reached = groups_of_user(connection, organization_id, user_id)
    followed = list(reached)[:MAX_GROUPS]
    now = console.parts.clock()

    def groups_after(after: Sequence[str], limit: int) -> Sequence[str]:
        begin = followed.index(after[0]) + 1 if after and after[0] in reached else 0
        return followed[begin : begin + limit]

    groups = lists.page("groups", groups_after, lambda one: (one,))
    through = lists.page(
        "through",
        lambda after, limit: grants_of_groups(
            connection, organization_id, followed, after=after, limit=limit, user_id=user_id, now=now
        ),
        _group_key,
    )
    shown = [
        *([] if groups is None else groups.rows),
        *(() if through is None else (one.holder_id for one in through.rows)),
    ]
    chains = {one: chain_to(reached, one) for one in shown}
    met = {(organization_id, one) for chain in chains.values() for one in chain}
    return {
        "groups": groups,
        "grants": lists.page(
            "grants",
            lambda after, limit: grants_of_user(connection, organization_id, user_id, after=after, limit=limit),
            lambda one: (one.resource_id, "") if one.resource_kind == "folder" else ("", one.resource_id),
        ),
        "through": through,
        "more_groups": len(reached) > MAX_GROUPS,
        "chains": chains,
        "group_names": {key[1]: name for key, name in names_of(connection, Group, met).items()},
    }


def _group_key(one: GrantEntry) -> Sequence[str]:
    resource = (one.resource_id, "") if one.resource_kind == "folder" else ("", one.resource_id)
    return (one.holder_id, *resource)
