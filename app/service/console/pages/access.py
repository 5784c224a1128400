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

from app.access.browse.grants import MAX_GROUPS, grants_of_groups, grants_of_user, grants_on_levels
from app.access.browse.lists import people_in
from app.access.browse.lookup import find, folder_paths, folders_from, name_of, names_of
from app.access.browse.sizes import MAX_COUNT, organization_size
from app.access.decision.decide import DecisionPolicy, is_active
from app.access.listing.find import FoundWithout, find_in_list
from app.access.listing.page import AccessEntry, AccessPage
from app.access.listing.resources import RESOURCE_TYPES, ResourceList
from app.access.listing.users import UserList
from app.access.records import AccessRole, Document, Folder, Group, Organization, ResourceKind, User
from app.access.search import fold
from app.access.sql_view import SqlView
from app.contract.limits import ID_BYTES
from app.foundation.clock import utc_text
from app.foundation.ids import may_be_stored
from app.service.console.console import Console, one_of, query
from app.service.console.paging import PAGE_ROWS, Listing, Lists, invalid_cursor
from app.service.console.views import VIEWS

_QUESTION = ("user", "organization", "type", "resource")
_FILTERS = ("q", "kind", "role")
_MAX_REASONS = 20
"""Grants of each sort that are listed as reasons."""
_ROWS_PER_READ = 500
_COUNT_LIMIT = 350
"""The maximum number of entries that the first page counts. Each is decided, which takes about 70 us."""
_COLUMNS = ("type", "id", "name", "role", "rule", "groups", "granted_on", "until", "revision")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Spreadsheets calculate cells that begin with one of these."""


@VIEWS.read("access")
def access(console: Console, connection: Connection) -> Response:
    parameters = query(*_QUESTION, *_FILTERS, "after")
    wanted = _AccessQuery.of(console, parameters)
    text = parameters["q"].strip()
    lists = Lists(parameters["after"], {"access": 3}, *wanted.ids, *filter(None, (wanted.kind, wanted.role)))
    counts, without = None, list[FoundWithout]()
    if text:
        found = wanted.read(connection, (), 0)
        allowed, without = find_in_list(connection, wanted.list, console.parts.policy, text, PAGE_ROWS)
        listing = Listing(allowed)
    else:
        listing, counts, found = _page(connection, wanted, lists)
    is_filtered = bool(text or wanted.kind or wanted.role)
    keys = [(one.kind, one.item_id) for one in listing.rows] + [(one.kind, one.item_id) for one in without]
    return console.show(
        "access.html",
        current="browse",
        wanted=wanted,
        searched=text,
        is_filtered=is_filtered,
        listing=listing,
        without=without,
        counts=None if lists.turned or is_filtered else counts,
        count_limit=_COUNT_LIMIT,
        denied=found.denied,
        openness=found.openness,
        sizes=organization_size(connection, wanted.organization_id),
        public_role=console.parts.policy.public_role,
        reasons=None if lists.turned or is_filtered or found.denied else _reasons(connection, wanted),
        paths=folder_paths(connection, wanted.organization_id, keys),
        **_names(connection, wanted, listing.rows),
    )


def _page(
    connection: Connection, wanted: "_AccessQuery", lists: Lists
) -> tuple[Listing[AccessEntry], dict[str, int] | None, AccessPage]:
    """A page of a list; if it was read from its beginning, its numbers; and the list. A short list has the order of
    paths and names, a longer one that of ids."""
    numbers: dict[str, int] | None = None
    found: AccessPage | None = None

    def read(after: Sequence[str], limit: int) -> Sequence[tuple[str, AccessEntry]]:
        nonlocal found, numbers
        if after and after[0] == "id":
            found = wanted.read(connection, after[1:], limit)
            return [("id", one) for one in found.entries]
        found = wanted.read(connection, (), max(limit, _COUNT_LIMIT + 1))
        entries = found.entries
        numbers = _counts(entries)
        if not numbers["complete"]:
            if after:
                raise invalid_cursor()
            return [("id", one) for one in entries[:limit]]
        keys = [(one.kind, one.item_id) for one in entries]
        paths = folder_paths(connection, wanted.organization_id, keys)
        kinds = ("user", *RESOURCE_TYPES)

        def place(one: AccessEntry) -> tuple[int, str, str, str]:
            path = " / ".join([*paths.get((one.kind, one.item_id), ()), one.name])
            return kinds.index(one.kind), fold(path), one.name, one.item_id

        ordered = sorted(entries, key=place)
        begin = 0
        if after:
            keys = [(one.kind, one.item_id) for one in ordered]
            if tuple(after[1:]) not in keys:
                raise invalid_cursor()
            begin = keys.index((after[1], after[2])) + 1
        return [("name", one) for one in ordered[begin : begin + limit]]

    page = lists.page("access", read, lambda row: (row[0], row[1].kind, row[1].item_id))
    assert page is not None and found is not None  # noqa: S101, PT018 - the page has no other list
    return Listing([one for _, one in page.rows], page.next_after, page.is_first), numbers, found


def _reasons(connection: Connection, wanted: "_AccessQuery") -> dict[str, Any]:
    """The grants that open something to the user, or the resource to somebody: the first ones."""
    within, limit = wanted.organization_id, _MAX_REASONS + 1
    if wanted.user_id:
        view = SqlView(connection)
        group_ids = list(view.groups(within, wanted.user_id))[:MAX_GROUPS]
        own = grants_of_user(connection, within, wanted.user_id, after=(), limit=limit)
        through = grants_of_groups(
            connection, within, group_ids, after=(), limit=limit, user_id=wanted.user_id, now=wanted.at
        )
        membership = view.membership(within, wanted.user_id)
        is_member = membership is not None and is_active(membership, wanted.at)
        grants, people = [*own[:_MAX_REASONS], *through[:_MAX_REASONS]], {}
        is_cut = max(len(own), len(through)) == limit
    else:
        membership, is_member = None, False
        levels: list[tuple[str, str]] = [("", wanted.resource_id)] if wanted.type == "document" else []
        document = find(connection, Document, within, wanted.resource_id) if levels else None
        folder_id = document.folder_id if document else wanted.resource_id if wanted.type == "folder" else None
        levels += [(folder.folder_id, "") for folder in folders_from(connection, within, folder_id).folders]
        grants = grants_on_levels(connection, within, levels, after=(), limit=limit, now=wanted.at)
        is_cut, grants = len(grants) == limit, grants[:_MAX_REASONS]
        people = {
            one.holder_id: len(people_in(connection, within, one.holder_id).ids(after="", limit=MAX_COUNT + 1))
            for one in grants
            if one.holder_kind == "group"
        }
    return {"grants": grants, "is_cut": is_cut, "people": people, "membership": membership if is_member else None}


@VIEWS.get("access_csv")
def access_csv(console: Console) -> Response:
    wanted = _AccessQuery.of(console, query(*_QUESTION))
    with console.reading() as connection:
        first = wanted.read(connection, (), _ROWS_PER_READ)
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
                page = wanted.read(connection, (last.kind, last.item_id), _ROWS_PER_READ)

    response = Response(stream_with_context(parts()), content_type="text/csv; charset=utf-8")
    subject = "-".join(filter(None, ("access", wanted.type or "user", wanted.user_id or wanted.resource_id)))
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", subject)[:80]
    response.headers["Content-Disposition"] = f"attachment; filename={name}.csv"
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class _AccessQuery:
    """A list of access: of a user, or of a resource."""

    organization_id: str
    user_id: str
    """Empty: the list is that of the users of a resource."""
    type: str
    resource_id: str
    kind: str = ""
    """Of the resources that are listed; empty: all."""
    role: str = ""
    """That is listed; empty: both."""
    at: datetime
    policy: DecisionPolicy

    @classmethod
    def of(cls, console: Console, parameters: Mapping[str, str]) -> "_AccessQuery":
        """The list that the query asks for. Raises ``BadRequest``."""
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
        """The list, of the kinds and roles that are wanted."""
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
        """A page after the kind and id of an entry; from the beginning if it is empty."""
        if self.user_id and after and after[0] not in RESOURCE_TYPES:
            raise invalid_cursor()
        return self.list.page(connection, self.policy, after=after, limit=limit)


def _counts(entries: Sequence[AccessEntry]) -> dict[str, int]:
    """The numbers of a list; ``complete``: it has no more."""
    kinds = Counter(entry.kind for entry in entries)
    return {
        "all": len(entries),
        "complete": len(entries) <= _COUNT_LIMIT,
        "editors": sum(entry.access_role is AccessRole.EDITOR for entry in entries),
        "granted": sum(bool(entry.grants) for entry in entries),
        "ending": sum(entry.expires_at is not None for entry in entries),
        **{kind: kinds[kind] for kind in RESOURCE_TYPES},
    }


def _names(connection: Connection, wanted: _AccessQuery, entries: Iterable[AccessEntry]) -> dict[str, Any]:
    """The names of what the list is about, and of the groups and folders of its reasons."""
    within = wanted.organization_id
    organization = find(connection, Organization, within)
    record: User | Folder | Document | Organization | None = organization
    if wanted.user_id:
        record = find(connection, User, wanted.user_id)
    elif wanted.type == "folder":
        record = find(connection, Folder, within, wanted.resource_id)
    elif wanted.type == "document":
        record = find(connection, Document, within, wanted.resource_id)
    grants = [grant for entry in entries for grant in entry.grants]
    groups = {(within, grant.organization_user_group_id) for grant in grants if grant.organization_user_group_id}
    folders = {(within, grant.folder_id) for grant in grants if grant.folder_id}
    return {
        "organization_name": (organization and name_of(organization)) or within,
        "name": (record and name_of(record)) or wanted.user_id or wanted.resource_id,
        "group_names": {key[1]: name for key, name in names_of(connection, Group, groups).items()},
        "folder_names": {key[1]: name for key, name in names_of(connection, Folder, folders).items()},
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
