"""Finds the problems of records that follow from the records of all sources together.

The rules: ``app/access/README.md``, "Problems". ``app.access.stored_problems`` counts and stores them.

A record is a row of ``source_<kind>``, or one that was just staged. Its problem is the first of these: another object
of its source provides the key; its alias does not name one user; another source owns the key; something that it refers
to does not exist or has no effect. Cycles of groups are problems of the graph: ``group_cycles.py`` finds them.

``refresh/tables.py`` explains ``{written_keys:f=r}``, and ``app.foundation.database.statements`` ``@bytes``.
"""

# ruff: noqa: S608 - these texts consist of constants of this module

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache

from sqlalchemy import Connection, select

from app.access.effective import ALL_FOLDERS, REQUESTED_FOLDERS, not_in_a_folder
from app.access.problem_list import PROBLEMS_KEPT, ProblemSample, ProblemSamples
from app.access.problems import Problem, ProblemSort
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
from app.access.refresh.group_cycles import find_group_cycles
from app.access.refresh.problem_details import find_details
from app.access.refresh.sources import SOURCE
from app.access.refresh.tables import REFRESH_TABLES, REFRESH_TABLES_OF_KIND, RefreshTables
from app.foundation.database.statements import json_lists, run

# Which records have a problem: one statement of three queries for each kind. ``records`` are those in the table
# ``{rows}``, with ``own_cause``: the cause of a problem that does not depend on other kinds. ``problems`` adds
# ``cause_or_column``: a ``ProblemCause``, or the column whose reference does not exist or has no effect. The last query
# counts and numbers the problems.
#
# Aliases: ``s`` the record with its own cause, ``m`` the row of the access model under its key, ``o`` organization,
# ``u`` user, ``g`` group, ``i`` inner group, ``d`` document, ``e`` effective folder, ``c`` cyclic folder.

_RECORDS = """
records AS (
  SELECT r.*, CASE WHEN r.origin <> '' AND EXISTS (
    SELECT 1 FROM {source} f WHERE {written_keys:f=r} AND f.origin <> ''
    AND (f.origin @bytes, LENGTH(f.rule), f.rule @bytes) < (r.origin @bytes, LENGTH(r.rule), r.rule @bytes)
  ) THEN 'repeated' END AS own_cause
  FROM {rows} r
  WHERE r.origin = '' OR NOT EXISTS (SELECT 1 FROM {source} p WHERE {written_keys:p=r} AND p.origin = ''))"""

_RECORDS_WITH_USERS = """
records AS (
  SELECT r.*,
    CASE WHEN r.user_alias = '' THEN r.user_id ELSE COALESCE((
      SELECT MIN(h.user_id) FROM model_user_alias h WHERE h.alias = r.user_alias), '') END AS named_user,
    CASE WHEN r.user_alias <> '' THEN (
      SELECT CASE COUNT(*) WHEN 0 THEN 'unknownAlias' WHEN 1 THEN NULL ELSE 'sharedAlias' END
      FROM model_user_alias h WHERE h.alias = r.user_alias) END AS own_cause
  FROM {rows} r)"""


_OWNED = "SELECT s.*, m.source_id AS owner, COALESCE(s.own_cause, CASE WHEN m.source_id <> s.source_id THEN 'owned'"
_NO_ORGANIZATION = "WHEN o.organization_id IS NULL THEN 'organization_id'"
_NO_USER = "WHEN s.named_user <> '' AND u.user_id IS NULL THEN 'user_id'"
_NO_GROUP = """
  WHEN s.organization_user_group_id <> '' AND g.organization_user_group_id IS NULL THEN 'organization_user_group_id'"""
_NO_DOCUMENT = f"""
  WHEN s.document_id <> '' AND (o.organization_id IS NULL OR d.document_id IS NULL
    OR d.folder_id <> '' AND {not_in_a_folder("d", "d.folder_id")}) THEN 'document_id'"""

_BY_KEY = "LEFT JOIN {model} m ON {keys:m=s}"
_BY_USER = "LEFT JOIN {model} m ON {other_keys:m=s} AND m.user_id = s.named_user"
_ORGANIZATION = "LEFT JOIN model_organization o ON o.organization_id = s.organization_id"
_USER = "LEFT JOIN model_user u ON u.user_id = s.named_user"
_GROUP = """
LEFT JOIN model_group g
  ON g.organization_id = s.organization_id AND g.organization_user_group_id = s.organization_user_group_id"""
_DOCUMENT = "LEFT JOIN model_document d ON d.organization_id = s.organization_id AND d.document_id = s.document_id"

_PROBLEMS_OF_KIND = {
    **dict.fromkeys((Organization.kind, User.kind), f"{_OWNED} END) AS cause_or_column FROM records s {_BY_KEY}"),
    Membership.kind: f"""
{_OWNED} {_NO_ORGANIZATION} {_NO_USER} END) AS cause_or_column
FROM records s {_BY_USER} {_ORGANIZATION} {_USER}
""",
    Group.kind: f"""
{_OWNED} {_NO_ORGANIZATION} END) AS cause_or_column
FROM records s {_BY_KEY} {_ORGANIZATION}
""",
    GroupMember.kind: f"""
{_OWNED}
  WHEN o.organization_id IS NULL OR g.organization_user_group_id IS NULL THEN 'organization_user_group_id'
  {_NO_USER}
  WHEN s.member_group_id <> '' AND i.organization_user_group_id IS NULL THEN 'member_group_id' END) AS cause_or_column
FROM records s {_BY_USER} {_ORGANIZATION} {_GROUP}
LEFT JOIN model_group i
  ON i.organization_id = s.organization_id AND i.organization_user_group_id = s.member_group_id
{_USER}
""",
    Folder.kind: f"""
{_OWNED} {_NO_ORGANIZATION}
  WHEN c.folder_id IS NOT NULL THEN 'folderCycle'
  WHEN {not_in_a_folder("s", "s.folder_id")} THEN 'parent_folder_id' END) AS cause_or_column
FROM records s {_BY_KEY} {_ORGANIZATION}
LEFT JOIN cyclic_folder c ON c.organization_id = s.organization_id AND c.folder_id = s.folder_id
""",
    Document.kind: f"""
{_OWNED} {_NO_ORGANIZATION}
  WHEN m.folder_id <> '' AND {not_in_a_folder("m", "m.folder_id")} THEN 'folder_id' END) AS cause_or_column
FROM records s {_BY_KEY} {_ORGANIZATION}
""",
    Grant.kind: f"""
{_OWNED}
  WHEN s.folder_id <> '' AND (o.organization_id IS NULL OR {not_in_a_folder("s", "s.folder_id")})
    THEN 'folder_id'
  {_NO_DOCUMENT} {_NO_GROUP} {_NO_USER} END) AS cause_or_column
FROM records s {_BY_USER}
{_ORGANIZATION} {_DOCUMENT} {_GROUP} {_USER}
""",
    ContextGrant.kind: f"""
{_OWNED} {_NO_ORGANIZATION} {_NO_USER} {_NO_GROUP} {_NO_DOCUMENT} END) AS cause_or_column
FROM records s {_BY_USER} {_ORGANIZATION} {_DOCUMENT} {_GROUP} {_USER}
""",
    Fill.kind: f"""
SELECT s.*, 0 AS owner, COALESCE(s.own_cause, CASE WHEN u.user_id IS NULL THEN 'user_id' END) AS cause_or_column
FROM records s {_USER}
""",
}

# The folders in cycles, among those that ``effective.py`` walks.
_CYCLIC_FOLDERS = """
cyclic_folder (organization_id, folder_id) AS (
  SELECT DISTINCT w.organization_id, w.folder_id FROM folder_walk w JOIN model_folder f
  ON f.organization_id = w.organization_id AND f.folder_id = w.above AND f.parent_folder_id = w.folder_id)"""

_OWN_FOLDER = "SELECT r.organization_id, r.folder_id FROM {rows} r"
_FOLDER_OF_DOCUMENT = """
SELECT d.organization_id, d.folder_id FROM {rows} r CROSS JOIN model_document d
WHERE d.organization_id = r.organization_id AND d.document_id = r.document_id"""

_FOLDERS_OF = {
    Folder.kind: _OWN_FOLDER,
    Document.kind: _FOLDER_OF_DOCUMENT,
    Grant.kind: f"{_OWN_FOLDER} UNION ALL {_FOLDER_OF_DOCUMENT}",
    ContextGrant.kind: _FOLDER_OF_DOCUMENT,
}
"""kind → the folders on which it depends whether records are effective."""

_COUNTED_AND_NUMBERED = """
SELECT * FROM (
  SELECT w.*, COUNT(*) OVER (PARTITION BY source_id, sort) AS problems,
    ROW_NUMBER() OVER (PARTITION BY source_id, sort ORDER BY {source_keys}) AS ordinal
  FROM (
    SELECT j.*, CASE cause_or_column WHEN 'repeated' THEN 'duplicate' WHEN 'owned' THEN 'ownedElsewhere'
      WHEN 'sharedAlias' THEN 'ambiguous' WHEN 'folderCycle' THEN 'folderCycle' ELSE 'dangling' END AS sort
    FROM problems AS j WHERE j.cause_or_column IS NOT NULL) AS w) AS numbered
WHERE ordinal <= :limit ORDER BY {source_keys}
"""


@cache
def _statement(kind: str, table: str, *, few: bool) -> str:
    """The statement about the records of a kind in a table."""
    tables = REFRESH_TABLES_OF_KIND[kind]
    queries = [
        _RECORDS_WITH_USERS if tables.record_kind.may_use_alias else _RECORDS,
        f"problems AS ({_PROBLEMS_OF_KIND[kind]})",
    ]
    if kind in _FOLDERS_OF:
        requested = f"requested_folder (organization_id, folder_id) AS ({_FOLDERS_OF[kind]})"
        queries = [*([requested, REQUESTED_FOLDERS] if few else [ALL_FOLDERS]), _CYCLIC_FOLDERS, *queries]
    return tables.text(f"WITH RECURSIVE {','.join(queries)}{_COUNTED_AND_NUMBERED}", rows=table)


class _Finder:
    """Finds problems in the transaction of a connection."""

    def __init__(self, connection: Connection, limit: int = PROBLEMS_KEPT) -> None:
        """``limit``: the number of problems of a source and sort that are not only counted."""
        self._connection = connection
        self._limit = limit
        self._names = {row.source_id: row.name for row in connection.execute(select(SOURCE.c.source_id, SOURCE.c.name))}
        self.problems: dict[tuple[int, str], ProblemSample] = {}

    def find(
        self, tables: RefreshTables, table: str, parameters: Mapping[str, object] | None = None, *, few: bool
    ) -> None:
        """Finds the problems of the records in a table, or in a query in parentheses. ``few``: there are few of them,
        so folders are looked up by key."""
        query = _statement(tables.kind, table, few=few)
        counted: set[tuple[int, str]] = set()
        rows = run(self._connection, query, {**(parameters or {}), "limit": self._limit}).all()
        details = find_details(self._connection, tables, rows, self._names)
        for row, (cause, detail) in zip(rows, details, strict=True):
            problem = Problem(
                ProblemSort(row.sort),
                self._names.get(row.source_id, ""),
                row.place,
                cause=cause,
                kind=tables.kind,
                key=tuple(getattr(row, field.attribute) for field in tables.record_kind.keys),
                detail=detail,
            )
            # The first row of a source and sort contains the count.
            count = 0 if (row.source_id, row.sort) in counted else int(row.problems)
            counted.add((row.source_id, row.sort))
            self._add(row.source_id, problem, count)

    def add_group_cycles(self) -> None:
        for source_id, problem in find_group_cycles(self._connection, self._names):
            self._add(source_id, problem, 1)

    def _add(self, source_id: int, problem: Problem, count: int) -> None:
        self.problems.setdefault((source_id, problem.sort.value), ProblemSample()).add(count, [problem], self._limit)


def find_problems(connection: Connection) -> ProblemSamples:
    """The problems of all records of all sources, except those that reads find. Reads everything once."""
    finder = _Finder(connection)
    for tables in REFRESH_TABLES:
        finder.find(tables, tables.source.name, few=False)
    finder.add_group_cycles()
    return finder.problems


def staged_problems(
    connection: Connection, kinds: Collection[str], *, few: bool, limit: int = PROBLEMS_KEPT, cycles: bool = False
) -> ProblemSamples:
    """The problems of the staged records of some kinds, at the places where they were just read. ``few``: there are
    few. ``limit``: the number of each source and sort that are not only counted. ``cycles``: with cycles of groups."""
    finder = _Finder(connection, limit)
    for tables in REFRESH_TABLES:
        if tables.kind in kinds:
            finder.find(tables, tables.staged.name, few=few)
    if cycles and GroupMember.kind in kinds:
        finder.add_group_cycles()
    return finder.problems


def remaining_problems(connection: Connection, source_id: int, problems: Sequence[Problem]) -> list[Problem]:
    """Those of a source's problems that still exist, as they are now. Cycles of groups are not searched again."""
    finder = _Finder(connection)
    by_kind: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        by_kind[problem.kind].append(problem)
    for kind, of_kind in by_kind.items():
        keys = json_lists(problem.key for problem in of_kind)
        tables = REFRESH_TABLES_OF_KIND[kind]
        finder.find(tables, _records_of_keys(tables), {"keys": keys, "source_id": source_id}, few=True)
    sorts = {problem.sort for problem in problems}
    return [problem for (_, sort), sample in finder.problems.items() if sort in sorts for problem in sample.first]


def _records_of_keys(tables: RefreshTables) -> str:
    """A query for a source's records with the given keys."""
    columns = (field.attribute for field in tables.record_kind.keys)
    same = " AND ".join(f"k.{name} = @part(requested.value, {number})" for number, name in enumerate(columns))
    query = "(SELECT k.* FROM (@list(keys)) AS requested CROSS JOIN {source} k WHERE k.source_id = :source_id AND "
    return f"{tables.text(query)}{same})"
