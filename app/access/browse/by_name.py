"""Lists in the order of names, and the search in a list.

A list of at most ``MAX_BY_NAME`` records is read, and sorted. A longer one has the order of its ids, and the search in
it finds the first records only.
"""

from sqlalchemy import Connection

from app.access.browse.lists import ListEntry, RecordList
from app.access.record_tables import TABLES_OF_KIND
from app.access.search import has_words, name_in, search, words_of
from app.foundation.database.statements import json_list, run

MAX_BY_NAME = 4_000
"""A list with more records has the order of its ids. So many take 30 ms."""
_MAX_HITS = 200
"""The most records with a name that the search in a longer list looks up in it."""

_PAYLOADS = """
SELECT requested.value, t.payload FROM (@list(ids)) AS requested CROSS JOIN {table} t WHERE {key} = requested.value
"""


def keys_by_name(connection: Connection, listed: RecordList, text: str = "") -> list[tuple[str, str]] | None:
    """Name and id of the records with all words of the text, in their order. None: the list is too long."""
    ids = listed.ids(after="", limit=MAX_BY_NAME + 1)
    if len(ids) > MAX_BY_NAME:
        return None
    table = TABLES_OF_KIND[listed.kind]
    key = f"{'t.organization_id = :organization_id AND ' if len(table.keys) > 1 else ''}t.{table.keys[-1]}"
    parameters = {"organization_id": listed.organization_id, "ids": json_list(ids)}
    rows = run(connection, _PAYLOADS, parameters, table=table.table.name, key=key)
    payloads = {row.value: row.payload for row in rows}
    words = words_of(text)
    return sorted(
        (name_in(listed.kind, payload), item_id)
        for item_id in ids
        if has_words(words, listed.kind, item_id, payload := payloads.get(item_id, "{}"))
    )


def first_found(connection: Connection, listed: RecordList, text: str, limit: int) -> list[ListEntry]:
    """The first records of a long list that the search for a text finds."""
    hits = search(connection, text, listed.kind, _MAX_HITS, organization_id=listed.organization_id)
    ids = [hit.item_id for hit in hits]
    among = set(listed.among(ids))
    return listed.rows([item_id for item_id in ids if item_id in among][:limit])
