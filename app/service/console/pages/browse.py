"""The pages of the access model: organizations, folders and documents, and the grants on them."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from flask import Response
from sqlalchemy import Connection

from app.access.browse.grants import GrantEntry, ResourceIds, grants_on_levels
from app.access.browse.lists import ListEntry, contents, contents_found, groups, members
from app.access.browse.lookup import find, find_paths, folders_from
from app.access.browse.sizes import count_each, count_related, organization_size, organization_sizes
from app.access.browse.suggestions import suggest
from app.access.decision.ancestry import Ancestry, Obstacle
from app.access.decision.decide import access_type_in_force
from app.access.records import AccessType, Document, Folder, Organization
from app.service.console.console import Console
from app.service.console.failures import failures_now
from app.service.console.paging import PAGE_ROWS, Listing, Lists
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS
from app.sync.ledger.items import ItemKey, Kind

# The lists of a page → the number of texts in the key of a row.
_ORGANIZATIONS = {"organizations": 1}
_CONTENTS = {"contents": 2}
_LISTS_OF_ORGANIZATION = {**_CONTENTS, "members": 3, "groups": 3}
_LISTS_OF_FOLDER = {**_CONTENTS, "grants": 4}
_LISTS_OF_DOCUMENT = {"grants": 4}


@VIEWS.read("browse")
def browse(console: Console, connection: Connection) -> Response:
    lists = Lists(query("after")["after"], _ORGANIZATIONS)
    organizations = lists.page_by_id("organizations", partial(organization_sizes, connection), "organization_id")
    return console.show("browse.html", organizations=organizations)


@VIEWS.read("organization")
def organization(console: Console, connection: Connection) -> Response:
    parameters = query("id", "list", "q", "after")
    organization_id, text = parameters["id"], parameters["q"].strip()
    lists = Lists(parameters["after"], _LISTS_OF_ORGANIZATION, organization_id, *filter(None, [text]))
    shown = lists.continued or one_of(parameters["list"], tuple(_LISTS_OF_ORGANIZATION), "list") or "contents"
    record = find(connection, Organization, organization_id)
    if record is None:
        return show_unknown(console, connection, "organization", "", organization_id)
    if shown != "contents":
        read = members if shown == "members" else groups
        listing = lists.page_by_name(shown, connection, read(connection, organization_id), text)
    elif text:
        listing = Listing(contents_found(connection, organization_id, text, limit=PAGE_ROWS))
    else:
        listing = _contents(connection, lists, organization_id, "")
    assert listing is not None  # noqa: S101 - the page has no other list
    group_ids = [row.item_id for row in listing.rows] if shown == "groups" else []
    return console.show(
        "browse_organization.html",
        current="browse",
        organization=record,
        failures=failures_now(connection, ItemKey(Kind.ORGANIZATION, organization_id, "", organization_id)),
        sizes=organization_size(connection, organization_id),
        shown=shown,
        searched=text,
        listing=listing,
        group_sizes={
            name: count_each(connection, "group", organization_id, group_ids, name) for name in ("users", "grants")
        }
        if group_ids
        else {},
        paths=find_paths(connection, organization_id, [row.within for row in listing.rows if row.within]),
    )


@VIEWS.read("folder")
def folder(console: Console, connection: Connection) -> Response:
    parameters = query("organization", "id", "after")
    organization_id, folder_id = parameters["organization"], parameters["id"]
    lists = Lists(parameters["after"], _LISTS_OF_FOLDER, organization_id, folder_id)
    record = find(connection, Folder, organization_id, folder_id)
    within = find(connection, Organization, organization_id)
    if record is None or within is None:
        return show_unknown(console, connection, "folder", organization_id, folder_id)
    above = folders_from(connection, organization_id, folder_id)
    return console.show(
        "browse_folder.html",
        current="browse",
        organization=within,
        folder=record,
        failures=failures_now(connection, ItemKey(Kind.FOLDER, organization_id, "", folder_id)),
        crumbs=above.folders[:0:-1],  # from the top; without the folder itself
        sizes=count_related(connection, "folder", organization_id, folder_id),
        contents=_contents(connection, lists, organization_id, folder_id),
        default=_access_without_grant(console, within, None, above),
        **_grants(connection, lists, console.parts.clock(), None, above),
    )


@VIEWS.read("document")
def document(console: Console, connection: Connection) -> Response:
    parameters = query("organization", "id", "after")
    organization_id, document_id = parameters["organization"], parameters["id"]
    lists = Lists(parameters["after"], _LISTS_OF_DOCUMENT, organization_id, document_id)
    record = find(connection, Document, organization_id, document_id)
    within = find(connection, Organization, organization_id)
    if record is None or within is None:
        return show_unknown(console, connection, "document", organization_id, document_id)
    above = folders_from(connection, organization_id, record.folder_id)
    return console.show(
        "browse_document.html",
        current="browse",
        organization=within,
        document=record,
        failures=failures_now(connection, ItemKey(Kind.DOCUMENT, organization_id, "", document_id)),
        crumbs=above.folders[::-1],
        default=_access_without_grant(console, within, record, above),
        **_grants(connection, lists, console.parts.clock(), record, above),
    )


def _contents(connection: Connection, lists: Lists, organization_id: str, folder_id: str) -> Listing[ListEntry] | None:
    read = partial(contents, connection, organization_id, folder_id)
    return lists.page("contents", read, lambda row: (row.kind, row.item_id))


def _access_without_grant(
    console: Console, organization: Organization, document: Document | None, above: Ancestry
) -> dict[str, object]:
    """The access of users without a grant: the access type in force, the folder that has it, and its meaning."""
    access_type, levels = access_type_in_force(document, above, organization)
    last = levels[-1]
    folder = (last.folder_id, last.folder_name) if isinstance(last, Folder) else None
    means = {
        AccessType.PUBLIC: f"members have the role of their membership, and every other user is"
        f" {console.parts.policy.public_role}",
        AccessType.ORGANIZATION_PRIVATE: "members have the role of their membership, and every other user is denied",
        AccessType.RESTRICTED: "every user without a grant is denied",
    }[access_type]
    open_to = {
        AccessType.PUBLIC: "open to every user",
        AccessType.ORGANIZATION_PRIVATE: "open to members",
        AccessType.RESTRICTED: "open to nobody",
    }[access_type]
    closed = ""
    if organization.disabled:
        closed = "The organization is disabled, so every user is denied."
    elif above.obstacle is Obstacle.UNKNOWN:
        closed = "A folder above it is not in the directory, so every user is denied, even with a grant."
    elif above.obstacle is Obstacle.CYCLE:
        closed = "The folders above it contain each other, so every user is denied, even with a grant."
    return {
        "type": access_type.value,
        "folder": folder,
        "means": means,
        "open_to": "open to nobody" if closed else open_to,
        "closed": closed,
    }


def _grants(
    connection: Connection, lists: Lists, now: datetime, document: Document | None, above: Ancestry
) -> dict[str, Any]:
    """The grants on the document, or the folder, and on the folders above."""
    resource = above.folders[0] if document is None else document
    levels: list[ResourceIds] = [] if document is None else [ResourceIds(document_id=document.document_id)]
    levels += [ResourceIds(folder.folder_id) for folder in above.folders]

    def key(grant: GrantEntry) -> Sequence[str]:
        holder = (grant.holder_id, "") if grant.holder_kind == "user" else ("", grant.holder_id)
        return (*resource_key(grant), *holder)

    read = partial(grants_on_levels, connection, resource.organization_id, levels, now=now)
    return {"grants": lists.page("grants", read, key), "own_level": levels[0]}


def resource_key(grant: GrantEntry) -> ResourceIds:
    """The part of a cursor that identifies the resource of a grant."""
    is_folder = grant.resource_kind == "folder"
    return ResourceIds(grant.resource_id) if is_folder else ResourceIds(document_id=grant.resource_id)


def show_unknown(console: Console, connection: Connection, kind: str, organization_id: str, item_id: str) -> Response:
    """The page for a record that is not in the directory, with similar ones. Its status is 404."""
    return console.show(
        "browse_unknown.html",
        current="browse",
        status=404,
        kind=kind,
        organization_id=organization_id,
        item_id=item_id,
        similar=suggest(connection, kind, organization_id, item_id),
    )
