"""The search for organizations, users, groups, folders and documents by name, e-mail address, id or alias.

The table ``access_name`` contains each record once for each of the first four words of its name, with all words that
follow: "Ada Lovelace" as "ada lovelace" and "lovelace". It contains e-mail address and id as a whole. So a search for
the beginning of a name is a range of the primary key. Case and accents make no difference.

A text of several words also finds the names that have all of them, in any order. The name from the first of these words
on contains the others, so the ranges of the words are read, the longest word first, up to ``_MAX_SCANNED`` names each.

The names follow from the id and the fields of a record alone, so a refresh computes those to delete from the old
fields. A change of these rules needs a migration that computes all names again.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection

from app.access.effective import find_causes
from app.access.kinds import NAMED_KINDS
from app.access.record_tables import TABLES_OF_KIND, Values
from app.access.records import User
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
    alias: str = ""
    """The alias of a user by which the record was found; empty: it was found by another name."""


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


_FIELDS = {kind: (field.name, "email") if kind == User.kind else (field.name,) for kind, field in NAMED_KINDS.items()}
"""kind → the fields of the payload with names: the first from each of its words on, the other as a whole."""


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

# The innermost query reads the index only, and ends when the limit of the next one is reached.
_SCAN = """
SELECT n.organization_id, n.item_id, r.payload
FROM (
  SELECT s.name, s.organization_id, s.item_id FROM (
    SELECT name, organization_id, item_id FROM access_name
    WHERE kind = :kind AND name >= :beginning AND name < :end
    ORDER BY name, organization_id, item_id LIMIT :scanned
  ) s WHERE {matches} LIMIT :limit
) n CROSS JOIN {table} r
WHERE {same}
"""

_ALIASES = """
SELECT a.alias, a.user_id, r.payload
FROM (SELECT alias, user_id FROM model_user_alias WHERE alias >= :alias ORDER BY alias, user_id LIMIT :limit) a
CROSS JOIN model_user r
WHERE r.user_id = a.user_id ORDER BY a.alias, a.user_id
"""

_NAMES_OF_RECORD = _WORDS + 2
_MAX_SAME_NAME = 100
"""The most records with one name that are compared."""
_MAX_COMPARED = 200
"""If more names begin with a word, the index is searched for the other words, before the records are read."""
_MAX_SCANNED = 10_000
"""The most names with one of several words, or outside an organization, that are read."""


def search(
    connection: Connection, text: str, kind: str, limit: int = DEFAULT_LIMIT, *, organization_id: str = ""
) -> list[SearchHit]:
    """The records of a kind with a name that begins with the text, in the order of their names; then those with all
    words of the text in any order, and users with an alias that begins with it. Each record occurs once.

    ``organization_id``: only its records; empty: all. Fewer than ``MIN_LENGTH`` letters or digits find nothing.
    """
    first = beginning(text)
    if len(first) < MIN_LENGTH:
        return []
    lookup = _Search(connection, kind, organization_id, limit)
    lookup.phrase(first)
    words = words_of(text)[:_WORDS]
    if words not in ([], [first]):
        lookup.words(words)
    if kind == User.kind:
        lookup.alias(text)
    return list(lookup.hits.values())


class _Search:
    """The records that were found so far, up to the limit."""

    def __init__(self, connection: Connection, kind: str, organization_id: str, limit: int) -> None:
        self._connection, self._kind, self._limit = connection, kind, limit
        table = TABLES_OF_KIND[kind]
        is_within = len(table.keys) > 1
        self._organization_id = organization_id if is_within else ""
        within = "r.organization_id = n.organization_id AND " if is_within else ""
        self._parts = {"table": table.table.name, "same": f"{within}r.{table.keys[-1]} = n.item_id"}
        self.hits: dict[tuple[str, str], SearchHit] = {}

    def phrase(self, first: str) -> None:
        """Adds the records with a name that begins with the text."""
        self._add(self._scan(first, ()) if self._organization_id else self._range(first, self._names_limit))

    def words(self, words: Sequence[str]) -> None:
        """Adds the records with all words, in any order."""
        for word in sorted(words, key=len, reverse=True):
            rows = self._range(word, _MAX_COMPARED)
            is_whole = len(rows) < _MAX_COMPARED
            if not is_whole:
                rows = self._scan(word, [other for other in words if other != word])
            self._add(row for row in rows if self._has_all(words, row))
            if len(self.hits) == self._limit or (is_whole and self.hits):
                return

    def alias(self, text: str) -> None:
        """Adds the users with an alias that begins with the text."""
        beginning = unicodedata.normalize("NFC", text.replace("\0", " ").strip()).lower()
        if len(self.hits) < self._limit:
            for alias, user_id, payload in run(self._connection, _ALIASES, {"alias": beginning, "limit": self._limit}):
                if alias.startswith(beginning):
                    self._add([("", user_id, payload)], alias)

    @property
    def _names_limit(self) -> int:
        return self._limit * _NAMES_OF_RECORD

    def _range(self, first: str, limit: int) -> Sequence[Any]:
        values = {"kind": self._kind, "beginning": first, "end": first + _LAST, "limit": limit}
        return run(self._connection, _SEARCH, values, **self._parts).all()

    def _scan(self, first: str, others: Sequence[str]) -> Sequence[Any]:
        """The records with a name that begins with a word, and contains the others and belongs to the organization."""
        values: dict[str, object] = {"kind": self._kind, "beginning": first, "end": first + _LAST}
        values |= {"scanned": _MAX_SCANNED, "limit": self._names_limit, "organization": self._organization_id}
        conditions = ["s.organization_id = :organization"] if self._organization_id else []
        for number, word in enumerate(others):
            values[f"word{number}"] = "%" + re.sub(r"([%_!])", r"!\1", word) + "%"
            conditions.append(f"s.name LIKE :word{number} ESCAPE '!'")
        return run(self._connection, _SCAN, values, matches=" AND ".join(conditions), **self._parts).all()

    def _has_all(self, words: Sequence[str], row: Sequence[Any]) -> bool:
        """Whether each word begins a word of the record's name, address or id."""
        organization_id, item_id, payload = row
        return self._organization_id in {"", organization_id} and has_words(words, self._kind, item_id, payload)

    def _add(self, rows: Iterable[Sequence[Any]], alias: str = "") -> None:
        for organization_id, item_id, payload in rows:
            if (organization_id, item_id) not in self.hits and len(self.hits) < self._limit:
                name, *others = _texts(self._kind, payload)
                self.hits[organization_id, item_id] = SearchHit(
                    self._kind, organization_id, item_id, name or item_id, "".join(others), alias=alias
                )


def has_words(words: Sequence[str], kind: str, item_id: str, payload: str) -> bool:
    """Whether each word begins a word of the record's name, address or id."""
    if not words:
        return True
    whole = folded(" ".join([*_texts(kind, payload), item_id]))
    if not all(word in whole for word in words):
        return False
    starts = [match.start() for match in _FIRST_OF_WORD.finditer(whole)]
    return all(any(whole.startswith(word, start) for start in starts) for word in words)


def name_in(kind: str, payload: str) -> str:
    """The name in the fields of a record, for the order of a list; empty if it has none."""
    return folded(_texts(kind, payload)[0])


def words_of(text: str) -> list[str]:
    """The parts of a text between blanks and commas, each from its first letter or digit on, without repetitions."""
    starts = ((part, _FIRST_OF_WORD.search(part)) for part in re.split(r"[\s,;]+", folded(text)))
    return list(dict.fromkeys(part[start.start() :] for part, start in starts if start))


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
    """The records of a kind whose whole name, address or alias is the text; in this organization unless empty."""
    whole = folded(text)
    return [
        hit
        for hit in search(connection, text, kind, _MAX_SAME_NAME, organization_id=organization_id)
        if whole in {folded(hit.label), folded(hit.detail), folded(hit.alias)}
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


def compute_name_changes(
    session: RefreshSession, connection: Connection, tables: ModelTables, count: int
) -> AbstractSet[int]:
    """Adds the names of a kind that change to ``refresh_name_delta``, before its rows change; returns the changes that
    occur. ``count``: the number of changed rows."""
    if tables.kind not in NAMED_KINDS:
        return set()
    query = statement(connection, tables.text(_PAYLOADS))
    rows = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS} if count > _BATCH_ROWS else {})
    changed: list[Values] = []
    occurring = set[int]()
    for batch in rows.partitions(_BATCH_ROWS):
        for organization_id, item_id, before, after in batch:
            old, new = (names_of(tables.kind, item_id, payload) for payload in (before, after))
            for change, names in ((_REMOVE, old - new), (_ADD, new - old)):
                changed += [(change, tables.kind, name, organization_id, item_id) for name in names]
                occurring |= {change} if names else set()
        if len(changed) >= _BATCH_NAMES:
            session.fill("refresh_name_delta", _COLUMNS, changed)
            changed = []
    if changed:
        session.fill("refresh_name_delta", _COLUMNS, changed)
    return occurring


def store_name_changes(connection: Connection, occurring: AbstractSet[int]) -> None:
    """Writes ``refresh_name_delta``, which has these changes."""
    if _REMOVE in occurring:
        run(connection, _REMOVE_NAMES, {"remove": _REMOVE})
    if _ADD in occurring:
        run(connection, _ADD_NAMES, {"add": _ADD})
