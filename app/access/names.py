"""The names by which people search the access model: the beginnings of what organizations, users, groups, folders and
documents are called.

A record stands in ``access_name`` once for each of the first four words of its name, with all that follows: "Ada
Lovelace" under "ada lovelace" and "lovelace". So what somebody begins to type is a range of the primary key. E-mail
address and id stand there as a whole. Case and accents make no difference.

Which names a record has follows from its id and its fields alone: so what is to be deleted is known from what it was.
The migration that made the table has the same rules; whoever changes them makes the names anew in another one.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from sqlalchemy import Connection

from app.access.effective import find_causes
from app.access.records import Document, Folder, Group, Organization, User
from app.foundation.database.statements import run

LEAST = 2
"""Characters that somebody has to type: less finds nothing."""

SHOWN = 20
"""How many of a kind are found at most, unless somebody asks for another number."""

_KEPT = 64
"""Characters of a name that are kept."""
_LOOKED_AT = 256
"""Characters of a text that are looked at."""
_WORDS = 4

_LAST = "\U0010ffff"
"""Stands behind whatever begins like it."""

_FIRST_OF_WORD = re.compile(r"(?<![^\W_])[^\W_]")

NamesOf = Callable[[str, str], set[str]]
"""From an id and a payload to the names."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A record that was searched for."""

    kind: str
    organization_id: str
    """Empty for organizations themselves and for users."""
    item_id: str
    label: str
    """What it is called; its id where it has no name."""
    detail: str
    """The e-mail address of a user; empty otherwise."""
    without_effect: str = ""
    """Why the record has no effect; empty: it has."""


def folded(text: str) -> str:
    """The beginning of a text as it is compared: without case, accents and repeated space."""
    text = text[:_LOOKED_AT].replace("\0", " ")
    if not text.isascii():
        text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        text = "".join(character for character in text if not unicodedata.combining(character))
    return " ".join(text.lower().split())


def beginning(text: str) -> str:
    """A text from its first word on; one that has no letter or digit as it is."""
    if text[:1].isalnum() and text.isascii() and text.isprintable() and " " not in text:
        # Nearly all ids and addresses.
        return text[:_KEPT].lower()
    return next(iter(beginnings(text, 1)), "")


def beginnings(text: str, most: int = _WORDS) -> list[str]:
    """A text from its first words on, in the order of these; one that has no letter or digit as it is."""
    whole = folded(text)
    found: list[str] = []
    if whole.replace(" ", "").isalnum():
        # Nearly all names are words with a space between them: found in half the time.
        start = 0
        while len(found) < most:
            found.append(whole[start : start + _KEPT])
            start = whole.find(" ", start) + 1
            if not start:
                break
        return found
    for word in _FIRST_OF_WORD.finditer(whole):
        found.append(whole[word.start() : word.start() + _KEPT])
        if len(found) == most:
            break
    return found or ([whole[:_KEPT]] if whole else [])


@dataclass(frozen=True, slots=True)
class _Named:
    """How records of a kind are called."""

    table: str
    item: str
    """The column of the id."""
    name: str
    """The field of the payload that holds the name."""
    other: str = ""
    """One that is looked at as a whole."""


_NAMED: Mapping[str, _Named] = {
    Organization.kind: _Named("model_organization", "organization_id", "organizationName"),
    User.kind: _Named("model_user", "user_id", "name", "email"),
    Group.kind: _Named("model_group", "organization_user_group_id", "groupName"),
    Folder.kind: _Named("model_folder", "folder_id", "folderName"),
    Document.kind: _Named("model_document", "document_id", "documentName"),
}

NAMED_KINDS = tuple(_NAMED)
"""The kinds that can be searched for."""


def names_of(kind: str) -> NamesOf:
    """What makes of a record's id and payload the names under which it stands."""
    name_field, other_field = _NAMED[kind].name, _NAMED[kind].other

    def names(item_id: str, payload: str) -> set[str]:
        fields = orjson.loads(payload)
        found = {*beginnings(str(fields.get(name_field) or "")), beginning(item_id)}
        if other_field:
            found.add(beginning(str(fields.get(other_field) or "")))
        return {name for name in found if len(name) >= LEAST}

    return names


# A record may stand under several names that begin alike.
_SEARCH = """
SELECT n.organization_id, n.item_id, r.payload
FROM (
  SELECT name, organization_id, item_id FROM access_name
  WHERE kind = :kind AND name >= :beginning AND name < :behind
  ORDER BY name, organization_id, item_id LIMIT :most
) n CROSS JOIN {table} r
WHERE {same}
ORDER BY n.name, n.organization_id, n.item_id
"""

_NAMES_OF_ONE = _WORDS + 2
_SAME_NAME = 100
"""How many records of one name are compared at most."""


def search(connection: Connection, text: str, kind: str, limit: int = SHOWN) -> list[SearchHit]:
    """The records of a kind that are called like the text, in the order of their names, each once.

    One index range, then each of them by its key. Less than ``LEAST`` letters or digits find nothing.
    """
    first = beginning(text)
    if len(first) < LEAST:
        return []
    named = _NAMED[kind]
    within = "" if kind in {Organization.kind, User.kind} else "r.organization_id = n.organization_id AND "
    rows = run(
        connection,
        _SEARCH,
        {"kind": kind, "beginning": first, "behind": first + _LAST, "most": limit * _NAMES_OF_ONE},
        table=named.table,
        same=f"{within}r.{named.item} = n.item_id",
    )
    found: dict[tuple[str, str], SearchHit] = {}
    for organization_id, item_id, payload in rows:
        if (organization_id, item_id) not in found:
            fields = orjson.loads(payload)
            label, detail = fields.get(named.name), fields.get(named.other) if named.other else ""
            found[organization_id, item_id] = SearchHit(
                kind, organization_id, item_id, str(label or item_id), str(detail or "")
            )
            if len(found) == limit:
                break
    return mark(connection, list(found.values()))


def mark(connection: Connection, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """The hits, all of one kind, those without effect with the reason."""
    broken = find_causes(connection, hits[0].kind, [(one.organization_id, one.item_id) for one in hits]) if hits else {}
    return [
        replace(one, without_effect=why.sentence) if (why := broken.get((one.organization_id, one.item_id))) else one
        for one in hits
    ]


def called(connection: Connection, text: str, kind: str, organization_id: str = "") -> list[SearchHit]:
    """The records of a kind whose whole name, or e-mail address, is the text; in this organization unless empty."""
    whole = folded(text)
    return [
        hit
        for hit in search(connection, text, kind, _SAME_NAME)
        if whole in {folded(hit.label), folded(hit.detail)} and organization_id in {"", hit.organization_id}
    ]
