"""The lists of access: who can open a resource, and what a user can open. Each is also exported as CSV."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from typing import Any, cast

from flask import Response, stream_with_context
from sqlalchemy import Connection
from werkzeug.exceptions import BadRequest, NotFound

from app.access.browse.grants import (
    MAX_GROUPS,
    GrantEntry,
    ResourceIds,
    grants_of_user,
    grants_on_levels,
    grants_through_groups,
)
from app.access.browse.lists import users_in
from app.access.browse.lookup import find, find_names, folder_paths, folders_from
from app.access.browse.sizes import MAX_COUNT, organization_size
from app.access.decision.decide import DecisionPolicy, is_active
from app.access.listing.find import DeniedHit, find_in_list
from app.access.listing.page import AccessEntry, AccessPage
from app.access.listing.resources import RESOURCE_TYPES, ResourceList
from app.access.listing.users import UserList
from app.access.records import AccessRole, Document, Folder, Group, Membership, ResourceKind
from app.access.search import fold
from app.access.sql_view import SqlView
from app.contract.limits import ID_BYTES
from app.foundation.clock import utc_text
from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.names import read_names
from app.service.console.paging import PAGE_ROWS, Listing, Lists, invalid_cursor
from app.service.console.urls import one_of, query
from app.service.console.views import VIEWS

_QUESTION = ("user", "organization", "type", "resource")
_FILTERS = ("q", "kind", "role")
_MAX_REASONS = 20
"""Grants of each sort that are listed as reasons."""
_ROWS_PER_READ = 500
_COUNT_LIMIT = 350
"""The maximum number of entries that the first page counts. Each is decided, which takes about 70 us."""
_COUNTED_SIZE = 5_000
"""If an organization has fewer members, or folders and documents, as many entries are counted."""
_COLUMNS = ("type", "id", "name", "role", "rule", "groups", "granted_on", "until", "revision")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Spreadsheets calculate cells that begin with one of these."""


@VIEWS.read("access")
def access(console: Console, connection: Connection) -> Response:
    parameters = query(*_QUESTION, *_FILTERS, "after")
    list_query = _ListQuery.of(console, parameters)
    text = parameters["q"].strip()
    filters = filter(None, (list_query.kind, list_query.role))
    lists = Lists(parameters["after"], {"access": 3}, *list_query.ids, *filters)
    sizes = organization_size(connection, list_query.organization_id)
    listed = sizes["folders"] + sizes["documents"] if list_query.user_id else sizes["members"]
    count_limit = _COUNTED_SIZE if listed < _COUNTED_SIZE else _COUNT_LIMIT
    counts, without = None, list[DeniedHit]()
    if text:
        result = list_query.read(connection, (), 0)
        allowed, without = find_in_list(connection, list_query.list, console.parts.policy, text, PAGE_ROWS)
        listing = Listing(allowed)
    else:
        listing, counts, result = _page(connection, list_query, lists, count_limit)
    is_filtered = bool(text or list_query.kind or list_query.role)
    keys = [(entry.kind, entry.item_id) for entry in listing.rows]
    keys += [(record.kind, record.item_id) for record in without]
    read_reasons = _reasons_of_user if list_query.user_id else _reasons_of_resource
    return console.show(
        "access.html",
        current="browse",
        list_query=list_query,
        searched=text,
        is_filtered=is_filtered,
        listing=listing,
        without=without,
        counts=None if lists.continued or is_filtered else counts,
        count_limit=count_limit,
        denied=result.denied,
        openness=result.openness,
        sizes=sizes,
        public_role=console.parts.policy.public_role,
        reasons=None if lists.continued or is_filtered or result.denied else read_reasons(connection, list_query),
        paths=folder_paths(connection, list_query.organization_id, keys),
        **_names(connection, list_query, listing.rows),
    )


def _page(
    connection: Connection, list_query: "_ListQuery", lists: Lists, count_limit: int
) -> tuple[Listing[AccessEntry], dict[str, int] | None, AccessPage]:
    """The page of a list, its numbers if it was read from its beginning, and what was read. A short list has the order
    of paths and names, a longer one that of ids."""
    after, counts = lists.after, None
    if after[:1] == ("id",):
        result = list_query.read(connection, after[1:], PAGE_ROWS + 1)
        rows = [("id", entry) for entry in result.entries]
    else:
        result = list_query.read(connection, (), max(PAGE_ROWS, count_limit) + 1)
        counts = _counts(result.entries, count_limit)
        if counts["complete"]:
            rows = [("name", entry) for entry in _by_path(connection, list_query, result.entries, after[1:])]
        elif after:
            raise invalid_cursor()
        else:
            rows = [("id", entry) for entry in result.entries]
    page = lists.cut("access", rows, lambda row: (row[0], row[1].kind, row[1].item_id))
    return Listing([entry for _, entry in page.rows], page.next_after, page.is_first), counts, result


def _by_path(
    connection: Connection, list_query: "_ListQuery", entries: Sequence[AccessEntry], after: Sequence[str]
) -> Sequence[AccessEntry]:
    """The entries in the order of paths and names, after the one with this kind and id."""
    paths = folder_paths(connection, list_query.organization_id, [(entry.kind, entry.item_id) for entry in entries])
    kinds = ("user", *RESOURCE_TYPES)

    def place(entry: AccessEntry) -> tuple[int, str, str, str]:
        path = " / ".join([*paths.get((entry.kind, entry.item_id), ()), entry.name])
        return kinds.index(entry.kind), fold(path), entry.name, entry.item_id

    ordered = sorted(entries, key=place)
    if not after:
        return ordered
    keys = [(entry.kind, entry.item_id) for entry in ordered]
    if tuple(after) not in keys:
        raise invalid_cursor()
    return ordered[keys.index((after[0], after[1])) + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reasons:
    """The first grants that open something to the user, or the resource to somebody."""

    grants: Sequence[GrantEntry]
    is_cut: bool
    """Whether there are more grants."""
    users: Mapping[str, int]
    """Group → the number of its users."""
    membership: Membership | None
    """The user's membership, if it is active."""


def _reasons_of_user(connection: Connection, list_query: "_ListQuery") -> _Reasons:
    within, user_id, at = list_query.organization_id, list_query.user_id, list_query.at
    view = SqlView(connection)
    group_ids = list(view.groups(within, user_id))[:MAX_GROUPS]
    own = grants_of_user(connection, within, user_id, after=(), limit=_MAX_REASONS + 1)
    through = grants_through_groups(connection, within, user_id, group_ids, after=(), limit=_MAX_REASONS + 1, now=at)
    membership = view.membership(within, user_id)
    return _Reasons(
        grants=[*own[:_MAX_REASONS], *through[:_MAX_REASONS]],
        is_cut=max(len(own), len(through)) > _MAX_REASONS,
        users={},
        membership=membership if membership is not None and is_active(membership, at) else None,
    )


def _reasons_of_resource(connection: Connection, list_query: "_ListQuery") -> _Reasons:
    within, resource_id = list_query.organization_id, list_query.resource_id
    levels: list[ResourceIds] = []
    folder_id = resource_id if list_query.type == "folder" else None
    if list_query.type == "document":
        levels = [ResourceIds(document_id=resource_id)]
        document = find(connection, Document, within, resource_id)
        folder_id = None if document is None else document.folder_id
    levels += [ResourceIds(folder.folder_id) for folder in folders_from(connection, within, folder_id).folders]
    grants = grants_on_levels(connection, within, levels, after=(), limit=_MAX_REASONS + 1, now=list_query.at)
    groups = {grant.holder_id for grant in grants[:_MAX_REASONS] if grant.holder_kind == "group"}
    return _Reasons(
        grants=grants[:_MAX_REASONS],
        is_cut=len(grants) > _MAX_REASONS,
        users={
            group_id: len(users_in(connection, within, group_id).ids(after="", limit=MAX_COUNT + 1))
            for group_id in groups
        },
        membership=None,
    )


@VIEWS.get("access_csv")
def access_csv(console: Console) -> Response:
    list_query = _ListQuery.of(console, query(*_QUESTION))
    with console.reading() as connection:
        first = list_query.read(connection, (), _ROWS_PER_READ)
    if first.denied is not None:
        raise NotFound(f"There is no list: {first.denied.reason}")

    def parts() -> Iterator[str]:
        # Each part is read in a transaction of its own, so that a slow client keeps none open.
        page = first
        yield _lines([_COLUMNS])
        while page.entries:
            yield _lines(_cells(entry, page.revision) for entry in page.entries)
            if not page.has_more:
                return
            last = page.entries[-1]
            with console.reading() as connection:
                page = list_query.read(connection, (last.kind, last.item_id), _ROWS_PER_READ)

    response = Response(stream_with_context(parts()), content_type="text/csv; charset=utf-8")
    subject = f"access-{list_query.type or 'user'}-{list_query.user_id or list_query.resource_id}"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", subject)[:80]
    response.headers["Content-Disposition"] = f"attachment; filename={name}.csv"
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListQuery:
    """Which list of access: that of a user, or that of a resource, and its filters."""

    organization_id: str
    user_id: str
    """Empty: the list contains the users of a resource."""
    type: str
    resource_id: str
    kind: str = ""
    """The kind of the resources that are listed. Empty: all kinds."""
    role: str = ""
    """The role that is listed. Empty: both roles."""
    at: datetime
    policy: DecisionPolicy

    @classmethod
    def of(cls, console: Console, parameters: Mapping[str, str]) -> "_ListQuery":
        """Parses the query parameters. Raises ``BadRequest``."""
        user_id, organization_id, kind, resource_id = (parameters[name] for name in _QUESTION)
        one_of(kind, RESOURCE_TYPES, "type")
        if (
            bool(user_id) == bool(kind)
            or (kind and parameters.get("kind"))
            or not organization_id
            or bool(kind) != bool(resource_id)
        ):
            raise BadRequest("The address needs organization, and either user, or type and resource")
        if kind == "organization" and resource_id != organization_id:
            raise BadRequest("resource must equal organization if type is organization")
        if any(len(id_.encode("utf-8", "surrogatepass")) > ID_BYTES for id_ in (user_id, organization_id, resource_id)):
            raise BadRequest(f"an id has at most {ID_BYTES} bytes")
        if not may_be_stored(user_id, organization_id, resource_id):
            raise BadRequest("an id contains characters that no id has")
        return cls(
            organization_id=organization_id,
            user_id=user_id,
            type=kind,
            resource_id=resource_id,
            kind=one_of(parameters.get("kind", ""), RESOURCE_TYPES[1:], "kind"),
            role=one_of(parameters.get("role", ""), tuple(AccessRole), "role"),
            at=console.parts.clock(),
            policy=console.parts.policy,
        )

    @property
    def ids(self) -> tuple[str, str, str, str]:
        return self.user_id, self.organization_id, self.type, self.resource_id

    @property
    def list(self) -> ResourceList | UserList:
        """The list, with the filters of kind and role."""
        role = AccessRole(self.role) if self.role else None
        if not self.user_id:
            return UserList(
                organization_id=self.organization_id,
                type=cast("ResourceKind", self.type),
                resource_id=self.resource_id,
                role=role,
                at=self.at,
            )
        types = (cast("ResourceKind", self.kind),) if self.kind else RESOURCE_TYPES
        return ResourceList(
            organization_id=self.organization_id, user_id=self.user_id, types=types, role=role, at=self.at
        )

    def read(self, connection: Connection, after: Sequence[str], limit: int) -> AccessPage:
        """A page after an entry, which ``after`` identifies by kind and id, or the first page."""
        if self.user_id and after and after[0] not in RESOURCE_TYPES:
            raise invalid_cursor()
        return self.list.page(connection, self.policy, after=after, limit=limit)


def _counts(entries: Sequence[AccessEntry], limit: int) -> dict[str, int]:
    """The numbers of a list, without the organization itself. ``complete``: it has no further entries."""
    counted = [entry for entry in entries if entry.kind != "organization"]
    kinds = Counter(entry.kind for entry in counted)
    return {
        "all": len(counted),
        "complete": len(entries) <= limit,
        "editors": sum(entry.access_role is AccessRole.EDITOR for entry in counted),
        "granted": sum(bool(entry.grants) for entry in counted),
        "ending": sum(entry.expires_at is not None for entry in counted),
        **{kind: kinds[kind] for kind in RESOURCE_TYPES},
    }


def _names(connection: Connection, list_query: _ListQuery, entries: Iterable[AccessEntry]) -> dict[str, Any]:
    within = list_query.organization_id
    subject = (list_query.type, within, list_query.resource_id)
    if list_query.user_id:
        subject = ("user", "", list_query.user_id)
    names = read_names(connection, [subject, ("organization", "", within)])
    grants = [grant for entry in entries for grant in entry.grants]
    groups = {(within, grant.organization_user_group_id) for grant in grants if grant.organization_user_group_id}
    folders = {(within, grant.folder_id) for grant in grants if grant.folder_id}
    return {
        "organization_name": names("organization", "", within) or within,
        "name": names(*subject) or list_query.user_id or list_query.resource_id,
        "group_names": {key[1]: name for key, name in find_names(connection, Group, groups).items()},
        "folder_names": {key[1]: name for key, name in find_names(connection, Folder, folders).items()},
    }


def _cells(entry: AccessEntry, revision: int) -> Sequence[str]:
    granted_on = ""
    if entry.grants:
        grant = entry.grants[0]
        granted_on = f"document {grant.document_id}" if grant.folder_id is None else f"folder {grant.folder_id}"
    return (
        entry.kind,
        entry.item_id,
        entry.name,
        entry.access_role.value,
        entry.rule.value,
        " ".join(grant.organization_user_group_id or "" for grant in entry.grants),
        granted_on,
        "" if entry.expires_at is None else utc_text(entry.expires_at),
        str(revision),
    )


def _lines(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV. A cell that a spreadsheet would calculate begins with an apostrophe."""
    text = StringIO()
    csv.writer(text).writerows([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row] for row in rows)
    return text.getvalue()
