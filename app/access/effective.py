"""Effective records: SQL that resolves the references of the access model.

A row of the access model is *effective* if everything that it refers to exists. Readers check that with these texts.
They are not database views: a candidate puts temporary tables in front of the lasting ones, and a view would keep
reading the lasting ones.

Decisions and planning check the same rules on their own paths: ``app.access.index``, ``app.access.sql_view`` and
``app.sync.plan.desired``.
"""

# ruff: noqa: S608 - these texts consist of constants of this module

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from sqlalchemy import Connection

from app.access.kinds import KINDS
from app.access.record_tables import TABLES_OF_KIND
from app.access.records import ContextGrant, Document, Folder, Grant, Group, GroupMember, Membership
from app.foundation.database.statements import json_lists, run


class BrokenReference(StrEnum):
    """Why a record has no effect: the kind of the missing record, or a cycle."""

    ORGANIZATION = "organization"
    USER = "user"
    GROUP = "group"
    DOCUMENT = "document"
    FOLDER = "folder"
    CYCLE = "cycle"

    @property
    def sentence(self) -> str:
        """The cause in words."""
        match self:
            case BrokenReference.FOLDER:
                return "its folder, or one above it, is unknown"
            case BrokenReference.CYCLE:
                return "the folders above it form a cycle"
            case _:
                return f"its {self} is unknown"


# `above` is the next folder of the walk: empty at the top, NULL if it does not exist. UNION ends walks in cycles. The
# subquery makes both databases look up one folder at a time.
_WALK = """
  UNION
  SELECT w.organization_id, w.folder_id, (
    SELECT f.parent_folder_id FROM model_folder f
    WHERE f.organization_id = w.organization_id AND f.folder_id = w.above)
  FROM folder_walk w WHERE w.above <> ''
),
endless_folder (organization_id, folder_id) AS (
  SELECT organization_id, folder_id FROM folder_walk
  GROUP BY organization_id, folder_id HAVING COUNT(*) = COUNT(above) AND MIN(above) <> ''
)"""

REQUESTED_FOLDERS = f"""
folder_walk (organization_id, folder_id, above) AS (
  SELECT organization_id, folder_id, folder_id FROM requested_folder
{_WALK},
effective_folder (organization_id, folder_id) AS (
  SELECT organization_id, folder_id FROM folder_walk WHERE above = ''
)"""
"""Definitions for ``WITH RECURSIVE``. Of the folders of ``requested_folder (organization_id, folder_id)``, those that
lead to the top (``effective_folder``), and those that lead into a cycle (``endless_folder``). Of a folder in neither,
the folder itself or one above it is missing. Whether its organization exists is not checked."""

ALL_FOLDERS = f"""
reached_folder (organization_id, folder_id) AS (
  SELECT f.organization_id, f.folder_id
  FROM model_organization o CROSS JOIN model_folder f @by(ix_model_folder_within)
  WHERE f.organization_id = o.organization_id AND f.parent_folder_id = ''
  UNION ALL
  SELECT f.organization_id, f.folder_id
  FROM reached_folder t CROSS JOIN model_folder f @by(ix_model_folder_within)
  WHERE f.organization_id = t.organization_id AND f.parent_folder_id = t.folder_id
),
effective_folder (organization_id, folder_id) AS (SELECT @distinct organization_id, folder_id FROM reached_folder),
folder_walk (organization_id, folder_id, above) AS (
  SELECT f.organization_id, f.folder_id, f.folder_id FROM model_folder f
  LEFT JOIN effective_folder e ON e.organization_id = f.organization_id AND e.folder_id = f.folder_id
  WHERE e.folder_id IS NULL
{_WALK}"""
"""All effective folders of the access model. Folders of a missing organization are not effective.

Without DISTINCT, PostgreSQL multiplies the folders at the top by all folders in its estimate. If that is too large for
a hash table, it scans the effective folders for each row.
"""


def not_in_a_folder(row: str, folder: str) -> str:
    """A condition: ``folder``, an expression, is not in ``effective_folder``. ``row`` has its organization.

    Neither a join, because PostgreSQL underestimates the effective folders and would join them by organization alone,
    nor NOT IN, for which SQLite reads all of them to see if any is NULL.
    """
    return f"""CASE WHEN ({row}.organization_id, {folder}) IN (
    SELECT e.organization_id, e.folder_id FROM effective_folder e) THEN FALSE ELSE TRUE END"""


_REFERENCES: Mapping[str, Sequence[str]] = {
    Membership.kind: ("organization_id", "user_id"),
    Group.kind: ("organization_id",),
    GroupMember.kind: ("organization_id", "user_id", "organization_user_group_id", "member_group_id"),
    Folder.kind: ("organization_id", "folder_id"),
    Document.kind: ("organization_id", "folder_id"),
    Grant.kind: ("organization_id", "folder_id", "document_id", "user_id", "organization_user_group_id"),
    ContextGrant.kind: ("organization_id", "document_id", "user_id", "organization_user_group_id"),
}
"""kind → the columns whose ids must be effective, in the order in which they are checked."""


def cause(kind: str, row: str) -> str:
    """An expression: the ``BrokenReference`` for which the row of this kind has no effect, empty if it is effective.

    ``row`` is an alias with the columns of the kind's key, of a document also ``folder_id``. The statement defines
    ``effective_folder`` and ``endless_folder``. Organizations and users are always effective.
    """
    if kind not in _REFERENCES:
        return "''"
    return f"CASE{''.join(_when_broken(kind, row, column) for column in _REFERENCES[kind])} ELSE '' END"


def _when_broken(kind: str, row: str, column: str) -> str:
    """The branch of ``cause`` for one column."""
    if column == "folder_id":
        return _when_not_in_a_folder(row, f"{row}.folder_id")
    target = TABLES_OF_KIND[KINDS[kind].by_attribute[column].refers_to]
    *within, item = target.keys
    same = " AND ".join([*(f"x.{name} = {row}.{name}" for name in within), f"x.{item} = {row}.{column}"])
    missing = f"""
  WHEN {row}.{column} <> '' AND NOT EXISTS (SELECT 1 FROM {target.table.name} x WHERE {same}) THEN '{target.kind}'"""
    return missing + (_when_not_in_a_folder(row, _folder_of_document(row)) if column == "document_id" else "")


def _when_not_in_a_folder(row: str, folder: str) -> str:
    return f"""
  WHEN {folder} <> '' AND {not_in_a_folder(row, folder)}
    THEN CASE WHEN ({row}.organization_id, {folder}) IN (
      SELECT e.organization_id, e.folder_id FROM endless_folder e) THEN 'cycle' ELSE 'folder' END"""


def _folder_of_document(row: str) -> str:
    return f"""(
    SELECT x.folder_id FROM model_document x
    WHERE x.organization_id = {row}.organization_id AND x.document_id = {row}.document_id)"""


_FOLDERS_OF: Mapping[str, str] = {
    Folder.kind: "SELECT organization_id, folder_id FROM requested",
    Document.kind: "SELECT organization_id, folder_id FROM requested WHERE folder_id <> ''",
    Grant.kind: f"""SELECT organization_id, CASE WHEN folder_id <> '' THEN folder_id
      ELSE {_folder_of_document("requested")} END FROM requested""",
    ContextGrant.kind: f"""SELECT organization_id, {_folder_of_document("requested")}
      FROM requested WHERE document_id <> ''""",
}
_NO_FOLDERS = "SELECT '', '' FROM requested WHERE FALSE"

# A cross join stops SQLite from reading the table to look its rows up in the list.
_FIND = """
WITH RECURSIVE requested AS MATERIALIZED (
  SELECT {columns} FROM (@list(keys)) AS k CROSS JOIN {table} t WHERE {same}
),
requested_folder (organization_id, folder_id) AS ({folders}),
{requested_folders}
SELECT {keys}, cause FROM (SELECT requested.*, {cause} AS cause FROM requested) AS with_cause WHERE cause <> ''
"""


def find_causes(
    connection: Connection, kind: str, keys: Iterable[Sequence[str]]
) -> dict[tuple[str, ...], BrokenReference]:
    """Key → why the record has no effect. Only records of the access model without effect.

    ``keys``: the values of the primary key, absent ids as empty text.
    """
    requested = sorted({tuple(key) for key in keys})
    if not requested or kind not in _REFERENCES:
        return {}
    table = TABLES_OF_KIND[kind]
    columns = [*table.keys, "folder_id"] if kind == Document.kind else table.keys
    rows = run(
        connection,
        _FIND,
        {"keys": json_lists(requested)},
        columns=", ".join(f"t.{name}" for name in columns),
        table=table.table.name,
        same=" AND ".join(f"t.{name} = @part(k.value, {part})" for part, name in enumerate(table.keys)),
        folders=_FOLDERS_OF.get(kind, _NO_FOLDERS),
        requested_folders=REQUESTED_FOLDERS,
        keys=", ".join(table.keys),
        cause=cause(kind, "requested"),
    )
    return {tuple(row[:-1]): BrokenReference(row[-1]) for row in rows}
