"""Groups that contain each other.

They are kept (all of them have the union of their members), and reported, because nobody means it. Almost all groups
are ruled out by the database: a group that contains no group, or is in none, is in no cycle, and neither is one of
which that holds once those are taken away. Only what remains is looked at one by one.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, exists, func, insert, or_, select
from sqlalchemy import delete as delete_from

from app.access.records import GroupMember
from app.model.refresh.merge import counts
from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scratch import GROUP_EDGE, TABLES_OF_KIND, place_of
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
    _peel(connection)
    remaining = connection.execute(select(func.count()).select_from(GROUP_EDGE)).scalar_one()
    if remaining == 0:
        return
    if remaining > _MAX_EDGES:
        reason = f"{remaining:,} memberships of groups in groups form cycles or very long chains; too many to list"
        problems.add(Problem(ProblemSort.GROUP_CYCLE, "", "", reason))
        return
    edges: dict[Node, list[Node]] = {}
    for row in connection.execute(select(GROUP_EDGE)):
        edges.setdefault((row.organization_id, row.parent_id), []).append((row.organization_id, row.member_id))
    cycles = sorted(sorted(cycle) for cycle in _strong_components(edges))
    sample = [_problem(connection, names, cycle) for cycle in cycles[: problems.room]]
    problems.add_counted(ProblemSort.GROUP_CYCLE, len(cycles), sample)


def _collect_edges(connection: Connection) -> None:
    tables = TABLES_OF_KIND[GroupMember.kind]
    member = tables.source.c
    connection.execute(delete_from(GROUP_EDGE))
    nested = select(
        member.organization_id, member.organization_user_group_id, member.member_group_id, member.source_id
    ).where(member.member_group_id != "", counts(tables, connection))
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
