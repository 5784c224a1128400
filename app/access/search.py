"""The search for organizations, users, groups, folders and documents by name, e-mail address, id or alias.

The table ``access_name`` contains each record once for each of the first four words of its name, with all words that
follow: "Ada Lovelace" as "ada lovelace" and "lovelace". It contains e-mail address and id as a whole. So a search for
the beginning of a name is a range of the primary key. Case and accents make no difference.

A text of several words also finds the names that contain all of them, in any order. One stored name of such a record
begins with the word that comes first in it, and contains the others. So the search reads the names that begin with each
word, the longest word first, up to ``_MAX_SCANNED`` names for each.

A refresh updates the table (``app.access.refresh.search_names``).
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection

from app.access.effective import find_causes
from app.access.kinds import NAMED_KINDS
from app.access.record_tables import TABLES_OF_KIND
from app.access.records import User
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
    """Its name, or its id if it has no name."""
    detail: str
    """The e-mail address of a user. Empty otherwise."""
    without_effect: str = ""
    """Why the record has no effect. Empty if it has an effect."""
    alias: str = ""
    """The alias by which a user was found. Empty if the user was found by another name."""


def fold(text: str) -> str:
    """Returns the first ``_MAX_TEXT`` characters without case, accents and repeated space, for comparisons."""
    text = text[:_MAX_TEXT].replace("\0", " ")
    if not text.isascii():
        text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        text = "".join(character for character in text if not unicodedata.combining(character))
    return " ".join(text.lower().split())


def from_first_word(text: str) -> str:
    """Returns the folded text from its first word on. A text without letters and digits is returned as a whole."""
    if text[:1].isalnum() and text.isascii() and text.isprintable() and " " not in text:
        # Nearly all ids and addresses.
        return text[:_MAX_NAME].lower()
    return next(iter(from_each_word(text)), "")


def from_each_word(text: str) -> list[str]:
    """Returns the folded text from each of its first words on. A text without letters and digits is one word."""
    whole = fold(text)
    words = _FIRST_OF_WORD.finditer(whole)
    names = [whole[word.start() : word.start() + _MAX_NAME] for word, _ in zip(words, range(_WORDS), strict=False)]
    return names or ([whole[:_MAX_NAME]] if whole else [])


class NameFields(NamedTuple):
    """The fields of a record by which it is found, apart from its id."""

    name: str
    email: str
    """Empty for all kinds except users."""


def read_name_fields(kind: str, payload: str) -> NameFields:
    """Reads the fields from the payload of a record. Absent fields are empty."""
    fields = orjson.loads(payload)
    email = fields.get("email") if kind == User.kind else ""
    return NameFields(str(fields.get(NAMED_KINDS[kind].name) or ""), str(email or ""))


# A record may have several names with the same beginning. The innermost query reads the index only, and ends when the
# limit of the next one is reached.
_SEARCH = """
SELECT n.organization_id, n.item_id, r.payload
FROM (
  SELECT s.name, s.organization_id, s.item_id FROM (
    SELECT name, organization_id, item_id FROM access_name
    WHERE kind = :kind AND name >= :beginning AND name < :end
    ORDER BY name, organization_id, item_id LIMIT :scanned
  ) s WHERE {matches} LIMIT :limit
) n CROSS JOIN {table} r
WHERE {same}
ORDER BY n.name, n.organization_id, n.item_id
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
    """Finds the records of a kind with a name that begins with the text, in the order of their names; then those with
    all words of the text in any order, and users with an alias that begins with it. Each record occurs once.

    ``organization_id``: only its records. Empty: those of all organizations. A text of fewer than ``MIN_LENGTH``
    letters or digits finds nothing.
    """
    first = from_first_word(text)
    if len(first) < MIN_LENGTH:
        return []
    result = _SearchResult(connection, kind, organization_id, limit)
    result.add_prefix_matches(first)
    words = split_words(text)[:_WORDS]
    # The only name that begins with a single word was found by the prefix.
    if words and words != [first]:
        result.add_word_matches(words)
    if kind == User.kind:
        result.add_alias_matches(text)
    return list(result.hits.values())


class _SearchResult:
    """The hits of one search, up to the limit, in the order in which they are added. Add the best matches first."""

    def __init__(self, connection: Connection, kind: str, organization_id: str, limit: int) -> None:
        self._connection, self._kind, self._limit = connection, kind, limit
        table = TABLES_OF_KIND[kind]
        is_within = len(table.keys) > 1
        self._organization_id = organization_id if is_within else ""
        within = "r.organization_id = n.organization_id AND " if is_within else ""
        self._parts = {"table": table.table.name, "same": f"{within}r.{table.keys[-1]} = n.item_id"}
        self.hits: dict[tuple[str, str], SearchHit] = {}

    def add_prefix_matches(self, prefix: str) -> None:
        """Adds the records with a name that begins with the prefix."""
        names_limit = self._limit * _NAMES_OF_RECORD
        self._add(self._scan(prefix, ()) if self._organization_id else self._read_range(prefix, names_limit))

    def add_word_matches(self, words: Sequence[str]) -> None:
        """Adds the records with all words, in any order."""
        for word in sorted(words, key=len, reverse=True):
            rows = self._read_range(word, _MAX_COMPARED)
            is_complete = len(rows) < _MAX_COMPARED
            if not is_complete:
                rows = self._scan(word, [other for other in words if other != word])
            self._add(row for row in rows if self._has_all(words, row))
            if len(self.hits) == self._limit or (is_complete and self.hits):
                return

    def add_alias_matches(self, text: str) -> None:
        """Adds the users with an alias that begins with the text."""
        if len(self.hits) == self._limit:
            return
        prefix = unicodedata.normalize("NFC", text.replace("\0", " ").strip()).lower()
        for alias, user_id, payload in run(self._connection, _ALIASES, {"alias": prefix, "limit": self._limit}):
            if alias.startswith(prefix):
                self._add([("", user_id, payload)], alias)

    def _read_range(self, prefix: str, limit: int) -> Sequence[Any]:
        """The first records with a name that begins with the prefix."""
        return self._read(prefix, {"scanned": limit, "limit": limit}, "TRUE")

    def _scan(self, prefix: str, words: Sequence[str]) -> Sequence[Any]:
        """The records of the organization with a name that begins with the prefix and contains the words."""
        values: dict[str, object] = {"scanned": _MAX_SCANNED, "limit": self._limit * _NAMES_OF_RECORD}
        conditions = ["s.organization_id = :organization"] if self._organization_id else []
        for number, word in enumerate(words):
            values[f"word{number}"] = "%" + re.sub(r"([%_!])", r"!\1", word) + "%"
            conditions.append(f"s.name LIKE :word{number} ESCAPE '!'")
        return self._read(prefix, values, " AND ".join(conditions))

    def _read(self, prefix: str, values: Mapping[str, object], matches: str) -> Sequence[Any]:
        names = {"kind": self._kind, "beginning": prefix, "end": prefix + _LAST, "organization": self._organization_id}
        return run(self._connection, _SEARCH, {**names, **values}, matches=matches, **self._parts).all()

    def _has_all(self, words: Sequence[str], row: Sequence[Any]) -> bool:
        """Whether the record belongs to the organization of the search and has all words."""
        organization_id, item_id, payload = row
        return self._organization_id in {"", organization_id} and has_words(words, self._kind, item_id, payload)

    def _add(self, rows: Iterable[Sequence[Any]], alias: str = "") -> None:
        for organization_id, item_id, payload in rows:
            if (organization_id, item_id) not in self.hits and len(self.hits) < self._limit:
                name, email = read_name_fields(self._kind, payload)
                self.hits[organization_id, item_id] = SearchHit(
                    self._kind, organization_id, item_id, name or item_id, email, alias=alias
                )


def has_words(words: Sequence[str], kind: str, item_id: str, payload: str) -> bool:
    """Whether each word begins a word of the record's name, e-mail address or id."""
    if not words:
        return True
    whole = fold(" ".join([*read_name_fields(kind, payload), item_id]))
    if not all(word in whole for word in words):
        return False
    starts = [match.start() for match in _FIRST_OF_WORD.finditer(whole)]
    return all(any(whole.startswith(word, start) for start in starts) for word in words)


def split_words(text: str) -> list[str]:
    """The parts of a text between blanks and commas, each from its first letter or digit on, without repetitions."""
    starts = ((part, _FIRST_OF_WORD.search(part)) for part in re.split(r"[\s,;]+", fold(text)))
    return list(dict.fromkeys(part[start.start() :] for part, start in starts if start))


def with_reasons(connection: Connection, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Returns the hits, all of one kind. Those without effect have the reason in ``without_effect``."""
    causes = find_causes(connection, hits[0].kind, [(hit.organization_id, hit.item_id) for hit in hits]) if hits else {}
    return [
        replace(hit, without_effect=cause.sentence)
        if (cause := causes.get((hit.organization_id, hit.item_id)))
        else hit
        for hit in hits
    ]


def search_exactly(connection: Connection, text: str, kind: str, organization_id: str = "") -> list[SearchHit]:
    """Finds the records of a kind whose whole name, e-mail address or alias is the text, in this organization unless
    it is empty."""
    whole = fold(text)
    return [
        hit
        for hit in search(connection, text, kind, _MAX_SAME_NAME, organization_id=organization_id)
        if whole in {fold(hit.label), fold(hit.detail), fold(hit.alias)}
    ]
