"""Measures decisions with PyCasbin and Cedar: ``python -m tests.bench.alternatives casbin|cedar USERS``.

Both keep the whole access model in the memory of each process: users in groups, documents in folders three levels deep,
ten grants for each user. Neither has expiry, roles by the nearest level, or reasons. Install ``casbin`` and ``cedarpy``
first; they are not among the project's requirements. Prints one line.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

GRANTS = 10
QUESTIONS = 20
SECONDS = 5.0
_CASBIN = """
[request_definition]
r = sub, obj
[policy_definition]
p = sub, obj
[role_definition]
g = _, _
g2 = _, _
[policy_effect]
e = some(where (p.eft == allow))
[matchers]
m = g(r.sub, p.sub) && g2(r.obj, p.obj)
"""
_CEDAR = """
permit (principal, action, resource) when { resource in principal.grants || principal in resource.groups };
"""


def casbin_decider(users: int, chance: random.Random) -> Callable[[str, str], bool]:
    """A decision by PyCasbin: grants are policies, groups and folders are roles."""
    casbin: Any = import_module("casbin")

    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(_CASBIN)
        file.flush()
        enforcer = casbin.Enforcer(file.name)
    enforcer.add_policies([list(grant) for grant in _grants(users, chance)])
    enforcer.add_named_grouping_policies("g", [[f"user-{n}", f"group-{n % 50}"] for n in range(users)])
    enforcer.add_named_grouping_policies("g2", [[f"document-{n}", f"folder-{n % (users // 10)}"] for n in range(users)])
    enforcer.add_named_grouping_policies("g2", [[f"folder-{n}", f"folder-{n // 10}"] for n in range(1, users // 10)])
    return lambda user, document: bool(enforcer.enforce(user, document))


def cedar_decider(users: int, chance: random.Random) -> Callable[[str, str], bool]:
    """A decision by Cedar: grants are attributes, groups and folders are parents."""
    cedarpy: Any = import_module("cedarpy")

    def reference(kind: str, name: str) -> dict[str, str]:
        return {"type": kind, "id": name}

    granted: dict[str, list[Any]] = {}
    for user, document in _grants(users, chance):
        granted.setdefault(user, []).append({"__entity": reference("Item", document)})
    entities = [
        {
            "uid": reference("User", f"user-{n}"),
            "attrs": {"grants": granted.get(f"user-{n}", [])},
            "parents": [reference("Group", f"group-{n % 50}")],
        }
        for n in range(users)
    ]
    for n in range(users):
        parent = reference("Item", f"folder-{n % (users // 10)}")
        entities.append({"uid": reference("Item", f"document-{n}"), "attrs": {"groups": []}, "parents": [parent]})
    for n in range(users // 10):
        parents = [reference("Item", f"folder-{n // 10}")] if n else []
        entities.append({"uid": reference("Item", f"folder-{n}"), "attrs": {"groups": []}, "parents": parents})
    policies, known = cedarpy.PolicySet.from_str(_CEDAR), cedarpy.Entities.from_json_str(json.dumps(entities))
    action = reference("Action", "open")

    def decide(user: str, document: str) -> bool:
        request = {"principal": reference("User", user), "action": action, "resource": reference("Item", document)}
        return bool(cedarpy.is_authorized({**request, "context": {}}, policies, known).allowed)

    return decide


def _grants(users: int, chance: random.Random) -> list[tuple[str, str]]:
    return sorted({(f"user-{n}", f"document-{chance.randrange(users)}") for n in range(users) for _ in range(GRANTS)})


def main() -> None:
    """Loads the model, decides for a few seconds, and prints the figures."""
    name, count = sys.argv[1], int(sys.argv[2])
    chance = random.Random(5)
    before = _private_mb()
    start = time.perf_counter()
    decide = {"casbin": casbin_decider, "cedar": cedar_decider}[name](count, chance)
    loaded = time.perf_counter() - start
    memory = _private_mb() - before
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        decide(f"user-{chance.randrange(count)}", f"document-{chance.randrange(count)}")
        done += 1
    each = (time.perf_counter() - start) / done * 1e6
    figures = f"loaded in {loaded:.1f} s, {memory:.0f} MB in each process, {each:,.0f} us per decision"
    print(f"{name}, {count:,} users, {count * GRANTS:,} grants: {figures}")


def _private_mb() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Anonymous:"))


if __name__ == "__main__":
    main()
