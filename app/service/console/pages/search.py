"""The search for users, documents, folders, groups and organizations by prefix of a name, an address or an id."""

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
    """The results of one kind."""

    kind: str
    heading: str
    rows: list[SearchHit]
    has_more: bool


VIEWS = Views()


@VIEWS.get("search")
def search_page(console: Console) -> Response:
    text = query("q")["q"].strip()
    is_short = len(beginning(text)) < MIN_LENGTH
    hits = []
    if may_be_stored(text) and not is_short:
        with console.reading() as connection:
            hits = [_search(connection, text, record, heading) for record, heading in _KINDS]
    elif text and may_be_stored(text):
        with console.reading() as connection:
            hits = [_hits(record, heading, _with_id(connection, text, record)) for record, heading in _KINDS]
    return console.show(
        "search.html",
        current="search",
        searched=text,
        hits=[kind for kind in hits if kind.rows],
        is_short=is_short,
        least=MIN_LENGTH,
        shown=DEFAULT_LIMIT,
    )


def _search(connection: Connection, text: str, record: type[Record], heading: str) -> _Hits:
    """The records with exactly this id, then those with this prefix."""
    exact = _with_id(connection, text, record)
    keys = {(hit.organization_id, hit.item_id) for hit in exact}
    hits = search(connection, text, record.kind, DEFAULT_LIMIT + 1)
    return _hits(record, heading, [*exact, *(hit for hit in hits if (hit.organization_id, hit.item_id) not in keys)])


def _hits(record: type[Record], heading: str, hits: list[SearchHit]) -> _Hits:
    return _Hits(record.kind, heading, hits[:DEFAULT_LIMIT], len(hits) > DEFAULT_LIMIT)


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
