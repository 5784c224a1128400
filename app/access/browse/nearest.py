"""Things whose id or name is nearly what somebody wrote: its neighbours in the order of ids, the most alike first."""

from difflib import SequenceMatcher

from sqlalchemy import Connection

from app.access.browse.lists import ListEntry
from app.access.browse.things import Key, find_all, may_be_stored, name_of
from app.access.records import Document, Folder, Group, Organization, Record, User
from app.foundation.database.statements import run

_KINDS: dict[str, tuple[type[Record], str, str]] = {
    "organization": (Organization, "model_organization", "organization_id"),
    "user": (User, "model_user", "user_id"),
    "group": (Group, "model_group", "organization_user_group_id"),
    "folder": (Folder, "model_folder", "folder_id"),
    "document": (Document, "model_document", "document_id"),
}
_MOST = 5
_AROUND = 25
"""How many ids on each side are looked at."""
_ALIKE = 0.5
"""How alike two texts are at least, of 1."""

_BESIDE = """
SELECT {column} FROM {table} WHERE {within} AND {column} {direction} :item_id
ORDER BY {column} {order} LIMIT :limit
"""


def nearest(connection: Connection, kind: str, organization_id: str, item_id: str) -> list[ListEntry]:
    """Those of this kind that are most like the id, in the organization where the kind has one."""
    if not item_id or not may_be_stored(organization_id, item_id):
        return []
    of, table, column = _KINDS[kind]
    is_within = kind not in {"organization", "user"}
    within = organization_id if is_within else ""
    beginnings = list(dict.fromkeys([item_id, item_id.lower(), item_id[:1].lower()]))
    ids: dict[str, None] = {}
    for beginning in beginnings:
        for direction, order in ((">=", "ASC"), ("<", "DESC")):
            rows = run(
                connection,
                _BESIDE,
                {"organization_id": within, "item_id": beginning, "limit": _AROUND},
                table=table,
                column=column,
                within="organization_id = :organization_id" if is_within else "TRUE",
                direction=direction,
                order=order,
            )
            ids.update(dict.fromkeys(row[0] for row in rows))
    found = find_all(connection, of, [(within, one) for one in ids])
    return _most_alike(item_id, kind, found)


def _most_alike(wanted: str, kind: str, found: dict[Key, Record]) -> list[ListEntry]:
    entries = []
    for (organization_id, item_id), record in found.items():
        name = name_of(record)
        likeness = max(_likeness(wanted, item_id), _likeness(wanted, name))
        if likeness >= _ALIKE:
            entries.append(
                (-likeness, item_id, ListEntry(kind=kind, organization_id=organization_id, item_id=item_id, name=name))
            )
    return [entry for *_, entry in sorted(entries, key=lambda one: one[:2])[:_MOST]]


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one[:64].lower(), other[:64].lower()).ratio() if other else 0.0
