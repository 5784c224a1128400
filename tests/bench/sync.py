"""Measures a first sync, and a sync without changes.

The company is synced into the self-hosted backend over HTTP, and all calls are recorded. They are then
replayed for a new API key by a bare ``requests`` session with the same number of threads: this is the share of the
calls in the time of the sync.
"""

import json
import math
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from sqlalchemy import Engine, text

from app.client.client import BackendClient
from app.commands.bootstrap.application import Application
from app.commands.bootstrap.databases import open_store
from app.contract.operations import OPERATIONS
from app.foundation.clock import utc_now
from app.foundation.database import statements
from app.foundation.database.engine import open_engine, reading
from app.settings import Settings, load_settings
from app.sync.plan.desired import compute_desired
from app.sync.plan.planner import PlanRequest, make_plan
from app.sync.plan.selection import EVERYTHING
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan
from app.sync.plan.tables import drop_temporary
from app.sync.runs.engine import SyncEngine
from app.sync.runs.run import Run, RunRequest
from tests.bench.company import Company
from tests.bench.databases import databases
from tests.bench.processes import USHER, command, running, write_settings
from tests.ports import free_port
from tests.progress import QuietProgress

TARGET = 0.8
WRITES = {path: operation.name for operation in OPERATIONS if not operation.is_read for path in operation.paths}


class RecordingAdapter(HTTPAdapter):
    """Records the sent calls."""

    def __init__(self, connections: int) -> None:
        super().__init__(pool_connections=1, pool_maxsize=connections, max_retries=0)
        self.calls: list[tuple[str, bytes]] = []
        self._lock = threading.Lock()

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Records the path and the body of writes."""
        path = request.path_url
        if path in WRITES:
            with self._lock:
                self.calls.append((path, bytes(request.body or b"")))  # type: ignore[arg-type]  # always bytes here
        return super().send(request, *args, **options)


def bench_sync(folder: Path, *, scale: float, rounds: int, postgres: str | None = None) -> dict[str, object]:
    """The figures of a first sync and of one without changes; on SQLite, or on `postgres`."""
    company = Company(
        users=int(10_000 * scale), folders=int(1_000 * scale), documents=int(10_000 * scale), grants=int(50_000 * scale)
    )
    company.write(folder / "directory.jsonl")
    port = free_port()
    shares, rates, seconds, calls = [], [], [], []
    with databases(folder, postgres) as new_database, _backend(folder, port, new_database("backend")):
        for number in range(rounds):
            replay_credentials = _credentials(folder, port, number, "replay")
            settings = _settings(folder, port, new_database(f"usher-{number}"), number)
            taken, sent, run = _first_sync(settings)
            bare = _replay(sent, replay_credentials, port, settings.backend.max_in_flight)
            items = run.total("done")
            shares.append(bare / taken)
            rates.append(items / taken)
            seconds.append(taken)
            calls.append(len(sent))
        minimum = _minimum(settings, run)
        idle, idle_sent, idle_memory = _idle_sync(folder)
    return {
        "users": company.users,
        "folders": company.folders,
        "documents": company.documents,
        "grants": company.grants,
        "items": items,
        "first sync s": round(statistics.median(seconds), 1),
        "items/s": round(statistics.median(rates)),
        "calls": calls[-1],
        "minimum of calls": minimum,
        "share of the calls alone": round(statistics.median(shares), 3),
        "target share": TARGET,
        "nothing to do: s": round(idle, 2),
        "nothing to do: write calls": idle_sent,
        "nothing to do: peak memory MB": round(idle_memory),
    }


def bench_planning(folder: Path, *, scale: float, postgres: str | None = None) -> dict[str, object]:
    """Peak memory of reading and planning everything, at two sizes: it must not grow with the number of items."""
    figures: dict[str, object] = {}
    port = free_port()
    with databases(folder, postgres) as new_database, _backend(folder, port, f"sqlite:///{folder}/backend.db"):
        for number, users in enumerate((int(10_000 * scale), int(100_000 * scale))):
            place = folder / str(users)
            place.mkdir()
            Company(users=users, folders=users // 10, documents=users, grants=users * 5).write(
                place / "directory.jsonl"
            )
            settings = _settings(place, port, new_database(str(users)), number)
            config = str(place / "usher.yaml")
            _, reading_seconds, reading_memory = command(["directory", "refresh", "--config", config], place)
            _, seconds, memory = command(["plan", "--config", config], place, accept=(10,))
            engine = open_store(settings)
            with reading(engine) as connection:
                items = connection.execute(text("SELECT count(*) FROM plan_item")).scalar_one()
            everything, changes = _plan_changes(engine, place, config)
            engine.dispose()
            figures[f"{items} items: reading s"] = round(reading_seconds, 1)
            figures[f"{items} items: reading, peak memory MB"] = round(reading_memory)
            figures[f"{items} items: planning s (reading again included)"] = round(seconds, 1)
            figures[f"{items} items: planning, peak memory MB"] = round(memory)
            figures[f"{items} items, 100 records changed: planning everything; the changes, s"] = (
                f"{everything:.2f}; {changes:.2f}"
            )
    return figures


_FILL_LEDGER = """
INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
  access_role, disabled, certain)
SELECT :ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type, access_role, disabled,
  TRUE
FROM desired
"""


def _plan_changes(engine: Engine, place: Path, config: str) -> tuple[float, float]:
    """The seconds for planning everything, and for planning the changes, after 100 grants were removed from a directory
    that the backend followed."""
    with engine.begin() as connection:
        ledger_id = connection.execute(text("SELECT MAX(ledger_id) FROM ledger")).scalar_one()
        compute_desired(connection, ledger_id=ledger_id, now=utc_now(), selection=EVERYTHING)
        statements.run(connection, _FILL_LEDGER, {"ledger_id": ledger_id})
        drop_temporary(connection)

    def plan(since: Sequence[str] = ()) -> tuple[Plan, float]:
        start = time.perf_counter()
        request = PlanRequest(ledger_id=ledger_id, now=utc_now(), limits=LimitSettings(), since=since, is_preview=True)
        made = make_plan(engine, request, random=random.Random())
        return made, time.perf_counter() - start

    base, _ = plan()
    assert not base.has_changes
    lines = (place / "directory.jsonl").read_bytes().splitlines(keepends=True)
    # Grants are last.
    (place / "directory.jsonl").write_bytes(b"".join(lines[:-100]))
    command(["directory", "refresh", "--config", config], place)
    changes, seconds = plan([base.plan_id])
    everything, full_seconds = plan()
    assert changes.has_changes
    assert changes.plan_hash == everything.plan_hash
    return full_seconds, seconds


@contextmanager
def _backend(folder: Path, port: int, database_url: str) -> Iterator[None]:
    """A self-hosted backend with one worker."""
    secret = "the secret key of a benchmark"
    config = write_settings(
        folder,
        {"self_hosted_backend": {"database_url": database_url, "secret_key": secret}, "server": {"workers": 1}},
    )
    command(["backend", "upgrade", "--config", str(config)], folder)
    serve = [*USHER, "backend", "serve", "--port", str(port), "--config", str(config)]
    with running(serve, folder, f"http://127.0.0.1:{port}/healthz", "backend"):
        yield


def _settings(folder: Path, port: int, database_url: str, number: int) -> Settings:
    api_key, auth_token = _credentials(folder, port, number, "sync")
    path = write_settings(
        folder,
        {
            "database_url": database_url,
            "backend": {"base_url": f"http://127.0.0.1:{port}", "api_key": api_key, "auth_token": auth_token},
            "directory": {"sources": [{"type": "file", "path": str(folder / "directory.jsonl")}]},
        },
    )
    command(["db", "upgrade", "--config", str(path)], folder)
    return load_settings(path, environment={}).settings


def _credentials(folder: Path, port: int, number: int, purpose: str) -> tuple[str, str]:
    path = write_settings(folder, {"backend": {"base_url": f"http://127.0.0.1:{port}"}})
    email = f"{purpose}-{number}@bench.example"
    output, _, _ = command(["backend", "bootstrap", "--email", email, "--json", "--config", str(path)], folder)
    created = json.loads(output)
    return str(created["apiKey"]), str(created["authToken"])


def _first_sync(settings: Settings) -> tuple[float, list[tuple[str, bytes]], Run]:
    engine = open_store(settings)
    adapter = RecordingAdapter(settings.backend.max_in_flight)
    application = Application(
        settings=settings, engine=engine, clock=utc_now, sleep=time.sleep, random=random.SystemRandom()
    )
    syncing = SyncEngine(
        engine=engine,
        client=BackendClient(settings.backend, transport=adapter),
        sources=application.sources(),
        sync_settings=settings.sync,
        backend_settings=settings.backend,
        directory_settings=settings.directory,
        policy=settings.provider.policy,
        clock=utc_now,
        sleep=time.sleep,
        random=random.SystemRandom(),
    )
    run, _ = application.runs.enqueue(RunRequest(trigger="command"))
    lock = application.sync_lock()
    assert lock.acquire(5)
    start = time.perf_counter()
    run = syncing.execute(run.run_id, lock=lock, progress=QuietProgress(), stop=threading.Event())
    taken = time.perf_counter() - start
    lock.release()
    engine.dispose()
    assert run.status == "done", (run.status, run.error, run.counts)
    return taken, adapter.calls, run


def _replay(calls: Sequence[tuple[str, bytes]], credentials: tuple[str, str], port: int, threads: int) -> float:
    """The seconds that the calls alone take, in an order that respects their dependencies."""
    api_key, auth_token = credentials
    stages: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for path, body in calls:
        stages[WRITES[path] + ("/" + _level(body) if WRITES[path] == "add_users" else "")].append((path, body))
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=threads))
    headers = {
        "Content-Type": "application/json",
        "x-service-api-key": api_key,
        "x-service-auth-token": auth_token,
    }

    def send(call: tuple[str, bytes]) -> int:
        return session.post(f"http://127.0.0.1:{port}{call[0]}", data=call[1], headers=headers, timeout=60).status_code

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        codes = Counter(code for stage in stages.values() for code in pool.map(send, stage))
    taken = time.perf_counter() - start
    assert set(codes) == {200}, codes
    return taken


def _level(body: bytes) -> str:
    return next((level for level in ("documentId", "folderId") if f'"{level}":'.encode() in body), "organization")


def _minimum(settings: Settings, run: Run) -> int:
    """For each operation and scope, the items divided by the batch size, rounded up."""
    limits = {operation.name: operation.max_items for operation in OPERATIONS}
    counted: Counter[tuple[int, str, str]] = Counter()
    engine = open_engine(settings.database_url)
    with reading(engine) as connection:
        rows = connection.execute(
            text(
                "SELECT phase, operation, scope, count(*) FROM plan_item WHERE plan_id = :plan AND covered_by IS NULL"
                " GROUP BY phase, operation, scope"
            ),
            {"plan": run.plan_id},
        )
        for phase, operation, scope, count in rows:
            counted[phase, operation, scope] += count
    engine.dispose()
    size = settings.backend.batch_size
    return sum(math.ceil(count / min(size, limits[operation] or size)) for (_, operation, _), count in counted.items())


def _idle_sync(folder: Path) -> tuple[float, int, float]:
    """A ``usher sync`` without changes: seconds, write calls, MB."""
    output, seconds, memory = command(["sync", "--json", "--config", str(folder / "usher.yaml")], folder)
    return seconds, int(json.loads(output)["calls"]), memory
