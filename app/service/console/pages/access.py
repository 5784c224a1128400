"""The pages of lists of access: what a user may open, and who may open a resource."""

from collections.abc import Sequence
from typing import cast

from flask import Response
from sqlalchemy import Connection
from werkzeug.exceptions import BadRequest

from app.access.browse.lookup import may_be_stored
from app.access.listing.page import AccessEntry, Denial
from app.access.listing.resources import RESOURCE_TYPES, ListedType, ResourceList, list_resources
from app.access.listing.users import Openness, UserList, list_users
from app.service.console.console import Console, one_of, query
from app.service.console.paging import Lists
from app.service.console.views import VIEWS


@VIEWS.read("access")
def access(console: Console, connection: Connection) -> Response:
    parameters = query("user", "organization", "type", "resource", "after")
    user_id, organization_id = parameters["user"], parameters["organization"]
    kind, resource_id = parameters["type"], parameters["resource"]
    one_of(kind, RESOURCE_TYPES, "type")
    if bool(user_id) == bool(kind) or not organization_id or bool(kind) != bool(resource_id):
        raise BadRequest("needs organization, and either user, or type and resource")
    if not may_be_stored(user_id, organization_id, resource_id):
        raise BadRequest("an id contains characters that no id has")
    lists = Lists(parameters["after"], {"access": 2}, user_id, organization_id, kind, resource_id)
    at, policy = console.parts.clock(), console.parts.policy
    denied: Denial | None = None
    openness: Openness | None = None

    def read(after: Sequence[str], limit: int) -> Sequence[AccessEntry]:
        nonlocal denied, openness
        if user_id:
            if after and after[0] not in RESOURCE_TYPES:
                raise BadRequest("after is not a position in this list; start from its first page")
            wanted = ResourceList(organization_id=organization_id, user_id=user_id, at=at)
            last = (cast("ListedType", after[0]), after[1]) if after else None
            page = list_resources(connection, wanted, policy, after=last, limit=limit)
        else:
            of = UserList(
                organization_id=organization_id, type=cast("ListedType", kind), resource_id=resource_id, at=at
            )
            found = list_users(connection, of, policy, after=after[1] if after else "", limit=limit)
            page, openness = found.page, found.openness
        denied = page.denied
        return page.entries

    listing = lists.page("access", read, lambda entry: (entry.kind, entry.item_id))
    return console.show(
        "access.html",
        current="browse",
        user_id=user_id,
        organization_id=organization_id,
        type=kind,
        resource_id=resource_id,
        listing=listing,
        denied=denied,
        openness=openness,
    )
