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

from app.access.browse.lookup import find, may_be_stored, name_of, names_of
from app.access.decision.decide import DecisionPolicy
from app.access.listing.page import AccessEntry, AccessPage
from app.access.listing.resources import RESOURCE_TYPES, ResourceList
from app.access.listing.users import UserList
from app.access.records import AccessRole, Document, Folder, Group, Organization, ResourceKind, User
from app.contract.limits import ID_BYTES
from app.foundation.clock import utc_text
from app.service.console.console import Console, one_of, query
from app.service.console.paging import Lists
from app.service.console.views import VIEWS

_QUESTION = ("user", "organization", "type", "resource")
_ROWS_PER_READ = 500
_COUNT_LIMIT = 400
"""The maximum number of entries that the first page counts. Each is decided, which takes about 70 us."""
_COLUMNS = ("type", "id", "name", "role", "rule", "groups", "granted_on", "until", "revision")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Spreadsheets calculate cells that begin with one of these."""


@VIEWS.read("access")
def access(console: Console, connection: Connection) -> Response:
    parameters = query(*_QUESTION, "after")
    wanted = _AccessQuery.of(console, parameters)
    lists = Lists(parameters["after"], {"access": 2}, *wanted.ids)
    found: AccessPage | None = None

    def read(after: Sequence[str], limit: int) -> Sequence[AccessEntry]:
        nonlocal found
        # The first page also counts the list.
        found = wanted.read(connection, after, limit if after else _COUNT_LIMIT + 1)
        return found.entries[:limit]

    listing = lists.page("access", read, lambda entry: (entry.kind, entry.item_id))
    assert listing is not None and found is not None  # noqa: S101, PT018 - the page has no other list
    return console.show(
        "access.html",
        current="browse",
        wanted=wanted,
        listing=listing,
        counts=None if lists.turned else _counts(found.entries),
        count_limit=_COUNT_LIMIT,
        denied=found.denied,
        openness=found.openness,
        **_names(connection, wanted, listing.rows),
    )


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
    at: datetime
    policy: DecisionPolicy

    @classmethod
    def of(cls, console: Console, parameters: Mapping[str, str]) -> "_AccessQuery":
        """The list that the query asks for. Raises ``BadRequest``."""
        user_id, organization_id, kind, resource_id = (parameters[name] for name in _QUESTION)
        one_of(kind, RESOURCE_TYPES, "type")
        if bool(user_id) == bool(kind) or not organization_id or bool(kind) != bool(resource_id):
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
            at=console.parts.clock(),
            policy=console.parts.policy,
        )

    @property
    def ids(self) -> tuple[str, str, str, str]:
        return self.user_id, self.organization_id, self.type, self.resource_id

    def read(self, connection: Connection, after: Sequence[str], limit: int) -> AccessPage:
        """A page after the kind and id of an entry; from the beginning if it is empty."""
        wanted: ResourceList | UserList = ResourceList(
            organization_id=self.organization_id, user_id=self.user_id, at=self.at
        )
        if not self.user_id:
            wanted = UserList(
                organization_id=self.organization_id,
                type=cast("ResourceKind", self.type),
                resource_id=self.resource_id,
                at=self.at,
            )
        elif after and after[0] not in RESOURCE_TYPES:
            raise BadRequest("after is not a position in this list; start from its first page")
        return wanted.page(connection, self.policy, after=after, limit=limit)


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
