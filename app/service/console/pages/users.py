"""The pages of users and groups, and the grants that apply to them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from flask import Response
from sqlalchemy import Connection

from app.access.browse.grants import (
    MAX_GROUPS,
    GrantEntry,
    grants_of_groups,
    grants_of_user,
    grants_through_groups,
    starting_at,
)
from app.access.browse.lists import find_organizations, groups_in, outer_groups, users_in
from app.access.browse.lookup import find, find_names
from app.access.browse.sizes import MAX_COUNT, count_related
from app.access.records import Group, Organization, User
from app.access.sql_view import SqlView
from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.failures import failures_now
from app.service.console.pages.browse import resource_key, show_unknown
from app.service.console.paging import Lists
from app.service.console.urls import query
from app.service.console.views import VIEWS
from app.sync.ledger.items import ItemKey, Kind


@VIEWS.read("user")
def user(console: Console, connection: Connection) -> Response:
    parameters = query("id", "organization", "after")
    user_id, organization_id = parameters["id"], parameters["organization"]
    user = find(connection, User, user_id)
    if user is None or not may_be_stored(organization_id):
        return show_unknown(console, connection, "user", "", user_id)
    if not organization_id:
        first = find_organizations(connection, user_id, after="", limit=1)
        organization_id = first[0].item_id if first else ""
    lists = Lists(parameters["after"], {"organizations": 1, "groups": 1, "grants": 3}, user_id, organization_id)
    organizations = lists.page_by_id("organizations", partial(find_organizations, connection, user_id))
    within = find(connection, Organization, organization_id) if organization_id else None
    return console.show(
        "browse_user.html",
        current="browse",
        user=user,
        within=within,
        organization_id=organization_id,
        failures=failures_now(connection, ItemKey(Kind.ORGANIZATION_USER, organization_id, "", user_id)),
        organizations=organizations,
        **_grants(console, connection, lists, organization_id if within is not None else "", user_id),
    )


@VIEWS.read("group")
def group(console: Console, connection: Connection) -> Response:
    parameters = query("organization", "id", "q", "after")
    organization_id, group_id, text = parameters["organization"], parameters["id"], parameters["q"].strip()
    subject = (organization_id, group_id, *filter(None, [text]))
    lists = Lists(parameters["after"], {"users": 3, "inside": 1, "around": 1, "grants": 3}, *subject)
    group = find(connection, Group, organization_id, group_id)
    within = find(connection, Organization, organization_id)
    if group is None or within is None:
        return show_unknown(console, connection, "group", organization_id, group_id)

    users = users_in(connection, organization_id, group_id)
    listing = lists.page_by_name("users", connection, users, text)
    through = {(organization_id, row.within) for row in listing.rows} if listing else set()
    return console.show(
        "browse_group.html",
        current="browse",
        organization=within,
        group=group,
        failures=failures_now(connection, ItemKey(Kind.GROUP, organization_id, "", group_id)),
        sizes=count_related(connection, "group", organization_id, group_id),
        number=len(users.ids(after="", limit=MAX_COUNT + 1)),
        users=listing,
        searched=text,
        group_names={key[1]: name for key, name in find_names(connection, Group, through).items()},
        inside=lists.page_by_id("inside", partial(groups_in, connection, organization_id, group_id)),
        around=lists.page_by_id("around", partial(outer_groups, connection, organization_id, group_id)),
        grants=lists.page("grants", partial(grants_of_groups, connection, organization_id, [group_id]), _group_key),
    )


def _grants(
    console: Console, connection: Connection, lists: Lists, organization_id: str, user_id: str
) -> dict[str, Any]:
    """The groups of a user, and the grants: the user's own, then those of the groups."""
    if not organization_id or lists.continued == "organizations":
        return {"groups": None, "grants": None, "more_groups": False, "chains": {}}
    view = SqlView(connection)
    memberships = view.groups(organization_id, user_id)
    group_ids = list(memberships)[:MAX_GROUPS]
    now = console.parts.clock()

    def groups_after(after: Sequence[str], limit: int) -> Sequence[str]:
        rest = starting_at(group_ids, after[0])[1:] if after else group_ids
        return rest[:limit]

    def read_grants(after: Sequence[str], limit: int) -> Sequence[GrantEntry]:
        rows: list[GrantEntry] = []
        if not after or not after[0]:
            rows, after = grants_of_user(connection, organization_id, user_id, after=after[1:], limit=limit), ()
        rest = limit - len(rows)
        if rest:
            rows += grants_through_groups(
                connection, organization_id, user_id, group_ids, after=after, limit=rest, now=now
            )
        return rows

    def key(grant: GrantEntry) -> Sequence[str]:
        return ("" if grant.holder_kind == "user" else grant.holder_id, *resource_key(grant))

    groups = lists.page("groups", groups_after, lambda group_id: (group_id,))
    grants = lists.page("grants", read_grants, key)
    shown = [
        *([] if groups is None else groups.rows),
        *(() if grants is None else (grant.holder_id for grant in grants.rows if grant.holder_kind == "group")),
    ]
    chains = {
        group_id: [member.organization_user_group_id for member in view.group_path(organization_id, user_id, group_id)]
        for group_id in shown
    }
    keys = {(organization_id, group_id) for chain in chains.values() for group_id in chain}
    return {
        "groups": groups,
        "grants": grants,
        "more_groups": len(memberships) > MAX_GROUPS,
        "chains": chains,
        "group_names": {key[1]: name for key, name in find_names(connection, Group, keys).items()},
    }


def _group_key(grant: GrantEntry) -> Sequence[str]:
    return (grant.holder_id, *resource_key(grant))
