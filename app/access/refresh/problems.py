"""Finds the problems of records: those that follow from the records of all sources together.

The rules: ``app/access/README.md``, "Problems". ``app.access.stored_problems`` counts and stores them.

A record is a row of ``source_<kind>``, or one that was just staged. Its problem is the first of these: another object
of its source provides the key; its alias does not name one user; another source owns the key; something that it refers
to does not exist or has no effect.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import groupby, islice
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, or_, select

from app.access.effective import ALL_FOLDERS, ASKED_FOLDERS
from app.access.problems import PROBLEMS_KEPT, Problem, ProblemCause, ProblemSample, ProblemSort
from app.access.record_tables import KIND_TABLES, core_table
from app.access.records import (
    ContextGrant,
    Document,
    Fill,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    User,
)
from app.access.refresh.cycles import find_cycles
from app.access.refresh.tables import REFRESH_TABLES, REFRESH_TABLES_OF_KIND, RefreshTables
from app.access.source_tables import DirectorySourceRow
from app.access.tables import ModelUserAliasRow
from app.foundation.database.statements import json_list, run, statement

_SOURCE = core_table(DirectorySourceRow)
_ALIAS = core_table(ModelUserAliasRow)

NO_SOURCE = 0
"""The source of problems that no source has alone."""

_MOST_EDGES = 200_000
"""The most groups in groups of an organization that are searched for cycles: about 60 MB."""

_MOST_PUSHED = 1_000_000
"""More records than any push contains: all of those without effect are reported."""

_MODEL = {tables.kind: tables.table for tables in KIND_TABLES}


# Which records have a problem: one statement for each kind. ``wrong`` is a ``ProblemCause``, or the column whose
# reference does not exist or has no effect. ``[rows]`` are the records: ``person`` is the user that they name, and
# ``in_itself`` a problem that does not depend on other kinds. ``[table]`` is the table or query from which they come.

_NAMED_ROWS = """(
  SELECT r.*, CASE WHEN r.origin <> '' AND EXISTS (
    SELECT 1 FROM {source} f WHERE {written_keys:f=r} AND f.origin <> ''
    AND (f.origin @bytes, LENGTH(f.rule), f.rule @bytes) < (r.origin @bytes, LENGTH(r.rule), r.rule @bytes)
  ) THEN 'repeated' END AS in_itself
  FROM [table] r
  WHERE r.origin = '' OR NOT EXISTS (SELECT 1 FROM {source} p WHERE {written_keys:p=r} AND p.origin = ''))"""

_ROWS_WITH_USERS = """(
  SELECT r.*,
    CASE WHEN r.user_alias = '' THEN r.user_id ELSE COALESCE((
      SELECT MIN(h.user_id) FROM model_user_alias h WHERE h.alias = r.user_alias), '') END AS person,
    CASE WHEN r.user_alias <> '' THEN (
      SELECT CASE COUNT(*) WHEN 0 THEN 'unknownAlias' WHEN 1 THEN NULL ELSE 'sharedAlias' END
      FROM model_user_alias h WHERE h.alias = r.user_alias) END AS in_itself
  FROM [table] r)"""

_WRONG = {
    Organization.kind: """
SELECT s.*, m.source_id AS owner,
  COALESCE(s.in_itself, CASE WHEN m.source_id <> s.source_id THEN 'owned' END) AS wrong
FROM [rows] s LEFT JOIN model_organization m ON m.organization_id = s.organization_id
""",
    User.kind: """
SELECT s.*, m.source_id AS owner,
  COALESCE(s.in_itself, CASE WHEN m.source_id <> s.source_id THEN 'owned' END) AS wrong
FROM [rows] s LEFT JOIN model_user m ON m.user_id = s.user_id
""",
    Membership.kind: """
SELECT s.*, m.source_id AS owner, COALESCE(s.in_itself, CASE
  WHEN m.source_id <> s.source_id THEN 'owned'
  WHEN o.organization_id IS NULL THEN 'organization_id'
  WHEN u.user_id IS NULL THEN 'user_id' END) AS wrong
FROM [rows] s
LEFT JOIN model_membership m ON m.organization_id = s.organization_id AND m.user_id = s.person
LEFT JOIN model_organization o ON o.organization_id = s.organization_id
LEFT JOIN model_user u ON u.user_id = s.person
""",
    Group.kind: """
SELECT s.*, m.source_id AS owner, COALESCE(s.in_itself, CASE
  WHEN m.source_id <> s.source_id THEN 'owned'
  WHEN o.organization_id IS NULL THEN 'organization_id' END) AS wrong
FROM [rows] s
LEFT JOIN model_group m
  ON m.organization_id = s.organization_id AND m.organization_user_group_id = s.organization_user_group_id
LEFT JOIN model_organization o ON o.organization_id = s.organization_id
""",
    GroupMember.kind: """
SELECT s.*, m.source_id AS owner, COALESCE(s.in_itself, CASE
  WHEN m.source_id <> s.source_id THEN 'owned'
  WHEN o.organization_id IS NULL OR g.organization_user_group_id IS NULL THEN 'organization_user_group_id'
  WHEN s.person <> '' AND u.user_id IS NULL THEN 'user_id'
  WHEN s.member_group_id <> '' AND i.organization_user_group_id IS NULL THEN 'member_group_id' END) AS wrong
FROM [rows] s
LEFT JOIN model_group_member m ON m.organization_id = s.organization_id
  AND m.organization_user_group_id = s.organization_user_group_id
  AND m.user_id = s.person AND m.member_group_id = s.member_group_id
LEFT JOIN model_organization o ON o.organization_id = s.organization_id
LEFT JOIN model_group g
  ON g.organization_id = s.organization_id AND g.organization_user_group_id = s.organization_user_group_id
LEFT JOIN model_group i
  ON i.organization_id = s.organization_id AND i.organization_user_group_id = s.member_group_id
LEFT JOIN model_user u ON u.user_id = s.person
""",
    Folder.kind: """
SELECT s.*, m.source_id AS owner, COALESCE(s.in_itself, CASE
  WHEN m.source_id <> s.source_id THEN 'owned'
  WHEN o.organization_id IS NULL THEN 'organization_id'
  WHEN c.folder_id IS NOT NULL THEN 'folderCycle'
  WHEN e.folder_id IS NULL THEN 'parent_folder_id' END) AS wrong
FROM [rows] s
LEFT JOIN model_folder m ON m.organization_id = s.organization_id AND m.folder_id = s.folder_id
LEFT JOIN model_organization o ON o.organization_id = s.organization_id
LEFT JOIN effective_folder e ON e.organization_id = s.organization_id AND e.folder_id = s.folder_id
LEFT JOIN cyclic_folder c ON c.organization_id = s.organization_id AND c.folder_id = s.folder_id
""",
    Document.kind: """
SELECT s.*, m.source_id AS owner, COALESCE(s.in_itself, CASE
  WHEN m.source_id <> s.source_id THEN 'owned'
  WHEN o.organization_id IS NULL THEN 'organization_id'
  WHEN m.folder_id <> '' AND e.folder_id IS NULL THEN 'folder_id' END) AS wrong
FROM [rows] s
LEFT JOIN model_document m ON m.organization_id = s.organization_id AND m.document_id = s.document_id
LEFT JOIN model_organization o ON o.organization_id = s.organization_id
LEFT JOIN effective_folder e ON e.organization_id = m.organization_id AND e.folder_id = m.folder_id
""",
    Grant.kind: """
SELECT s.*, m.source_id AS owner, COALESCE(s.in_itself, CASE
  WHEN m.source_id <> s.source_id THEN 'owned'
  WHEN s.folder_id <> '' AND (o.organization_id IS NULL OR f.folder_id IS NULL) THEN 'folder_id'
  WHEN s.document_id <> '' AND (o.organization_id IS NULL OR d.document_id IS NULL
    OR d.folder_id <> '' AND e.folder_id IS NULL) THEN 'document_id'
  WHEN s.organization_user_group_id <> '' AND g.organization_user_group_id IS NULL THEN 'organization_user_group_id'
  WHEN s.person <> '' AND u.user_id IS NULL THEN 'user_id' END) AS wrong
FROM [rows] s
LEFT JOIN model_grant m ON m.organization_id = s.organization_id AND m.folder_id = s.folder_id
  AND m.document_id = s.document_id AND m.user_id = s.person
  AND m.organization_user_group_id = s.organization_user_group_id
LEFT JOIN effective_folder f ON f.organization_id = s.organization_id AND f.folder_id = s.folder_id
LEFT JOIN model_organization o ON o.organization_id = s.organization_id
LEFT JOIN model_document d ON d.organization_id = s.organization_id AND d.document_id = s.document_id
LEFT JOIN effective_folder e ON e.organization_id = d.organization_id AND e.folder_id = d.folder_id
LEFT JOIN model_group g
  ON g.organization_id = s.organization_id AND g.organization_user_group_id = s.organization_user_group_id
LEFT JOIN model_user u ON u.user_id = s.person
""",
    ContextGrant.kind: """
SELECT s.*, m.source_id AS owner, COALESCE(s.in_itself, CASE
  WHEN m.source_id <> s.source_id THEN 'owned'
  WHEN o.organization_id IS NULL THEN 'organization_id'
  WHEN s.person <> '' AND u.user_id IS NULL THEN 'user_id'
  WHEN s.organization_user_group_id <> '' AND g.organization_user_group_id IS NULL THEN 'organization_user_group_id'
  WHEN s.document_id <> '' AND (d.document_id IS NULL OR d.folder_id <> '' AND e.folder_id IS NULL)
    THEN 'document_id' END) AS wrong
FROM [rows] s
LEFT JOIN model_context_grant m ON m.organization_id = s.organization_id AND m.user_id = s.person
  AND m.organization_user_group_id = s.organization_user_group_id
  AND m.field = s.field AND m.value = s.value AND m.document_id = s.document_id
LEFT JOIN model_organization o ON o.organization_id = s.organization_id
LEFT JOIN model_document d ON d.organization_id = s.organization_id AND d.document_id = s.document_id
LEFT JOIN effective_folder e ON e.organization_id = d.organization_id AND e.folder_id = d.folder_id
LEFT JOIN model_group g
  ON g.organization_id = s.organization_id AND g.organization_user_group_id = s.organization_user_group_id
LEFT JOIN model_user u ON u.user_id = s.person
""",
    Fill.kind: """
SELECT s.*, 0 AS owner, COALESCE(s.in_itself, CASE WHEN u.user_id IS NULL THEN 'user_id' END) AS wrong
FROM [rows] s LEFT JOIN model_user u ON u.user_id = s.person
""",
}

# The folders in cycles, among those that `effective.py` walks.
_FOLDERS = """
WITH RECURSIVE [walk],
cyclic_folder (organization_id, folder_id) AS (
  SELECT DISTINCT w.organization_id, w.folder_id FROM folder_walk w JOIN model_folder f
  ON f.organization_id = w.organization_id AND f.folder_id = w.above AND f.parent_folder_id = w.folder_id)
"""

_FOLDERS_NAMED = {
    Folder.kind: "SELECT r.organization_id, r.folder_id FROM [table] r",
    Document.kind: """
SELECT d.organization_id, d.folder_id FROM [table] r CROSS JOIN model_document d
WHERE d.organization_id = r.organization_id AND d.document_id = r.document_id""",
    Grant.kind: """
SELECT r.organization_id, r.folder_id FROM [table] r
UNION ALL SELECT d.organization_id, d.folder_id FROM [table] r CROSS JOIN model_document d
WHERE d.organization_id = r.organization_id AND d.document_id = r.document_id""",
    ContextGrant.kind: """
SELECT d.organization_id, d.folder_id FROM [table] r CROSS JOIN model_document d
WHERE d.organization_id = r.organization_id AND d.document_id = r.document_id""",
}
"""kind → the folders on which it depends whether records are effective."""

_FIRST = """
SELECT * FROM (
  SELECT w.*, COUNT(*) OVER (PARTITION BY source_id, sort) AS problems,
    ROW_NUMBER() OVER (PARTITION BY source_id, sort ORDER BY {source_keys}) AS ordinal
  FROM (
    SELECT j.*, CASE wrong WHEN 'repeated' THEN 'duplicate' WHEN 'owned' THEN 'ownedElsewhere'
      WHEN 'sharedAlias' THEN 'ambiguous' WHEN 'folderCycle' THEN 'folderCycle' ELSE 'dangling' END AS sort
    FROM ([wrong]) AS j WHERE j.wrong IS NOT NULL) AS w) AS numbered
WHERE ordinal <= :most ORDER BY {source_keys}
"""

# Groups that contain no group, or that no group contains, are in no cycle.
_GROUPS_IN_GROUPS = """
SELECT m.organization_id, m.organization_user_group_id AS group_id, m.member_group_id AS member_id
FROM model_group_member m
JOIN model_organization o ON o.organization_id = m.organization_id
JOIN model_group g
  ON g.organization_id = m.organization_id AND g.organization_user_group_id = m.organization_user_group_id
JOIN model_group i ON i.organization_id = m.organization_id AND i.organization_user_group_id = m.member_group_id
WHERE m.member_group_id <> '' AND EXISTS (
  SELECT 1 FROM model_group_member n WHERE n.organization_id = m.organization_id
  AND n.organization_user_group_id = m.member_group_id AND n.user_id = '')
AND EXISTS (
  SELECT 1 FROM model_group_member n WHERE n.organization_id = m.organization_id
  AND n.member_group_id = m.organization_user_group_id)
ORDER BY m.organization_id @bytes
"""


@cache
def _statement(kind: str, table: str, *, few: bool) -> str:
    """The statement about the records of a kind in a table."""
    tables = REFRESH_TABLES_OF_KIND[kind]
    rows = (_ROWS_WITH_USERS if tables.record_kind.names_user else _NAMED_ROWS).replace("[table]", table)
    wrong = _FIRST.replace("[wrong]", _WRONG[kind].replace("[rows]", rows))
    if kind not in _FOLDERS_NAMED:
        return tables.text(wrong)
    asked = f"asked_folder (organization_id, folder_id) AS ({_FOLDERS_NAMED[kind].replace('[table]', table)})"
    walk = f"{asked}, {ASKED_FOLDERS}" if few else ALL_FOLDERS
    return tables.text(_FOLDERS.replace("[walk]", walk) + wrong)


# Finding.

FoundProblems = Mapping[tuple[int, str], ProblemSample]
"""(source, sort) → what was found."""


class _Finder:
    """Finds problems in the transaction of a connection."""

    def __init__(self, connection: Connection, most: int = PROBLEMS_KEPT) -> None:
        """``most``: the number of problems of a source and sort that are not only counted."""
        self._connection = connection
        self._most = most
        self._names = {
            row.source_id: row.name for row in connection.execute(select(_SOURCE.c.source_id, _SOURCE.c.name))
        }
        self.found: dict[tuple[int, str], ProblemSample] = {}

    def add(self, source_id: int, problem: Problem, count: int = 1) -> None:
        """Adds a problem. ``count``: how many more it represents, with itself; 0: it is counted already."""
        found = self.found.setdefault((source_id, problem.sort.value), ProblemSample())
        found.add(count, [problem], self._most)

    def find(self, tables: RefreshTables, table: str, parameters: Mapping[str, object], *, few: bool) -> None:
        """Finds the problems of the records in a table, or in a query in parentheses. ``few``: there are few of them,
        so that folders are looked up instead of all being read."""
        known: set[tuple[int, str]] = set()
        query = _statement(tables.kind, table, few=few)
        for row in run(self._connection, query, {**parameters, "most": self._most}).all():
            of = row.source_id, row.sort
            self.add(row.source_id, self._problem(tables, row), 0 if of in known else int(row.problems))
            known.add(of)

    def find_group_cycles(self) -> None:
        """Finds groups that contain each other, one organization at a time."""
        query = statement(self._connection, _GROUPS_IN_GROUPS)
        rows = self._connection.execute(query, execution_options={"yield_per": 1_000})
        for organization_id, edges in groupby(rows, key=lambda row: row.organization_id):
            inside: dict[str, list[str]] = {}
            for row in islice(edges, _MOST_EDGES + 1):
                inside.setdefault(row.group_id, []).append(row.member_id)
            if sum(map(len, inside.values())) > _MOST_EDGES:
                self._add_cycle(NO_SOURCE, "", ProblemCause.TOO_MANY, organization_id, [""])
                continue
            for groups in find_cycles(inside):
                source_id, place = self._membership_in(organization_id, groups)
                self._add_cycle(source_id, place, ProblemCause.GROUP_CYCLE, organization_id, groups)

    def _add_cycle(
        self, source_id: int, place: str, cause: ProblemCause, organization_id: str, groups: Sequence[str]
    ) -> None:
        source, key = self._names.get(source_id, ""), (organization_id, groups[0])
        sort, detail = ProblemSort.GROUP_CYCLE, tuple(groups)
        self.add(source_id, Problem(sort, source, place, cause, kind=Group.kind, key=key, detail=detail))

    def _problem(self, tables: RefreshTables, row: Row[Any]) -> Problem:
        key = tuple(getattr(row, one.attribute) for one in tables.record_kind.keys)
        cause, detail = self._cause(tables, row)
        source = self._names.get(row.source_id, "")
        return Problem(ProblemSort(row.sort), source, row.place, cause, kind=tables.kind, key=key, detail=detail)

    def _cause(self, tables: RefreshTables, row: Row[Any]) -> tuple[ProblemCause, tuple[str, ...]]:
        match row.wrong:
            case ProblemCause.REPEATED:
                return ProblemCause.REPEATED, (self._place(tables, row, row.source_id, of_objects=True),)
            case ProblemCause.OWNED:
                return ProblemCause.OWNED, (self._names.get(row.owner, ""), self._place(tables, row, row.owner))
            case ProblemCause.UNKNOWN_ALIAS:
                return ProblemCause.UNKNOWN_ALIAS, (row.user_alias,)
            case ProblemCause.SHARED_ALIAS:
                users = run(self._connection, _HOLDERS, {"alias": row.user_alias}).scalars()
                return ProblemCause.SHARED_ALIAS, (row.user_alias, *users)
            case ProblemCause.FOLDER_CYCLE:
                return ProblemCause.FOLDER_CYCLE, ()
        reference = tables.record_kind.by_attribute[row.wrong]
        value = row.person if row.wrong == "user_id" else getattr(row, row.wrong)
        target = _MODEL[reference.refers_to]
        *within, own = target.primary_key.columns
        there = select(own).where(own == value, *(one == getattr(row, one.name) for one in within))
        known = self._connection.execute(there).first() is not None
        cause = ProblemCause.WITHOUT_EFFECT if known else ProblemCause.UNKNOWN
        return cause, (reference.refers_to, value, reference.name)

    def _place(self, tables: RefreshTables, row: Row[Any], source_id: int, *, of_objects: bool = False) -> str:
        """Where a source provides the key of a row first."""
        rows = tables.source.c
        same = [rows[name] == getattr(row, name) for name in tables.keys if name != "user_id"]
        if tables.record_kind.names_user:
            aliases = select(_ALIAS.c.alias).where(_ALIAS.c.user_id == row.person, _ALIAS.c.user_id != "")
            by_id = (rows.user_id == row.person) & (rows.user_alias == "")
            same.append(or_(by_id, (rows.user_id == "") & rows.user_alias.in_(aliases)))
        elif tables.kind == User.kind:
            same.append(rows.user_id == row.user_id)
        if of_objects:
            same.append(rows.origin != "")
        places = select(rows.place, rows.origin, rows.rule).where(rows.source_id == source_id, *same)
        found = sorted(self._connection.execute(places), key=lambda one: (one.origin, len(one.rule), one.rule))
        return str(found[0].place) if found else ""

    def _membership_in(self, organization_id: str, groups: Sequence[str]) -> tuple[int, str]:
        """The source that puts another group of a cycle into the first one, and where."""
        values = {"organization_id": organization_id, "group_id": groups[0], "members": json_list(groups)}
        row = run(self._connection, _MEMBERSHIP_IN, values).first()
        return (NO_SOURCE, "") if row is None else (int(row.source_id), str(row.place))


_HOLDERS = "SELECT user_id FROM model_user_alias WHERE alias = :alias ORDER BY user_id @bytes LIMIT 3"

_MEMBERSHIP_IN = """
SELECT s.source_id, s.place FROM model_group_member m
JOIN source_group_member s ON s.organization_id = m.organization_id
  AND s.organization_user_group_id = m.organization_user_group_id AND s.user_id = '' AND s.user_alias = ''
  AND s.member_group_id = m.member_group_id AND s.source_id = m.source_id
WHERE m.organization_id = :organization_id AND m.organization_user_group_id = :group_id AND m.user_id = ''
  AND m.member_group_id IN (@list(members))
ORDER BY m.member_group_id @bytes, s.origin @bytes, LENGTH(s.rule), s.rule @bytes LIMIT 1
"""


def find_problems(connection: Connection) -> FoundProblems:
    """The problems of all records of all sources, except those that reads find. Reads everything once."""
    finder = _Finder(connection)
    for tables in REFRESH_TABLES:
        finder.find(tables, tables.source.name, {}, few=False)
    finder.find_group_cycles()
    return finder.found


def staged_problems(
    connection: Connection, kinds: Collection[str], *, few: bool, most: int = PROBLEMS_KEPT, cycles: bool = False
) -> FoundProblems:
    """The problems of the staged records of some kinds, at the places where they were just read. ``few``: there are
    few. ``most``: the number of each source and sort that are not only counted. ``cycles``: with cycles of groups."""
    finder = _Finder(connection, most)
    for tables in REFRESH_TABLES:
        if tables.kind in kinds:
            finder.find(tables, tables.staged.name, {}, few=few)
    if cycles and GroupMember.kind in kinds:
        finder.find_group_cycles()
    return finder.found


def still_problems(connection: Connection, source_id: int, problems: Sequence[Problem]) -> list[Problem]:
    """Those of a source's problems that still exist, as they are now. Cycles of groups are not searched again."""
    finder = _Finder(connection)
    by_kind: dict[str, list[Problem]] = {}
    for problem in problems:
        by_kind.setdefault(problem.kind, []).append(problem)
    for kind, some in by_kind.items():
        keys = json_list(json.dumps(problem.key, ensure_ascii=False) for problem in some)
        finder.find(REFRESH_TABLES_OF_KIND[kind], _of_keys(kind), {"keys": keys, "source_id": source_id}, few=True)
    sorts = {problem.sort for problem in problems}
    return [one for (_, sort), found in finder.found.items() if sort in sorts for one in found.first]


@cache
def _of_keys(kind: str) -> str:
    """A query for a source's records with the given keys."""
    tables = REFRESH_TABLES_OF_KIND[kind]
    columns = [one.attribute for one in tables.record_kind.keys]
    same = " AND ".join(f"k.{name} = @part(asked.value, {number})" for number, name in enumerate(columns))
    query = "SELECT k.* FROM (@list(keys)) AS asked CROSS JOIN {source} k WHERE k.source_id = :source_id AND "
    return f"({query}{same})"


class LeftOut(NamedTuple):
    """A pushed record without effect."""

    place: str
    """Its place as staged."""
    reason: str


def without_effect(connection: Connection, kinds: Collection[str]) -> list[LeftOut]:
    """The staged records of a push that have no effect."""
    found = staged_problems(connection, kinds, few=True, most=_MOST_PUSHED)
    return [LeftOut(problem.place, problem.reason) for one in found.values() for problem in one.first]
