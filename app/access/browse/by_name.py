"""Sorts a list of records by name, and searches in it.

A list of at most ``MAX_BY_NAME`` records is read and sorted. A longer one has the order of its ids, and the search in
it finds the first records only.
"""

from typing import NamedTuple

from sqlalchemy import Connection

from app.access.browse.lists import ListEntry, RecordList
from app.access.record_tables import TABLES_OF_KIND
from app.access.search import fold, has_words, read_name_fields, search, split_words
from app.foundation.database.statements import json_list, run

MAX_BY_NAME = 4_000
"""A list with more records has the order of its ids. Sorting this many takes 30 ms."""
_MAX_HITS = 200
"""The most records with a name that the search in a longer list looks up in it."""

_PAYLOADS = """
SELECT requested.value, t.payload FROM (@list(ids)) AS requested CROSS JOIN {table} t WHERE {key} = requested.value
"""


class NamedId(NamedTuple):
    """The place of a record in the order of names."""

    name: str
    """Folded (``app.access.search.fold``). Empty if the record has none."""
    item_id: str


def sort_by_name(connection: Connection, records: RecordList, text: str = "") -> list[NamedId] | None:
    """The records of the list with all words of the text, in the order of their names. None: the list is too long."""
    ids = records.ids(after="", limit=MAX_BY_NAME + 1)
    if len(ids) > MAX_BY_NAME:
        return None
    table = TABLES_OF_KIND[records.kind]
    within = "t.organization_id = :organization_id AND " if len(table.keys) > 1 else ""
    parameters = {"organization_id": records.organization_id, "ids": json_list(ids)}
    rows = run(connection, _PAYLOADS, parameters, table=table.table.name, key=f"{within}t.{table.keys[-1]}")
    payloads = {row.value: row.payload for row in rows}
    words = split_words(text)
    matches = []
    for item_id in ids:
        payload = payloads.get(item_id, "{}")
        if has_words(words, records.kind, item_id, payload):
            matches.append(NamedId(fold(read_name_fields(records.kind, payload).name), item_id))
    return sorted(matches)


def find_first(connection: Connection, records: RecordList, text: str, limit: int) -> list[ListEntry]:
    """The first records of a long list that the search for a text finds."""
    hits = search(connection, text, records.kind, _MAX_HITS, organization_id=records.organization_id)
    ids = [hit.item_id for hit in hits]
    in_list = set(records.among(ids))
    return records.rows([item_id for item_id in ids if item_id in in_list][:limit])
