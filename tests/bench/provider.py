"""Measures permission calls relative to a bare Flask route on the same server.

The service answers calls of 20 questions against 100,000 users, 100,000 documents and 1,000,000 grants, on SQLite or
PostgreSQL.
Rounds of the one and the other alternate, so that noise affects both; the result is the ratio of the medians.

The main ratio uses questions that were not asked before, like a page load: one user, 20 documents. Two others are
reported as well: calls with 20 different users, and repeated calls, whose rows the database has cached.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from tests.bench.company import Company
from tests.bench.databases import databases
from tests.bench.load import Measured, exchange, measure, post
from tests.bench.processes import USHER, command, free_port, running, write_settings

QUESTIONS = 20
PATH = "/permissions/check"
TOKEN = "bench-provider-token"
THREADS = 4
"""The default of the service's setting."""
CONNECTIONS = 4
TARGET = 0.60
REPEATED = 400
BODIES_PER_SECOND = 2500
"""More than the service answers, so that no body is sent twice."""


def bench_provider(
    folder: Path, *, scale: float, rounds: int, seconds: float, postgres: str | None = None
) -> dict[str, object]:
    """The figures of one comparison; ``scale`` 1 is the full size. On SQLite, or on the server at ``postgres``."""
    with databases(folder, postgres) as new_database:
        return _bench(folder, new_database("usher"), scale=scale, rounds=rounds, seconds=seconds)


def _bench(folder: Path, database_url: str, *, scale: float, rounds: int, seconds: float) -> dict[str, object]:
    company = Company(
        users=int(100_000 * scale),
        folders=int(10_000 * scale),
        documents=int(100_000 * scale),
        grants=int(1_000_000 * scale),
    )
    company.write(folder / "directory.jsonl")
    port, bare_port = free_port(), free_port()
    settings = write_settings(
        folder,
        {
            "database_url": database_url,
            "server": {"port": port, "workers": 1, "threads": THREADS},
            "provider": {"auth_tokens": [TOKEN]},
            "directory": {"sources": [{"type": "file", "path": str(folder / "directory.jsonl")}]},
        },
    )
    command(["db", "upgrade", "--config", str(settings)], folder)
    start = time.perf_counter()
    command(["directory", "refresh", "--config", str(settings)], folder)
    loaded = time.perf_counter() - start
    each = int(rounds * seconds * BODIES_PER_SECOND)
    loads = [post("127.0.0.1", port, PATH, body, TOKEN) for body in _bodies(company, each + REPEATED, users=1, seed=2)]
    crowds = [post("127.0.0.1", port, PATH, body, TOKEN) for body in _bodies(company, each, users=QUESTIONS, seed=3)]
    repeated = loads[each:]
    share = each // rounds
    with running(
        [*USHER, "serve", "--config", str(settings)], folder, f"http://127.0.0.1:{port}/readyz", "service"
    ) as service:
        _wait_for_index(folder)
        answer = exchange("127.0.0.1", port, repeated[0])
        (folder / "answer.json").write_bytes(answer)
        bare_requests = [request.replace(f":{port}".encode(), f":{bare_port}".encode(), 1) for request in repeated]
        bare = [sys.executable, "-m", "tests.bench.bare", str(bare_port), str(THREADS), str(folder / "answer.json")]
        with running(bare, folder, f"http://127.0.0.1:{bare_port}/healthz", "bare"):

            def at_bare() -> Measured:
                return measure("127.0.0.1", bare_port, bare_requests, seconds=seconds, connections=CONNECTIONS)

            def at_service(requests: Sequence[bytes]) -> Measured:
                return measure("127.0.0.1", port, requests, seconds=seconds, connections=CONNECTIONS)

            at_bare(), at_service(repeated)
            parts = [slice(number * share, (number + 1) * share) for number in range(rounds)]
            pairs = [(at_bare(), at_service(loads[part])) for part in parts]
            crowded = [at_service(crowds[part]) for part in parts]
            again = [at_service(repeated) for _ in parts]
        memory = max(child.memory_full_info().uss for child in service.children(recursive=True)) / 1e6
    figures = _figures(company, pairs, loaded, memory, json.loads(answer))
    bare_rate = statistics.median(pair[0].rate for pair in pairs)
    for name, measured in (("20 different users", crowded), ("asked before", again)):
        rate = statistics.median(one.rate for one in measured)
        figures[f"{name}: requests/s"] = round(rate)
        figures[f"{name}: ratio"] = round(rate / bare_rate, 3)
        figures[f"{name}: p99 ms"] = round(statistics.median(one.p99 for one in measured), 2)
    return figures


def _wait_for_index(folder: Path) -> None:
    """Waits until the service answers from its index."""
    until = time.monotonic() + 600
    while not list(folder.glob("**/confirmed")):
        if time.monotonic() > until:
            raise RuntimeError("the service has no index")
        time.sleep(0.1)


def _figures(
    company: Company, pairs: list[tuple[Measured, Measured]], loaded: float, memory: float, answer: dict[str, object]
) -> dict[str, object]:
    bare = statistics.median(pair[0].rate for pair in pairs)
    ours = statistics.median(pair[1].rate for pair in pairs)
    results = answer["data"]
    assert isinstance(results, list)
    return {
        "threads": THREADS,
        "users": company.users,
        "documents": company.documents,
        "grants": company.grants,
        "directory read s": round(loaded, 1),
        "bare Flask requests/s": round(bare),
        "service requests/s": round(ours),
        "service decisions/s": round(ours * QUESTIONS),
        "ratio": round(ours / bare, 3),
        "target ratio": TARGET,
        "bare p99 ms": round(statistics.median(pair[0].p99 for pair in pairs), 2),
        "service p50 ms": round(statistics.median(pair[1].p50 for pair in pairs), 2),
        "service p99 ms": round(statistics.median(pair[1].p99 for pair in pairs), 2),
        "worker memory MB": round(memory),
        "allowed of first 20": sum(1 for result in results if result["hasAccess"]),
    }


def _bodies(company: Company, count: int, *, users: int, seed: int) -> list[bytes]:
    """Calls of 20 questions of ``users`` users about documents of their organizations."""
    chance = random.Random(seed)
    per_organization = company.users // company.organizations
    documents = company.documents // company.organizations
    bodies = []
    for _ in range(count):
        organization = chance.randrange(company.organizations)
        asking = [chance.randrange(per_organization) * company.organizations + organization for _ in range(users)]
        requests = [
            {
                "userId": f"user-{asking[number % users]}",
                "resource": {
                    "type": "document",
                    "id": f"document-{chance.randrange(documents) * company.organizations + organization}",
                    "organizationId": company.organization_of(organization),
                    "source": "setDocuments",
                },
            }
            for number in range(QUESTIONS)
        ]
        bodies.append(orjson.dumps({"data": {"requests": requests}}))
    return bodies
