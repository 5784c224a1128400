"""The search for users, documents, folders, groups and organizations by prefix of a name, an address or an id."""

from flask import Response
from sqlalchemy import Connection

from app.access.browse.lookup import find_by_id, may_be_stored, name_of
from app.access.records import Document, Folder, Group, Organization, Record, User
from app.access.search import DEFAULT_LIMIT, MIN_LENGTH, SearchHit, beginning, mark, search
from app.service.console.console import Console, query
from app.service.console.views import VIEWS

_KINDS: tuple[tuple[type[Record], str], ...] = (
    (User, "Users"),
    (Document, "Documents"),
    (Folder, "Folders"),
    (Group, "Groups"),
    (Organization, "Organizations"),
)


@VIEWS.get("search")
def search_page(console: Console) -> Response:
    text = query("q")["q"].strip()
    is_short = len(beginning(text)) < MIN_LENGTH
    hits = []
    if text and may_be_stored(text):
        find = _with_id if is_short else _search
        with console.reading() as connection:
            hits = [(record.kind, heading, find(connection, text, record)) for record, heading in _KINDS]
    return console.show(
        "search.html",
        searched=text,
        hits=[(kind, heading, rows) for kind, heading, rows in hits if rows],
        is_short=is_short,
        least=MIN_LENGTH,
        shown=DEFAULT_LIMIT,
    )


def _search(connection: Connection, text: str, record: type[Record]) -> list[SearchHit]:
    """The records with exactly this id, then those with this prefix."""
    exact = _with_id(connection, text, record)
    keys = {(hit.organization_id, hit.item_id) for hit in exact}
    hits = search(connection, text, record.kind, DEFAULT_LIMIT + 1)
    return [*exact, *(hit for hit in hits if (hit.organization_id, hit.item_id) not in keys)]


def _with_id(connection: Connection, text: str, kind: type[Record]) -> list[SearchHit]:
    """The records with exactly this id, in all organizations."""
    return mark(
        connection,
        [
            SearchHit(
                kind.kind, organization_id, text, name_of(record) or text, str(getattr(record, "email", "") or "")
            )
            for (organization_id, _), record in find_by_id(connection, kind, text, limit=DEFAULT_LIMIT + 1).items()
        ],
    )
