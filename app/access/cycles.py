"""Finds the cycles of a graph, such as groups that contain each other."""

from collections import defaultdict
from collections.abc import Mapping, Sequence


def find_cycles(edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The sets of nodes that reach each other, each sorted. A single node is one only if it has an edge to itself.

    Kosaraju's algorithm: against the edges, a node reaches its own set and sets that come later in post-order.
    """
    back: dict[str, list[str]] = defaultdict(list)
    for node, children in edges.items():
        for child in children:
            back[child].append(node)
    seen: set[str] = set()
    order = [node for root in edges for node in _post_order(edges, root, seen)]
    seen.clear()
    # In this order: `seen` has the sets of the roots before, so that each root reaches its own set alone.
    components = ((root, _post_order(back, root, seen)) for root in reversed(order))
    return sorted(
        sorted(nodes) for root, nodes in components if len(nodes) > 1 or (nodes and root in edges.get(root, ()))
    )


def _post_order(edges: Mapping[str, Sequence[str]], root: str, seen: set[str]) -> list[str]:
    """The nodes that the root reaches and that are not ``seen`` yet, each after those that it reaches."""
    finished: dict[str, None] = {}
    stack = [] if root in seen else [root]
    while stack:
        node = stack[-1]
        if node in seen:
            finished.setdefault(stack.pop())
        else:
            seen.add(node)
            stack += [child for child in edges.get(node, ()) if child not in seen]
    return list(finished)
