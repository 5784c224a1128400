"""The search for users, documents, folders, groups and organizations, and the suggestions while an operator types."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from flask import Response, make_response
from sqlalchemy import Connection

from app.access.browse.lists import ListEntry
from app.access.browse.lookup import find_by_id, name_of
from app.access.browse.suggestions import suggest as suggest_similar
from app.access.kinds import NAMED_KINDS
from app.access.records import Document, Folder, Group, Organization, Record, User
from app.access.search import DEFAULT_LIMIT, MIN_LENGTH, SearchHit, from_first_word, search, with_reasons
from app.foundation.ids import may_be_stored
from app.service.console.console import Console
from app.service.console.formatting import visible
from app.service.console.names import RecordNames, organizations_of, read_names
from app.service.console.paging import Listing, Lists, invalid_cursor
from app.service.console.urls import address, one_of, query
from app.service.console.views import VIEWS

_SECTIONS: tuple[tuple[type[Record], str], ...] = (
    (User, "Users"),
    (Document, "Documents"),
    (Folder, "Folders"),
    (Group, "Groups"),
    (Organization, "Organizations"),
)
_MAX_OF_ONE_KIND = 500
"""The most records that the pages of one kind list."""
_MAX_SUGGESTIONS = 8
_MAX_OF_KIND = 4
"""The most suggestions of a kind if there are several kinds."""


class Section(NamedTuple):
    """The records of one type that a search found."""

    kind: str
    heading: str
    listing: Listing[SearchHit]
    is_cut: bool
    """Whether there are more than are listed, also on further pages."""


@VIEWS.get("search")
def search_page(console: Console) -> Response:
    """The first records of each kind, or pages of one kind. A text shorter than ``MIN_LENGTH`` finds exact ids only."""
    parameters = query("q", "kind", "after")
    text, kind = parameters["q"].strip(), one_of(parameters["kind"], tuple(NAMED_KINDS), "kind")
    lists = Lists(parameters["after"], {kind: 2} if kind else {}, text)
    is_short = len(from_first_word(text)) < MIN_LENGTH
    sections: list[Section] = []
    similar: list[ListEntry] = []
    names = RecordNames()
    if text and may_be_stored(text):
        limit = _MAX_OF_ONE_KIND if kind else DEFAULT_LIMIT
        find = with_id if is_short else _search
        with console.reading() as connection:
            for record_type, heading in _SECTIONS:
                if kind in {"", record_type.kind} and (hits := find(connection, text, record_type, limit + 1)):
                    listing = _page_of_kind(lists, kind, hits[:limit]) if kind else Listing(hits[:limit])
                    listing = replace(listing, rows=with_reasons(connection, listing.rows))
                    sections.append(Section(record_type.kind, heading, listing, len(hits) > limit))
            if not sections and not is_short:
                for record_type, _ in _SECTIONS:
                    similar += suggest_similar(connection, record_type.kind, "", text)
            names = read_names(connection, organizations_of(similar, *(section.listing.rows for section in sections)))
    return console.show(
        "search.html",
        searched=text,
        kind=kind,
        names=names,
        sections=sections,
        similar=similar,
        is_short=is_short,
        least=MIN_LENGTH,
    )


def _page_of_kind(lists: Lists, kind: str, hits: Sequence[SearchHit]) -> Listing[SearchHit]:
    """The page after the cursor. Raises ``BadRequest`` if its record is not among the hits any more."""
    keys = [(hit.organization_id, hit.item_id) for hit in hits]
    if lists.after and lists.after not in keys:
        raise invalid_cursor()
    rest = hits[keys.index((lists.after[0], lists.after[1])) + 1 :] if lists.after else hits
    return lists.cut(kind, rest, lambda hit: (hit.organization_id, hit.item_id))


@VIEWS.get("suggest")
def suggest(console: Console) -> Response:
    """The first records that a text finds, as JSON. ``kind``: that of a record, ``context`` for its document, or empty
    for all; ``organization``: only its folders, documents and groups."""
    parameters = query("q", "kind", "organization")
    text, organization_id = parameters["q"].strip(), parameters["organization"]
    kind = one_of(parameters["kind"], (*NAMED_KINDS, "context"), "kind").replace("context", Document.kind)
    hits: list[SearchHit] = []
    if len(from_first_word(text)) >= MIN_LENGTH and may_be_stored(text, organization_id):
        kinds = [kind] if kind else [record_type.kind for record_type, _ in _SECTIONS]
        limit = _MAX_SUGGESTIONS if kind else _MAX_OF_KIND
        with console.reading() as connection:
            for searched_kind in kinds:
                hits += search(connection, text, searched_kind, limit, organization_id=organization_id)
            within = (("organization", "", hit.organization_id) for hit in hits if hit.organization_id)
            names = read_names(connection, within)
    suggestions = [
        {
            "kind": hit.kind,
            "id": hit.item_id,
            "name": visible(hit.label),
            "detail": visible(hit.alias or hit.detail or names("organization", "", hit.organization_id)),
            "organizationId": hit.organization_id,
            "url": address(hit.kind, id=hit.item_id, organization=hit.organization_id),
        }
        for hit in hits
    ]
    response = make_response(json.dumps({"suggestions": suggestions}))
    response.headers["Content-Type"] = "application/json"
    return response


def _search(connection: Connection, text: str, record_type: type[Record], limit: int) -> list[SearchHit]:
    """The records with exactly this id, then those with this prefix."""
    exact = with_id(connection, text, record_type, limit)
    keys = {(hit.organization_id, hit.item_id) for hit in exact}
    hits = search(connection, text, record_type.kind, limit)
    return [*exact, *(hit for hit in hits if (hit.organization_id, hit.item_id) not in keys)][:limit]


def with_id(connection: Connection, text: str, record_type: type[Record], limit: int) -> list[SearchHit]:
    """The records with exactly this id, as ``find_by_id`` finds them."""
    records = find_by_id(connection, record_type, text, limit=limit)
    return [
        SearchHit(
            record_type.kind, organization_id, text, name_of(record) or text, str(getattr(record, "email", "") or "")
        )
        for (organization_id, _), record in records.items()
    ]
