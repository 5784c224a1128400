"""Measures permission calls relative to a bare Flask route on the same server.

The service answers calls of 20 questions against 100,000 users, 100,000 documents and 1,000,000 grants, on SQLite or
PostgreSQL.
Rounds of the one and the other alternate, so that noise affects both; the result is the ratio of the medians.

The main ratio uses questions that were not asked before, like a page load: one user, 20 documents. Calls of 20
different users, of one question and of 200 questions are measured beside a bare route with bodies of the same
size, and beside the route that one would write in an afternoon (``afternoon``), on the same database.

Then a second service with a decision log of 1 % answers the same calls, in turns with the one without.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import psutil

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
LOG_SAMPLE = 0.01
LOG_TARGET = 0.97
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
    port, afternoon_port = free_port(), free_port()
    provider = {"auth_tokens": [TOKEN]}
    settings = _settings(folder, database_url, port, provider)
    command(["db", "upgrade", "--config", str(settings)], folder)
    start = time.perf_counter()
    command(["directory", "refresh", "--config", str(settings)], folder)
    loaded = time.perf_counter() - start
    afternoon = [sys.executable, "-m", "tests.bench.afternoon", str(afternoon_port), str(THREADS), database_url]
    with ExitStack() as stack:
        service = stack.enter_context(
            running([*USHER, "serve", "--config", str(settings)], folder, f"http://127.0.0.1:{port}/readyz", "service")
        )
        stack.enter_context(running(afternoon, folder, f"http://127.0.0.1:{afternoon_port}/healthz", "afternoon"))
        wait_for_index(folder)
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
                for key, value in _compared(
                    folder, port, requests, rounds=rounds, seconds=seconds, afternoon_port=afternoon_port
                ).items()
            }
        memory = max(child.memory_full_info().uss for child in service.children(recursive=True)) / 1e6
        place = folder / "logged"
        place.mkdir()
        log_port = free_port()
        log = {"path": str(place / "decisions.jsonl"), "sample": LOG_SAMPLE}
        logging = _settings(place, database_url, log_port, {**provider, "decision_log": log})
        with running(
            [*USHER, "serve", "--config", str(logging)], place, f"http://127.0.0.1:{log_port}/readyz", "service"
        ) as logging_service:
            wait_for_index(place)
            sides = ((service, port), (logging_service, log_port))
            bodies = _bodies(company, 4_000, users=1, seed=3)
            figures |= _decision_log(place, sides, bodies, rounds=rounds, seconds=seconds)
    return {**figures, "worker memory MB": round(memory)}


def _settings(folder: Path, database_url: str, port: int, provider: dict[str, Any]) -> Path:
    return write_settings(
        folder,
        {
            "database_url": database_url,
            "server": {"port": port, "workers": 1, "threads": THREADS},
            "provider": provider,
            "index": {"path": str(folder / "index")},
            # Only the first service's commands read it.
            "directory": {"sources": [{"type": "file", "path": str(folder / "directory.jsonl")}]},
        },
    )


def _decision_log(
    folder: Path,
    sides: Sequence[tuple[psutil.Process, int]],
    bodies: Sequence[bytes],
    *,
    rounds: int,
    seconds: float,
) -> dict[str, object]:
    """The throughput and CPU of a service without and of one with a decision log, in turns."""
    measured: list[list[tuple[float, float]]] = [[], []]
    for number in range(rounds + 1):
        # Neither side is always the first.
        for side in (0, 1) if number % 2 else (1, 0):
            service, port = sides[side]
            requests = [post("127.0.0.1", port, PATH, body, TOKEN) for body in bodies]
            cpu = _cpu_seconds(service)
            round_ = measure("127.0.0.1", port, requests, seconds=seconds, connections=CONNECTIONS)
            measured[side].append((round_.rate, (_cpu_seconds(service) - cpu) / round_.answers))
    # The first round is a warm-up.
    pairs = list(zip(measured[0][1:], measured[1][1:], strict=True))
    rates = [logging[0] / plain[0] for plain, logging in pairs]
    lines = (folder / "decisions.jsonl").read_bytes().count(b"\n")
    return {
        f"decision log of {LOG_SAMPLE:.0%}: requests/s of those without": round(statistics.median(rates), 3),
        f"decision log of {LOG_SAMPLE:.0%}: lowest and highest round": f"{min(rates):.3f}, {max(rates):.3f}",
        f"decision log of {LOG_SAMPLE:.0%}: CPU of a call, of those without": round(
            statistics.median(logging[1] / plain[1] for plain, logging in pairs), 3
        ),
        f"decision log of {LOG_SAMPLE:.0%}: lines written": lines,
        "decision log: target": LOG_TARGET,
    }


def _cpu_seconds(service: psutil.Process) -> float:
    times = (process.cpu_times() for process in (service, *service.children(recursive=True)))
    return sum(each.user + each.system for each in times)


def _compared(
    folder: Path, port: int, requests: Sequence[bytes], *, rounds: int, seconds: float, afternoon_port: int
) -> dict[str, object]:
    """The figures of one load: the service beside a bare route that returns an answer of the same size, and beside the
    route of an afternoon."""
    answer = exchange("127.0.0.1", port, requests[0])
    (folder / "answer.json").write_bytes(answer)
    bare_port = free_port()
    bare_requests, afternoon_requests = (
        [request.replace(f":{port}".encode(), f":{other}".encode(), 1) for request in requests[:400]]
        for other in (bare_port, afternoon_port)
    )
    for ours, other in list(zip(requests, afternoon_requests, strict=False))[:20]:
        # Otherwise they would not be comparable.
        assert _roles(exchange("127.0.0.1", port, ours)) == _roles(exchange("127.0.0.1", afternoon_port, other))
    bare = [sys.executable, "-m", "tests.bench.bare", str(bare_port), str(THREADS), str(folder / "answer.json")]
    with running(bare, folder, f"http://127.0.0.1:{bare_port}/healthz", "bare"):

        def at_bare(rate: float | None = None) -> Measured:
            return measure("127.0.0.1", bare_port, bare_requests, seconds=seconds, connections=CONNECTIONS, rate=rate)

        def at_service(part: Sequence[bytes], rate: float | None = None) -> Measured:
            return measure("127.0.0.1", port, part, seconds=seconds, connections=CONNECTIONS, rate=rate)

        def at_afternoon(connections: int) -> Measured:
            return measure("127.0.0.1", afternoon_port, afternoon_requests, seconds=seconds, connections=connections)

        at_bare(), at_service(requests[:400])
        share = len(requests) // rounds
        parts = [requests[number * share : (number + 1) * share] for number in range(rounds)]
        # Its threads compete for the interpreter at each of its many queries, so that one at a time may be faster.
        pairs = [(at_bare(), at_service(part), at_afternoon(CONNECTIONS), at_afternoon(1)) for part in parts]
        bare_rate, rate, *afternoon_rates = (statistics.median(pair[side].rate for pair in pairs) for side in range(4))
        half = [at_service(part, rate / 2) for part in parts]
        again = [at_service(requests[:REPEATED]) for _ in parts]
    return {
        "bare Flask requests/s": round(bare_rate),
        "service requests/s": round(rate),
        "ratio": round(rate / bare_rate, 3),
        f"route of an afternoon requests/s: {CONNECTIONS} at a time; one": "{:.1f}; {:.1f}".format(*afternoon_rates),
        "service against the better of them": round(rate / max(afternoon_rates), 1),
        "route of an afternoon p50 ms, one at a time": round(statistics.median(pair[3].p50 for pair in pairs), 1),
        "ratio if asked before": round(statistics.median(one.rate for one in again) / bare_rate, 3),
        "bare p99 ms": round(statistics.median(pair[0].p99 for pair in pairs), 2),
        "service p50 ms": round(statistics.median(pair[1].p50 for pair in pairs), 2),
        "service p99 ms": round(statistics.median(pair[1].p99 for pair in pairs), 2),
        "p99 ms at half of this load": round(statistics.median(one.p99 for one in half), 2),
        "allowed in the first call": sum(1 for result in json.loads(answer)["data"] if result["hasAccess"]),
    }


def _roles(answer: bytes) -> list[str | None]:
    return [result.get("accessRole") for result in orjson.loads(answer)["data"]]


def wait_for_index(folder: Path) -> None:
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
