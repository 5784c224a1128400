"""Finds groups that contain each other, which is a problem of the directory.

``app.foundation.database.statements`` explains ``@bytes`` and ``@list``.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby, islice

from sqlalchemy import Connection

from app.access.cycles import find_cycles
from app.access.problems import Problem, ProblemCause, ProblemSort
from app.access.records import Group
from app.foundation.database.statements import json_list, run, statement

NO_SOURCE = 0
"""The source of problems that no source has alone."""

_MAX_EDGES = 200_000
"""The most groups in groups of an organization that are searched for cycles: about 60 MB."""

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

# Where a source puts another group of a cycle into the first one.
_MEMBER_IN_CYCLE = """
SELECT s.source_id, s.place FROM model_group_member m
JOIN source_group_member s ON s.organization_id = m.organization_id
  AND s.organization_user_group_id = m.organization_user_group_id AND s.user_id = '' AND s.user_alias = ''
  AND s.member_group_id = m.member_group_id AND s.source_id = m.source_id
WHERE m.organization_id = :organization_id AND m.organization_user_group_id = :group_id AND m.user_id = ''
  AND m.member_group_id IN (@list(members))
ORDER BY m.member_group_id @bytes, s.origin @bytes, LENGTH(s.rule), s.rule @bytes LIMIT 1
"""


def find_group_cycles(connection: Connection, names: Mapping[int, str]) -> Iterator[tuple[int, Problem]]:
    """The cycles, each with the source of a membership in it, one organization at a time. ``names``: source → its
    name."""
    query = statement(connection, _GROUPS_IN_GROUPS)
    rows = connection.execute(query, execution_options={"yield_per": 1_000})
    for organization_id, edges in groupby(rows, key=lambda row: row.organization_id):
        inner: dict[str, list[str]] = {}
        for row in islice(edges, _MAX_EDGES + 1):
            inner.setdefault(row.group_id, []).append(row.member_id)
        if sum(map(len, inner.values())) > _MAX_EDGES:
            yield NO_SOURCE, _problem("", "", ProblemCause.TOO_MANY, organization_id, [""])
            continue
        for groups in find_cycles(inner):
            of_cycle = {"organization_id": organization_id, "group_id": groups[0], "members": json_list(groups)}
            member = run(connection, _MEMBER_IN_CYCLE, of_cycle).first()
            source_id, place = (NO_SOURCE, "") if member is None else (member.source_id, member.place)
            source = names.get(source_id, "")
            yield source_id, _problem(source, place, ProblemCause.GROUP_CYCLE, organization_id, groups)


def _problem(source: str, place: str, cause: ProblemCause, organization_id: str, groups: list[str]) -> Problem:
    key = (organization_id, groups[0])
    return Problem(ProblemSort.GROUP_CYCLE, source, place, cause=cause, kind=Group.kind, key=key, detail=tuple(groups))
