"""The search for organizations, users, groups, folders and documents by name, e-mail address or id.

The table ``access_name`` contains each record once for each of the first four words of its name, with all words that
follow: "Ada Lovelace" as "ada lovelace" and "lovelace". It contains e-mail address and id as a whole. So a search for
the beginning of a name is a range of the primary key. Case and accents make no difference.

The names follow from the id and the fields of a record alone, so a refresh computes those to delete from the old
fields. The migration that created the table has the same rules; a change of the rules needs a migration.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from sqlalchemy import Connection

from app.access.effective import find_causes
from app.access.records import Document, Folder, Group, Organization, User
from app.foundation.database.statements import run

MIN_LENGTH = 2
"""A search for fewer characters finds nothing."""

DEFAULT_LIMIT = 20
"""The most records of a kind that a search returns, unless the caller sets a limit."""

_MAX_NAME = 64
"""The number of characters of a name that are stored."""
_MAX_TEXT = 256
"""The number of characters of a text that are read."""
_WORDS = 4

_LAST = "\U0010ffff"
"""Comes after all texts with the same beginning."""

_FIRST_OF_WORD = re.compile(r"(?<![^\W_])[^\W_]")


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A record that a search found."""

    kind: str
    organization_id: str
    """Empty for organizations themselves and for users."""
    item_id: str
    label: str
    """Its name; its id if it has no name."""
    detail: str
    """The e-mail address of a user; empty otherwise."""
    without_effect: str = ""
    """Why the record has no effect; empty: it has."""


def folded(text: str) -> str:
    """The beginning of a text without case, accents and repeated space, for comparisons."""
    text = text[:_MAX_TEXT].replace("\0", " ")
    if not text.isascii():
        text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        text = "".join(character for character in text if not unicodedata.combining(character))
    return " ".join(text.lower().split())


def beginning(text: str) -> str:
    """A text from its first word on; one that has no letter or digit as it is."""
    if text[:1].isalnum() and text.isascii() and text.isprintable() and " " not in text:
        # Nearly all ids and addresses.
        return text[:_MAX_NAME].lower()
    return next(iter(beginnings(text)), "")


def beginnings(text: str) -> list[str]:
    """A text from each of its first words on; one that has no letter or digit as it is."""
    whole = folded(text)
    words = _FIRST_OF_WORD.finditer(whole)
    found = [whole[word.start() : word.start() + _MAX_NAME] for word, _ in zip(words, range(_WORDS), strict=False)]
    return found or ([whole[:_MAX_NAME]] if whole else [])


@dataclass(frozen=True, slots=True)
class _Named:
    """The names of a kind."""

    table: str
    item: str
    """The column of the id."""
    name: str
    """The field of the payload that contains the name."""
    other: str = ""
    """A field that is stored as a whole."""


_NAMED: Mapping[str, _Named] = {
    Organization.kind: _Named("model_organization", "organization_id", "organizationName"),
    User.kind: _Named("model_user", "user_id", "name", "email"),
    Group.kind: _Named("model_group", "organization_user_group_id", "groupName"),
    Folder.kind: _Named("model_folder", "folder_id", "folderName"),
    Document.kind: _Named("model_document", "document_id", "documentName"),
}

NAMED_KINDS = tuple(_NAMED)
"""The kinds that can be searched for."""


def names_of(kind: str, item_id: str, payload: str) -> set[str]:
    """The names under which a record is stored."""
    named, fields = _NAMED[kind], orjson.loads(payload)
    found = {*beginnings(str(fields.get(named.name) or "")), beginning(item_id)}
    if named.other:
        found.add(beginning(str(fields.get(named.other) or "")))
    return {name for name in found if len(name) >= MIN_LENGTH}


# A record may have several names with the same beginning.
_SEARCH = """
SELECT n.organization_id, n.item_id, r.payload
FROM (
  SELECT name, organization_id, item_id FROM access_name
  WHERE kind = :kind AND name >= :beginning AND name < :end
  ORDER BY name, organization_id, item_id LIMIT :limit
) n CROSS JOIN {table} r
WHERE {same}
ORDER BY n.name, n.organization_id, n.item_id
"""

_NAMES_OF_RECORD = _WORDS + 2
_MAX_SAME_NAME = 100
"""The most records with one name that are compared."""


def search(connection: Connection, text: str, kind: str, limit: int = DEFAULT_LIMIT) -> list[SearchHit]:
    """The records of a kind that have a name with this beginning, in the order of their names, each once.

    One index range, then each of them by its key. Fewer than ``MIN_LENGTH`` letters or digits find nothing.
    """
    first = beginning(text)
    if len(first) < MIN_LENGTH:
        return []
    named = _NAMED[kind]
    within = "" if kind in {Organization.kind, User.kind} else "r.organization_id = n.organization_id AND "
    rows = run(
        connection,
        _SEARCH,
        {"kind": kind, "beginning": first, "end": first + _LAST, "limit": limit * _NAMES_OF_RECORD},
        table=named.table,
        same=f"{within}r.{named.item} = n.item_id",
    )
    found: dict[tuple[str, str], SearchHit] = {}
    for organization_id, item_id, payload in rows:
        if (organization_id, item_id) not in found and len(found) < limit:
            fields = orjson.loads(payload)
            label, detail = fields.get(named.name), fields.get(named.other) if named.other else ""
            found[organization_id, item_id] = SearchHit(
                kind, organization_id, item_id, str(label or item_id), str(detail or "")
            )
    return mark(connection, list(found.values()))


def mark(connection: Connection, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """The hits, all of one kind, those without effect with the reason."""
    causes = find_causes(connection, hits[0].kind, [(hit.organization_id, hit.item_id) for hit in hits]) if hits else {}
    return [
        replace(hit, without_effect=cause.sentence)
        if (cause := causes.get((hit.organization_id, hit.item_id)))
        else hit
        for hit in hits
    ]


def search_exactly(connection: Connection, text: str, kind: str, organization_id: str = "") -> list[SearchHit]:
    """The records of a kind whose whole name or e-mail address is the text; in this organization unless empty."""
    whole = folded(text)
    return [
        hit
        for hit in search(connection, text, kind, _MAX_SAME_NAME)
        if whole in {folded(hit.label), folded(hit.detail)} and organization_id in {"", hit.organization_id}
    ]
