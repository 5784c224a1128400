"""Looks up single records of the access model by their ids, with their names and the folders above them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, CursorResult

from app.access.decision.ancestry import Ancestry, ancestry_of
from app.access.kinds import KINDS
from app.access.record_tables import TABLES_OF_KIND, KindTable, RecordT, record_of
from app.access.records import Document, Folder, Record
from app.foundation.database.statements import json_list, json_lists, run
from app.foundation.ids import may_be_stored

IdInOrganization = tuple[str, str]
"""An organization and an id in it. The first is empty for users and organizations themselves."""

_ONE = "SELECT {columns} FROM {table} t WHERE {key}"

# A cross join stops SQLite from reading the table to look its rows up in the list.
_SEVERAL = "SELECT {columns} FROM (@list(keys)) AS requested CROSS JOIN {table} t WHERE {key}"

# From one organization to the next, in each by the key.
_OF_ID = """
SELECT {columns} FROM (SELECT organization_id FROM model_organization ORDER BY organization_id LIMIT :organizations) o
CROSS JOIN {table} t WHERE t.organization_id = o.organization_id AND t.{item} = :item_id
ORDER BY o.organization_id LIMIT :limit
"""
_MAX_ORGANIZATIONS = 1_000

# UNION ends cycles of folders.
_WITH_ABOVE = """
WITH RECURSIVE above (folder_id) AS (
  SELECT value FROM (@list(folders)) AS requested
  UNION
  SELECT f.parent_folder_id FROM above a CROSS JOIN model_folder f
  WHERE f.organization_id = :organization_id AND f.folder_id = a.folder_id AND f.parent_folder_id <> ''
)
SELECT {columns} FROM above a CROSS JOIN {table} t
WHERE t.organization_id = :organization_id AND t.folder_id = a.folder_id
"""

# Of each of several folders, itself and those above it, up to a depth.
_PATHS = """
WITH RECURSIVE above (start, folder_id, depth) AS (
  SELECT value, value, 0 FROM (@list(folders)) AS requested
  UNION ALL
  SELECT a.start, f.parent_folder_id, a.depth + 1 FROM above a CROSS JOIN model_folder f
  WHERE f.organization_id = :organization_id AND f.folder_id = a.folder_id AND f.parent_folder_id <> ''
    AND a.depth < :depth
)
SELECT start, folder_id FROM above ORDER BY start, depth
"""
_PATH_FOLDERS = 3
"""The folders of a path. The others are left out."""


def find(connection: Connection, of: type[RecordT], *key: str) -> RecordT | None:
    """The record of this kind with this key. None if it does not exist."""
    if not may_be_stored(*key):
        return None
    table = TABLES_OF_KIND[of.kind]
    same = " AND ".join(f"t.{name} = :{name}" for name in table.keys)
    row = _run(connection, _ONE, table, dict(zip(table.keys, key, strict=True)), key=same).one_or_none()
    return None if row is None else record_of(of, row)


def find_all(
    connection: Connection, of: type[RecordT], keys: Iterable[IdInOrganization]
) -> dict[IdInOrganization, RecordT]:
    """The existing records of this kind among these keys."""
    requested = sorted(set(keys))
    if not requested:
        return {}
    table = TABLES_OF_KIND[of.kind]
    # Keys of organizations and users begin with an empty organization.
    offset = 2 - len(table.keys)
    same = " AND ".join(f"t.{name} = @part(requested.value, {part})" for part, name in enumerate(table.keys, offset))
    records: dict[IdInOrganization, RecordT] = {}
    for row in _run(connection, _SEVERAL, table, {"keys": json_lists(requested)}, key=same):
        record = record_of(of, row)
        records["" if offset else record.key[1], record.key[-1]] = record
    return records


def find_by_id(
    connection: Connection, of: type[RecordT], item_id: str, *, limit: int
) -> dict[IdInOrganization, RecordT]:
    """The records of this kind with exactly this id, in the first thousand organizations."""
    if not may_be_stored(item_id):
        return {}
    table = TABLES_OF_KIND[of.kind]
    if len(table.keys) == 1:
        only = find(connection, of, item_id)
        return {} if only is None else {("", item_id): only}
    parameters = {"organizations": _MAX_ORGANIZATIONS, "item_id": item_id, "limit": limit}
    rows = _run(connection, _OF_ID, table, parameters, item=table.keys[1]).all()
    return {(row.organization_id, item_id): record_of(of, row) for row in rows}


def find_names(
    connection: Connection, of: type[RecordT], keys: Iterable[IdInOrganization]
) -> dict[IdInOrganization, str]:
    """The names of the existing records among these keys."""
    return {key: name_of(record) for key, record in find_all(connection, of, keys).items()}


def name_of(record: Record) -> str:
    """The name of a record. Empty if it has none."""
    field = KINDS[record.kind].name_field
    return "" if field is None else str(getattr(record, field.attribute) or "")


def find_with_parents(connection: Connection, organization_id: str, folder_ids: Iterable[str]) -> dict[str, Folder]:
    """These folders and all folders above them, by id. Only those that exist."""
    parameters = {"organization_id": organization_id, "folders": json_list(folder_ids)}
    rows = _run(connection, _WITH_ABOVE, TABLES_OF_KIND[Folder.kind], parameters)
    return {row.folder_id: record_of(Folder, row) for row in rows}


def folders_from(connection: Connection, organization_id: str, folder_id: str | None) -> Ancestry:
    """A folder and its parents, nearest first."""
    if folder_id is None:
        return Ancestry()
    return ancestry_of(find_with_parents(connection, organization_id, [folder_id]).get, folder_id)


def find_paths(connection: Connection, organization_id: str, folder_ids: Iterable[str]) -> dict[str, list[str]]:
    """Folder → its name after those of the folders above it. The first name is "…" if there are more of them."""
    paths: dict[str, list[str]] = {}
    parameters = {"organization_id": organization_id, "folders": json_list(set(folder_ids)), "depth": _PATH_FOLDERS}
    rows = run(connection, _PATHS, parameters).all()
    names = find_names(connection, Folder, [(organization_id, row.folder_id) for row in rows])
    for row in rows:
        path = paths.setdefault(row.start, [])
        is_whole = len(path) < _PATH_FOLDERS
        path.insert(0, (names.get((organization_id, row.folder_id)) or row.folder_id) if is_whole else "…")
    return paths


def folder_paths(
    connection: Connection, organization_id: str, items: Collection[tuple[str, str]]
) -> dict[tuple[str, str], list[str]]:
    """Kind and id of folders and documents → the names of the folders above, as ``find_paths`` returns them."""
    above: dict[tuple[str, str], str] = {}
    for of, field in ((Folder, "parent_folder_id"), (Document, "folder_id")):
        keys = [(organization_id, item_id) for kind, item_id in items if kind == of.kind]
        records = find_all(connection, of, keys)
        above |= {(of.kind, key[1]): getattr(record, field) or "" for key, record in records.items()}
    paths = find_paths(connection, organization_id, filter(None, above.values()))
    return {item: paths.get(folder_id, []) for item, folder_id in above.items()}


def _run(
    connection: Connection, template: str, table: KindTable, parameters: Mapping[str, object], **parts: str
) -> CursorResult[*tuple[Any, ...]]:
    columns = ", ".join(f"t.{name}" for name in table.columns)
    return run(connection, template, parameters, columns=columns, table=table.table.name, **parts)
