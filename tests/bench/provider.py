"""Measures permission calls relative to a bare Flask route on the same server.

The service answers calls of 20 questions against 100,000 users, 100,000 documents and 1,000,000 grants, on SQLite or
PostgreSQL.
Rounds of the one and the other alternate, so that noise affects both; the result is the ratio of the medians.

The main ratio uses questions that were not asked before, like a page load: one user, 20 documents. Calls of 20
different users, of one question and of 200 questions are measured beside a bare route with bodies of the same
size.
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
from tests.bench.processes import USHER, command, running, write_settings
from tests.ports import free_port

QUESTIONS = 20
PATH = "/permissions/check"
TOKEN = "bench-provider-token"
THREADS = 4
"""The default of the service's setting."""
CONNECTIONS = 4
TARGET = 0.60
REPEATED = 400
"""Calls that are asked again and again, for the ratio of calls that were asked before."""
LOADS = {
    "20 questions of one user": (QUESTIONS, 1),
    "20 users": (QUESTIONS, QUESTIONS),
    "one question": (1, 1),
    "200 questions": (200, 1),
}
"""Questions and users of a call."""
BODIES_PER_SECOND = 3500
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
    port = free_port()
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
    with running(
        [*USHER, "serve", "--config", str(settings)], folder, f"http://127.0.0.1:{port}/readyz", "service"
    ) as service:
        _wait_for_index(folder)
        figures: dict[str, object] = {
            "threads": THREADS,
            "users": company.users,
            "documents": company.documents,
            "grants": company.grants,
            "directory read s": round(loaded, 1),
            "target ratio": TARGET,
        }
        for name, (questions, users) in LOADS.items():
            bodies = _bodies(company, int(rounds * seconds * BODIES_PER_SECOND), questions, users=users, seed=2)
            requests = [post("127.0.0.1", port, PATH, body, TOKEN) for body in bodies]
            figures |= {
                f"{name}: {key}": value
                for key, value in _compared(folder, port, requests, rounds=rounds, seconds=seconds).items()
            }
        memory = max(child.memory_full_info().uss for child in service.children(recursive=True)) / 1e6
    return {**figures, "worker memory MB": round(memory)}


def _compared(folder: Path, port: int, requests: Sequence[bytes], *, rounds: int, seconds: float) -> dict[str, object]:
    """The figures of one load: the service beside a bare route that returns an answer of the same size."""
    answer = exchange("127.0.0.1", port, requests[0])
    (folder / "answer.json").write_bytes(answer)
    bare_port = free_port()
    bare_requests = [request.replace(f":{port}".encode(), f":{bare_port}".encode(), 1) for request in requests[:400]]
    bare = [sys.executable, "-m", "tests.bench.bare", str(bare_port), str(THREADS), str(folder / "answer.json")]
    with running(bare, folder, f"http://127.0.0.1:{bare_port}/healthz", "bare"):

        def at_bare(rate: float | None = None) -> Measured:
            return measure("127.0.0.1", bare_port, bare_requests, seconds=seconds, connections=CONNECTIONS, rate=rate)

        def at_service(part: Sequence[bytes], rate: float | None = None) -> Measured:
            return measure("127.0.0.1", port, part, seconds=seconds, connections=CONNECTIONS, rate=rate)

        at_bare(), at_service(requests[:400])
        share = len(requests) // rounds
        parts = [requests[number * share : (number + 1) * share] for number in range(rounds)]
        pairs = [(at_bare(), at_service(part)) for part in parts]
        bare_rate, rate = (statistics.median(pair[side].rate for pair in pairs) for side in (0, 1))
        half = [at_service(part, rate / 2) for part in parts]
        again = [at_service(requests[:REPEATED]) for _ in parts]
    return {
        "bare Flask requests/s": round(bare_rate),
        "service requests/s": round(rate),
        "ratio": round(rate / bare_rate, 3),
        "ratio if asked before": round(statistics.median(one.rate for one in again) / bare_rate, 3),
        "bare p99 ms": round(statistics.median(pair[0].p99 for pair in pairs), 2),
        "service p50 ms": round(statistics.median(pair[1].p50 for pair in pairs), 2),
        "service p99 ms": round(statistics.median(pair[1].p99 for pair in pairs), 2),
        "p99 ms at half of this load": round(statistics.median(one.p99 for one in half), 2),
        "allowed in the first call": sum(1 for result in json.loads(answer)["data"] if result["hasAccess"]),
    }


def _wait_for_index(folder: Path) -> None:
    """Waits until the service answers from its index."""
    until = time.monotonic() + 600
    while not list(folder.glob("**/confirmed")):
        if time.monotonic() > until:
            raise RuntimeError("the service has no index")
        time.sleep(0.1)


def _bodies(company: Company, count: int, questions: int = QUESTIONS, *, users: int, seed: int) -> list[bytes]:
    """Calls of ``questions`` questions of ``users`` users about documents of their organizations."""
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
            for number in range(questions)
        ]
        bodies.append(orjson.dumps({"data": {"requests": requests}}))
    return bodies
