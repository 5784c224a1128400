"""Measures decisions with PyCasbin and Cedar, each at the largest size that it can hold, beside the index at that size.

Both keep the whole access model in the memory of each process: users in groups, documents in folders three levels deep,
ten grants for each user. Neither has expiry, roles by the nearest level, or reasons. Install ``casbin`` and ``cedarpy``
first; they are not among the project's requirements. Times of decisions are CPU. One size alone:
``python -m tests.bench.alternatives casbin|cedar USERS``.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from app.access.decision.decide import decide
from app.foundation.database.engine import open_engine
from tests.bench.console_world import Size
from tests.bench.decisions import NOW, POLICY, batch_of, fill, index_of, private_bytes

GRANTS = 10
SECONDS = 5.0
LIBRARIES = {"casbin": "PyCasbin", "cedar": "Cedar"}
MODULES = {"casbin": "casbin", "cedar": "cedarpy"}
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
"""Users."""
MAX_LOAD_SECONDS = 60.0
MAX_MB = 1_000.0
"""In each process, at most, while it loads the model and afterwards."""
MAX_DECISION_MS = 100.0
"""A call of 20 questions would take two seconds."""


def bench_alternatives(folder: Path, *, scale: float) -> dict[str, object]:
    """The figures of the largest size within the limits, of at most 1,000,000 users times ``scale``."""
    figures: dict[str, object] = {
        "limits": f"{MAX_LOAD_SECONDS:.0f} s to load, {MAX_MB:,.0f} MB, {MAX_DECISION_MS:.0f} ms for a decision"
    }
    for name, title in LIBRARIES.items():
        if find_spec(MODULES[name]) is None:
            figures[title] = f"not measured: pip install {MODULES[name]}"
            continue
        held: dict[str, float] = {}
        for users in SIZES:
            if users > SIZES[-1] * scale:
                break
            found = _in_process(name, users)
            reason = found if isinstance(found, str) else _exceeds(found)
            if reason:
                figures[f"{title}: over the limits"] = f"{users * GRANTS:,} grants: {reason}"
                break
            held = {"users": users, **found}  # type: ignore[dict-item]  # no text without a reason
        if held:
            place = folder / name
            place.mkdir()
            ours = _with_index(place, int(held["users"]))
            figures |= {
                f"{title}: largest size, grants": f"{int(held['users']) * GRANTS:,}",
                f"{title}: loaded in s; MB in each process": f"{held['loaded']:.1f}; {held['memory']:.0f}",
                f"{title}: decision us": round(held["each"] * 1e6, 1),
                f"{title}: decision from the index at that size us": round(ours, 1),
                f"{title}: against the index": round(held["each"] * 1e6 / ours, 1),
            }
    return figures


def _in_process(name: str, users: int) -> dict[str, float] | str:
    """The figures of one size in a process of its own, or why there are none."""
    command = [sys.executable, "-m", "tests.bench.alternatives", name, str(users)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=2 * MAX_LOAD_SECONDS + SECONDS
        )
    except subprocess.TimeoutExpired:
        return "too slow"
    except subprocess.CalledProcessError as error:
        return f"failed: {(error.stderr.strip().splitlines() or ['killed'])[-1][:200]}"
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _exceeds(found: dict[str, float]) -> str:
    """The limit that is exceeded. Empty: none."""
    if found["loaded"] > MAX_LOAD_SECONDS:
        return f"{found['loaded']:.0f} s to load"
    if found["peak"] > MAX_MB:
        return f"{found['peak']:,.0f} MB"
    if found["each"] * 1000 > MAX_DECISION_MS:
        return f"{found['each'] * 1000:,.0f} ms for a decision"
    return ""


def _with_index(folder: Path, users: int) -> float:
    """The CPU of a decision alone in its call from the index beside as many users and grants, in microseconds."""
    size = Size(users / SIZES[-1])
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    fill(engine, size)
    index = index_of(engine, folder / "index")
    index.update()
    chance = random.Random(5)
    batches = [batch_of(chance, size, 1)[:1] for _ in range(5_000)]
    began = time.process_time()
    for questions in batches:
        with index.view(questions) as view:
            decide(view, questions[0], NOW, POLICY)
    each = (time.process_time() - began) / len(batches) * 1e6
    assert index.state.revision, "the database answered"
    index.close()
    engine.dispose()
    return each


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
    """Loads the model, decides for a few seconds, and prints the figures as JSON."""
    name, count = sys.argv[1], int(sys.argv[2])
    chance = random.Random(5)
    before = private_bytes() / 1e6
    start = time.perf_counter()
    is_allowed = {"casbin": casbin_decider, "cedar": cedar_decider}[name](count, chance)
    loaded = time.perf_counter() - start
    memory = private_bytes() / 1e6 - before
    start, done = time.process_time(), 0
    while time.process_time() - start < SECONDS:
        is_allowed(f"user-{chance.randrange(count)}", f"document-{chance.randrange(count)}")
        done += 1
    each = (time.process_time() - start) / done
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    print(json.dumps({"loaded": loaded, "memory": memory, "peak": peak, "each": each}))


if __name__ == "__main__":
    main()
