"""Cycles in a graph of folders or groups."""

from collections.abc import Mapping, Sequence


def find_cycles(edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The sets of nodes that reach each other, each sorted; a single node only if it has an edge to itself (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[list[str]] = []
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
                    component = _popped(path, node)
                    on_path.difference_update(component)
                    if len(component) > 1 or node in edges.get(node, ()):
                        found.append(sorted(component))
    return sorted(found)


def _popped(path: list[str], node: str) -> list[str]:
    """Removes the end of the path from the node on, and returns it."""
    removed = [path.pop()]
    while removed[-1] != node:
        removed.append(path.pop())
    return removed
