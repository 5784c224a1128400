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
from app.access.record_tables import TABLES_OF_KIND, Values
from app.access.records import Document, Folder, Group, Organization, User
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import ModelTables, RowChange
from app.foundation.database.statements import run, statement

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
    """A text from its first word on. If it has no letter or digit: the whole text."""
    if text[:1].isalnum() and text.isascii() and text.isprintable() and " " not in text:
        # Nearly all ids and addresses.
        return text[:_MAX_NAME].lower()
    return next(iter(beginnings(text)), "")


def beginnings(text: str) -> list[str]:
    """A text from each of its first words on. If it has no letter or digit: the whole text."""
    whole = folded(text)
    words = _FIRST_OF_WORD.finditer(whole)
    names = [whole[word.start() : word.start() + _MAX_NAME] for word, _ in zip(words, range(_WORDS), strict=False)]
    return names or ([whole[:_MAX_NAME]] if whole else [])


_FIELDS: Mapping[str, tuple[str, ...]] = {
    Organization.kind: ("organizationName",),
    User.kind: ("name", "email"),
    Group.kind: ("groupName",),
    Folder.kind: ("folderName",),
    Document.kind: ("documentName",),
}
"""kind → the fields of the payload with names: the first from each of its words on, the other as a whole."""

NAMED_KINDS = tuple(_FIELDS)
"""The kinds that can be searched for."""


def names_of(kind: str, item_id: str, payload: str | None) -> set[str]:
    """The names under which a record is stored; none without a payload, because then there is no record."""
    if payload is None:
        return set()
    name, *others = _texts(kind, payload)
    names = (*beginnings(name), *map(beginning, (item_id, *others)))
    return {text for text in names if len(text) >= MIN_LENGTH}


def _texts(kind: str, payload: str) -> list[str]:
    fields = orjson.loads(payload)
    return [str(fields.get(field) or "") for field in _FIELDS[kind]]


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
    table = TABLES_OF_KIND[kind]
    within = "r.organization_id = n.organization_id AND " if len(table.keys) > 1 else ""
    rows = run(
        connection,
        _SEARCH,
        {"kind": kind, "beginning": first, "end": first + _LAST, "limit": limit * _NAMES_OF_RECORD},
        table=table.table.name,
        same=f"{within}r.{table.keys[-1]} = n.item_id",
    )
    hits: dict[tuple[str, str], SearchHit] = {}
    for organization_id, item_id, payload in rows:
        if (organization_id, item_id) not in hits and len(hits) < limit:
            name, *others = _texts(kind, payload)
            hits[organization_id, item_id] = SearchHit(kind, organization_id, item_id, name or item_id, "".join(others))
    return mark(connection, list(hits.values()))


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


# Updates, by a refresh that changes the access model.

_BATCH_ROWS = 100
"""Few, because the fields of a single record may be as long as a line of its source."""
_BATCH_NAMES = 4_000

# Outer joins stop SQLite from swapping the sides.
_PAYLOADS = """
SELECT {organization:d}, {item:d}, a.payload, m.payload
FROM {delta} d LEFT JOIN {model} a ON d.change <> {add} AND {keys:a=d} LEFT JOIN {merged} m ON {keys:m=d}
WHERE a.digest IS DISTINCT FROM m.digest
"""

_REMOVE_NAMES = """
DELETE FROM access_name WHERE (kind, name, organization_id, item_id) IN (
  SELECT kind, name, organization_id, item_id FROM refresh_name_delta WHERE change = :remove)
"""

# In the order of the key, so that a large table is written from its beginning to its end.
_ADD_NAMES = """
INSERT INTO access_name (kind, name, organization_id, item_id)
SELECT kind, name, organization_id, item_id FROM refresh_name_delta WHERE change = :add
ORDER BY kind, name, organization_id, item_id
ON CONFLICT DO NOTHING
"""

_ADD, _REMOVE = int(RowChange.ADD), int(RowChange.REMOVE)

_COLUMNS = ("change", "kind", "name", "organization_id", "item_id")


def compute_name_changes(session: RefreshSession, connection: Connection, tables: ModelTables) -> None:
    """Adds the names of a kind that change to ``refresh_name_delta``; before its rows change."""
    if tables.kind not in NAMED_KINDS:
        return
    query = statement(connection, tables.text(_PAYLOADS))
    rows = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS})
    changed: list[Values] = []
    for batch in rows.partitions(_BATCH_ROWS):
        for organization_id, item_id, before, after in batch:
            old, new = (names_of(tables.kind, item_id, payload) for payload in (before, after))
            for change, names in ((_REMOVE, old - new), (_ADD, new - old)):
                changed += [(change, tables.kind, name, organization_id, item_id) for name in names]
        if len(changed) >= _BATCH_NAMES:
            session.fill("refresh_name_delta", _COLUMNS, changed)
            changed = []
    session.fill("refresh_name_delta", _COLUMNS, changed)


def store_name_changes(connection: Connection) -> None:
    """Carries out ``refresh_name_delta``."""
    run(connection, _REMOVE_NAMES, {"remove": _REMOVE})
    run(connection, _ADD_NAMES, {"add": _ADD})
