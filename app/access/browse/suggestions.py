"""Suggests records for a wrong id: those with the most similar ids and names among its neighbours by id."""

from difflib import SequenceMatcher

from sqlalchemy import Connection

from app.access.browse.lists import ListEntry
from app.access.browse.lookup import find_all, name_of
from app.access.kinds import KINDS
from app.access.record_tables import TABLES_OF_KIND
from app.foundation.database.statements import run
from app.foundation.ids import may_be_stored

_LIMIT = 5
_NEIGHBOURS = 25
"""How many ids on each side are compared."""
_MIN_SIMILARITY = 0.6
"""The similarity of a suggestion, of 1."""

_BESIDE = """
SELECT {column} FROM {table} WHERE {within} AND {column} {direction} :item_id
ORDER BY {column} {order} LIMIT :limit
"""


def suggest(connection: Connection, kind: str, organization_id: str, item_id: str) -> list[ListEntry]:
    """The records of this kind that are most similar to the id, in the organization if the kind belongs to one."""
    if not item_id or not may_be_stored(organization_id, item_id):
        return []
    table = TABLES_OF_KIND[kind]
    column, is_within = table.keys[-1], len(table.keys) > 1
    within = organization_id if is_within else ""
    ids: set[str] = set()
    # As typed, in lower case, and from the first letter: an error near the beginning moves an id far away in the order.
    for start in {item_id, item_id.lower(), item_id[:1].lower()}:
        for direction, order in ((">=", "ASC"), ("<", "DESC")):
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
            ids.update(row[0] for row in rows)
    similar = []
    for key, record in find_all(connection, KINDS[kind].record, [(within, neighbour) for neighbour in ids]).items():
        name = name_of(record)
        similarity = max(_similarity(item_id, key[1]), _similarity(item_id, name))
        if similarity >= _MIN_SIMILARITY:
            entry = ListEntry(kind=kind, organization_id=key[0], item_id=key[1], name=name)
            similar.append((-similarity, key[1], entry))
    return [entry for *_, entry in sorted(similar, key=lambda candidate: candidate[:2])[:_LIMIT]]


def _similarity(text: str, other: str) -> float:
    return SequenceMatcher(None, text[:64].lower(), other[:64].lower()).ratio() if other else 0.0
