"""The search for users, documents, folders, groups and organizations by prefix of a name, an address or an id."""

from typing import NamedTuple

from flask import Response
from sqlalchemy import Connection

from app.access.browse.lookup import find_by_id, may_be_stored, name_of
from app.access.records import Document, Folder, Group, Organization, Record, User
from app.access.search import DEFAULT_LIMIT, MIN_LENGTH, SearchHit, beginning, mark, search
from app.service.console.console import Console, query
from app.service.console.views import VIEWS

_SECTIONS: tuple[tuple[type[Record], str], ...] = (
    (User, "Users"),
    (Document, "Documents"),
    (Folder, "Folders"),
    (Group, "Groups"),
    (Organization, "Organizations"),
)


class Section(NamedTuple):
    """The records of one type that a search found."""

    kind: str
    heading: str
    hits: list[SearchHit]


@VIEWS.get("search")
def search_page(console: Console) -> Response:
    """A text shorter than ``MIN_LENGTH`` finds exact ids only."""
    text = query("q")["q"].strip()
    is_short = len(beginning(text)) < MIN_LENGTH
    sections: list[Section] = []
    if text and may_be_stored(text):
        find = _with_id if is_short else _search
        with console.reading() as connection:
            sections = [
                Section(record_type.kind, heading, find(connection, text, record_type))
                for record_type, heading in _SECTIONS
            ]
    return console.show(
        "search.html",
        searched=text,
        sections=[section for section in sections if section.hits],
        is_short=is_short,
        least=MIN_LENGTH,
        shown=DEFAULT_LIMIT,
    )


def _search(connection: Connection, text: str, record_type: type[Record]) -> list[SearchHit]:
    """The records with exactly this id, then those with this prefix."""
    exact = _with_id(connection, text, record_type)
    keys = {(hit.organization_id, hit.item_id) for hit in exact}
    hits = search(connection, text, record_type.kind, DEFAULT_LIMIT + 1)
    return [*exact, *(hit for hit in hits if (hit.organization_id, hit.item_id) not in keys)]


def _with_id(connection: Connection, text: str, record_type: type[Record]) -> list[SearchHit]:
    """The records with exactly this id, as ``find_by_id`` finds them."""
    found = find_by_id(connection, record_type, text, limit=DEFAULT_LIMIT + 1)
    hits = [
        SearchHit(
            record_type.kind, organization_id, text, name_of(record) or text, str(getattr(record, "email", "") or "")
        )
        for (organization_id, _), record in found.items()
    ]
    return mark(connection, hits)
