"""Suggests records for a wrong id or name: the most similar ones among its neighbours by id and by name."""

from collections.abc import Iterable
from difflib import SequenceMatcher

from sqlalchemy import Connection

from app.access.browse.lists import ListEntry
from app.access.browse.lookup import find_all, name_of
from app.access.kinds import KINDS
from app.access.record_tables import TABLES_OF_KIND
from app.access.search import fold, from_each_word
from app.foundation.database.statements import run
from app.foundation.ids import may_be_stored

_LIMIT = 5
_NEIGHBOURS = 25
"""How many ids and names on each side are compared."""
_MIN_SIMILARITY = 0.6
"""The similarity of a suggestion, of 1."""

_BESIDE = """
SELECT {column} FROM {table} WHERE {within} AND {column} {direction} :item_id
ORDER BY {column} {order} LIMIT :limit
"""
_NAMES_BESIDE = """
SELECT organization_id, item_id FROM access_name WHERE kind = :kind AND name {direction} :name
ORDER BY name {order} LIMIT :limit
"""
_DIRECTIONS = ((">=", "ASC"), ("<", "DESC"))


def suggest(connection: Connection, kind: str, organization_id: str, item_id: str) -> list[ListEntry]:
    """The records of this kind whose id or name is most similar to ``item_id``, in the organization if the kind belongs
    to one. Without an organization, the names of all of them are compared."""
    if not item_id or not may_be_stored(organization_id, item_id):
        return []
    table = TABLES_OF_KIND[kind]
    column, is_within = table.keys[-1], len(table.keys) > 1
    within = organization_id if is_within else ""
    ids: set[str] = set()
    # As typed, in lower case, and from the first letter: an error near the beginning moves an id far away in the order.
    for start in {item_id, item_id.lower(), item_id[:1].lower()}:
        for direction, order in _DIRECTIONS:
            rows = run(
                connection,
                _BESIDE,
                {"organization_id": within, "item_id": start, "limit": _NEIGHBOURS},
                table=table.table.name,
                column=column,
                within="organization_id = :organization_id" if is_within else "TRUE",
                direction=direction,
                order=order,
            )
            ids.update(rows.scalars())
    keys = {(within, neighbour) for neighbour in ids}
    for beginning in from_each_word(item_id):
        for direction, order in _DIRECTIONS:
            parameters = {"kind": kind, "name": beginning, "limit": _NEIGHBOURS}
            rows = run(connection, _NAMES_BESIDE, parameters, direction=direction, order=order)
            keys.update((row.organization_id, row.item_id) for row in rows if within in {"", row.organization_id})
    similar = []
    for (found_in, found_id), record in find_all(connection, KINDS[kind].record, keys).items():
        name = name_of(record)
        if similarity(item_id, found_id, name) >= _MIN_SIMILARITY:
            similar.append(ListEntry(kind=kind, organization_id=found_in, item_id=found_id, name=name))
    return ranked(item_id, similar)[:_LIMIT]


def ranked(text: str, entries: Iterable[ListEntry]) -> list[ListEntry]:
    """The entries whose id or name is most similar to the text first."""
    return sorted(entries, key=lambda entry: (-similarity(text, entry.item_id, entry.name), entry.item_id))


def similarity(text: str, item_id: str, name: str) -> float:
    """The similarity of a text to the id or the name of a record, of 1."""
    return max(_similarity(text, item_id), _similarity_to_name(text, name))


def _similarity_to_name(text: str, name: str) -> float:
    """The mean of the similarities of each word of the text to the nearest word of the name, or that of the wholes."""
    words, others = fold(text[:64]).split(), fold(name[:64]).split()
    nearest = [max((_similarity(word, other) for other in others), default=0.0) for word in words]
    return max(_similarity(text, name), sum(nearest) / len(words) if words else 0.0)


def _similarity(text: str, other: str) -> float:
    return SequenceMatcher(None, text[:64].lower(), other[:64].lower()).ratio() if other else 0.0
