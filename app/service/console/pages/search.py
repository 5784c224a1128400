"""The search: users, documents, folders, groups and organizations by the beginning of a name, an address or an id."""

from dataclasses import dataclass

from flask import Response
from sqlalchemy import Connection

from app.access.browse.lookup import find_by_id, may_be_stored, name_of
from app.access.records import Document, Folder, Group, Organization, Record, User
from app.access.search import DEFAULT_LIMIT, MIN_LENGTH, SearchHit, beginning, mark, search
from app.service.console.console import Console, query
from app.service.console.views import Views

_KINDS: tuple[tuple[type[Record], str], ...] = (
    (User, "Users"),
    (Document, "Documents"),
    (Folder, "Folders"),
    (Group, "Groups"),
    (Organization, "Organizations"),
)


@dataclass(frozen=True, slots=True)
class _Hits:
    """What was found of one kind."""

    kind: str
    heading: str
    found: list[SearchHit]
    more: bool


VIEWS = Views()


@VIEWS.get("search")
def search_page(console: Console) -> Response:
    text = query("q")["q"].strip()
    is_short = len(beginning(text)) < MIN_LENGTH
    hits = []
    if may_be_stored(text) and not is_short:
        with console.reading() as connection:
            hits = [_search(connection, text, of, heading) for of, heading in _KINDS]
    elif text and may_be_stored(text):
        with console.reading() as connection:
            hits = [_those(of, heading, _exact(connection, text, of)) for of, heading in _KINDS]
    return console.show(
        "search.html",
        current="search",
        searched=text,
        hits=[one for one in hits if one.found],
        is_short=is_short,
        least=MIN_LENGTH,
        shown=DEFAULT_LIMIT,
    )


def _search(connection: Connection, text: str, of: type[Record], heading: str) -> _Hits:
    """Those called so, before them the one whose id is exactly this: of what begins alike it may come late."""
    exact = _exact(connection, text, of)
    keys = {(one.organization_id, one.item_id) for one in exact}
    found = search(connection, text, of.kind, DEFAULT_LIMIT + 1)
    others = [one for one in found if (one.organization_id, one.item_id) not in keys]
    return _those(of, heading, [*exact, *others])


def _those(of: type[Record], heading: str, found: list[SearchHit]) -> _Hits:
    return _Hits(of.kind, heading, found[:DEFAULT_LIMIT], len(found) > DEFAULT_LIMIT)


def _exact(connection: Connection, text: str, of: type[Record]) -> list[SearchHit]:
    """Those of exactly this id, by their keys: of any length, in whatever organization."""
    return mark(
        connection,
        [
            SearchHit(of.kind, organization_id, text, name_of(record) or text, str(getattr(record, "email", "") or ""))
            for (organization_id, _), record in find_by_id(connection, of, text, limit=DEFAULT_LIMIT + 1).items()
        ],
    )
