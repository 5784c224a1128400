"""Groups that contain each other.

They are kept (all of them have the union of their members), and reported, because nobody means it. Almost all groups
are ruled out by the database: a group that contains no group, or is in none, is in no cycle, and neither is one of
which that holds once those are taken away. Only what remains is looked at one by one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, exists, func, insert, or_, select
from sqlalchemy import delete as delete_from

from app.access.records import GroupMember
from app.database.statements import run
from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scope import Everything
from app.model.refresh.scratch import GROUP_EDGE, TABLES_OF_KIND, RowChange, place_of
from app.model.refresh.session import RefreshSession
from app.text import quoted

_MAX_ROUNDS = 1000
"""Chains of groups longer than this are looked at one by one."""

_MAX_EDGES = 200_000
"""The most memberships that are looked at one by one; where more remain, that alone is reported."""

_MAX_SHOWN = 8

Node = tuple[str, str]
"""Organization and group."""


def report_group_cycles(
    session: RefreshSession, connection: Connection, names: Mapping[int, str], problems: ProblemList
) -> None:
    """Adds one problem per set of groups that contain each other."""
    _collect_edges(connection)
    session.analyze(GROUP_EDGE)
    _report(connection, names, problems)


class CyclesAround:
    """The cycles that a change of members of groups may make or break, in the transaction of a connection in which the
    delta is the one of the access model.

    They are among those that are reached from where a group comes into another one, or goes out of it: the same groups
    before and after, because where a way begins to differ another one begins.
    """

    def __init__(self, connection: Connection, names: Mapping[int, str]) -> None:
        self._connection = connection
        self._names = names
        self._is_needed = run(connection, _GROUPS_DIFFER).first() is not None

    def count(self, problems: ProblemList | None = None) -> int:
        """How many there are in the access model as it is now; ``problems`` gets them."""
        if not self._is_needed:
            return 0
        self._connection.execute(delete_from(GROUP_EDGE))
        run(self._connection, _EDGES_AROUND)
        return _report(self._connection, self._names, ProblemList(0, of_each=0) if problems is None else problems)


_GROUPS_DIFFER = f"""
SELECT 1 FROM refresh_delta_group_member WHERE member_group_id <> '' AND change <> {int(RowChange.UPDATE)} LIMIT 1
"""  # noqa: S608 - a number of our own

# A member that is a group has no user, which is the beginning of the key.
_EDGES_AROUND = f"""
INSERT INTO refresh_group_edge (organization_id, parent_id, member_id, source_id)
WITH RECURSIVE around (organization_id, group_id) AS (
  SELECT organization_id, group_id FROM (
    SELECT organization_id, organization_user_group_id AS group_id FROM refresh_delta_group_member
    WHERE member_group_id <> '' AND change <> {int(RowChange.UPDATE)}
    UNION SELECT organization_id, member_group_id FROM refresh_delta_group_member
    WHERE member_group_id <> '' AND change <> {int(RowChange.UPDATE)}) AS begun
  UNION
  SELECT m.organization_id, m.member_group_id FROM around a JOIN model_group_member m
  ON m.organization_id = a.organization_id AND m.organization_user_group_id = a.group_id
  AND m.user_id = '' AND m.member_group_id <> ''
)
SELECT m.organization_id, m.organization_user_group_id, m.member_group_id, COALESCE((
  SELECT s.source_id FROM source_group_member s JOIN directory_source d ON d.source_id = s.source_id
  WHERE s.organization_id = m.organization_id AND s.organization_user_group_id = m.organization_user_group_id
  AND s.user_id = '' AND s.member_group_id = m.member_group_id ORDER BY d.position LIMIT 1), 0)
FROM around a JOIN model_group_member m
ON m.organization_id = a.organization_id AND m.organization_user_group_id = a.group_id
AND m.user_id = '' AND m.member_group_id <> ''
"""  # noqa: S608 - a number of our own


def _report(connection: Connection, names: Mapping[int, str], problems: ProblemList) -> int:
    _peel(connection)
    remaining = connection.execute(select(func.count()).select_from(GROUP_EDGE)).scalar_one()
    if remaining == 0:
        return 0
    if remaining > _MAX_EDGES:
        reason = f"{remaining:,} memberships of groups in groups form cycles or very long chains; too many to list"
        problems.add(Problem(ProblemSort.GROUP_CYCLE, "", "", reason))
        return 1
    edges: dict[Node, list[Node]] = {}
    for row in connection.execute(select(GROUP_EDGE)):
        edges.setdefault((row.organization_id, row.parent_id), []).append((row.organization_id, row.member_id))
    cycles = sorted(sorted(cycle) for cycle in _strong_components(edges))
    # Those of which the place is not looked up count as the first one's source's: hardly ever are there so many.
    sample = [_problem(connection, names, cycle) for cycle in cycles[: problems.of_each]]
    counts = Counter(problem.source for problem in sample)
    counts[sample[0].source if sample else ""] += len(cycles) - len(sample)
    problems.add_counted(ProblemSort.GROUP_CYCLE, counts, sample)
    return len(cycles)


def _collect_edges(connection: Connection) -> None:
    tables = TABLES_OF_KIND[GroupMember.kind]
    member = tables.given.c
    connection.execute(delete_from(GROUP_EDGE))
    nested = select(
        member.organization_id, member.organization_user_group_id, member.member_group_id, member.source_id
    ).where(member.member_group_id != "", Everything.as_merged(connection).counts(tables))
    connection.execute(
        insert(GROUP_EDGE).from_select(["organization_id", "parent_id", "member_id", "source_id"], nested)
    )


def _peel(connection: Connection) -> None:
    outer, inner = GROUP_EDGE.alias("outer_edge"), GROUP_EDGE.alias("inner_edge")
    contains = exists().where(
        inner.c.organization_id == GROUP_EDGE.c.organization_id, inner.c.parent_id == GROUP_EDGE.c.member_id
    )
    contained = exists().where(
        outer.c.organization_id == GROUP_EDGE.c.organization_id, outer.c.member_id == GROUP_EDGE.c.parent_id
    )
    for _ in range(_MAX_ROUNDS):
        if connection.execute(delete_from(GROUP_EDGE).where(or_(~contains, ~contained))).rowcount == 0:
            return


def _strong_components(edges: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """The sets of nodes that reach each other, alone standing nodes only when they lead to themselves (Tarjan)."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    found: list[list[Node]] = []
    for root in edges:
        if root in order:
            continue
        work = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        path.append(root)
        on_path.add(root)
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is not None and child not in order:
                order[child] = low[child] = len(order)
                path.append(child)
                on_path.add(child)
                work.append((child, iter(edges.get(child, ()))))
            elif child is not None:
                if child in on_path:
                    low[node] = min(low[node], order[child])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = _taken_down_to(path, node)
                    on_path.difference_update(component)
                    if len(component) > 1 or node in edges.get(node, ()):
                        found.append(component)
    return found


def _taken_down_to(path: list[Node], node: Node) -> list[Node]:
    taken = [path.pop()]
    while taken[-1] != node:
        taken.append(path.pop())
    return taken


def _problem(connection: Connection, names: Mapping[int, str], cycle: list[Node]) -> Problem:
    """Reported where the first group of the cycle takes in another of its groups."""
    tables = TABLES_OF_KIND[GroupMember.kind]
    organization_id, first = cycle[0]
    members = [group for _, group in cycle]
    edge = connection.execute(
        select(GROUP_EDGE.c.member_id, GROUP_EDGE.c.source_id).where(
            GROUP_EDGE.c.organization_id == organization_id, GROUP_EDGE.c.parent_id == first
        )
    ).all()
    inside = set(members)
    member_id, source_id = min((row.member_id, row.source_id) for row in edge if row.member_id in inside)
    place = place_of(
        connection,
        tables,
        {
            "organization_id": organization_id,
            "organization_user_group_id": first,
            "user_id": "",
            "member_group_id": member_id,
            "source_id": source_id,
        },
    )
    listed = ", ".join(quoted(group) for group in members[:_MAX_SHOWN]) + (", …" if len(members) > _MAX_SHOWN else "")
    reason = (
        f"the groups {listed} of {quoted(organization_id)} contain each other; all have the union of their members"
        if len(members) > 1
        else f"the group {listed} of {quoted(organization_id)} contains itself"
    )
    return Problem(ProblemSort.GROUP_CYCLE, names.get(source_id, ""), place, reason)
