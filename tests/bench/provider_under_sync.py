"""Measures permission calls during a sync and repeated refreshes.

Calls of 20 questions arrive at a constant rate, first at an idle service, then during a first sync of about 100,000
items and refreshes with changed content, on the same database. A call's time begins when it was due. The backend
represents another machine and runs with low priority.
"""

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.bench.company import Company
from tests.bench.load import _Connection, post
from tests.bench.processes import USHER, command, running, write_settings
from tests.bench.provider import PATH, THREADS, TOKEN, _bodies
from tests.bench.sync import _credentials
from tests.ports import free_port

CONNECTIONS = 4
CALLS_PER_SECOND = 60
IDLE_SECONDS = 10
TARGET = 3.0
NICE = "10"
"""The default of the setting ``worker.nice``."""


@dataclass(frozen=True)
class Pace:
    """The times of calls at a constant rate, in milliseconds."""

    p50: float
    p99: float
    calls: int


def steadily(port: int, requests: Sequence[bytes], go_on: Callable[[], bool]) -> Pace:
    """Calls on `CONNECTIONS` connections, at a constant rate while ``go_on`` returns True."""
    taken: list[float] = []
    failures: list[str] = []
    interval = CONNECTIONS / CALLS_PER_SECOND

    def run(worker: int) -> None:
        connection = _Connection("127.0.0.1", port)
        due, number = time.perf_counter() + interval * worker / CONNECTIONS, worker
        try:
            while go_on():
                time.sleep(max(0.0, due - time.perf_counter()))
                connection.exchange(requests[number % len(requests)])
                taken.append(time.perf_counter() - due)
                due, number = due + interval, number + CONNECTIONS
        except (OSError, ValueError) as error:
            failures.append(str(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(f"a call failed: {failures[0]}")
    taken.sort()
    return Pace(taken[len(taken) // 2] * 1000, taken[len(taken) * 99 // 100] * 1000, len(taken))


def bench_provider_under_sync(folder: Path, *, scale: float) -> dict[str, object]:
    """The figures of the idle and of the busy service; ``scale`` 1 is a sync of some 100,000 items."""
    company = Company(
        users=int(20_000 * scale), folders=int(2_000 * scale), documents=int(20_000 * scale), grants=int(60_000 * scale)
    )
    directory, other = folder / "directory.jsonl", folder / "other.jsonl"
    _write_twice(company, directory, other)
    backend_port, port = free_port(), free_port()
    backend_config = write_settings(
        folder, {"self_hosted_backend": {"database_url": f"sqlite:///{folder}/backend.db"}, "server": {"workers": 1}}
    )
    serve_backend = [*USHER, "backend", "serve", "--port", str(backend_port), "--config", str(backend_config)]
    with running(serve_backend, folder, f"http://127.0.0.1:{backend_port}/healthz", "backend") as backend:
        for process in (backend, *backend.children(recursive=True)):
            process.nice(15)
        api_key, auth_token = _credentials(folder, backend_port, 0, "sync")
        place = folder / "service"
        place.mkdir()
        settings = str(_service_settings(place, port, backend_port, (api_key, auth_token), directory))
        command(["directory", "refresh", "--config", settings], place)
        bodies = _bodies(company, 4000, users=1, seed=5)
        requests = [post("127.0.0.1", port, PATH, body, TOKEN) for body in bodies]
        with running([*USHER, "serve", "--config", settings], place, f"http://127.0.0.1:{port}/readyz", "service"):
            steadily(port, requests, _for_seconds(2))
            idle = steadily(port, requests, _for_seconds(IDLE_SECONDS))
            syncing = _Background(["nice", "-n", NICE, *USHER, "sync", "--json", "--config", settings], place)
            stop = threading.Event()
            refreshes: list[int] = []
            refresher = threading.Thread(
                target=_keep_refreshing, args=(settings, place, (directory, other), stop, refreshes)
            )
            refresher.start()
            began = time.perf_counter()
            busy = steadily(port, requests, syncing.is_running)
            seconds = time.perf_counter() - began
            stop.set()
            refresher.join()
            counts = orjson.loads(syncing.output())
            after = steadily(port, requests, _for_seconds(IDLE_SECONDS))
    calm = (idle.p99 + after.p99) / 2
    return {
        "items of the sync": sum(n for kind in counts["counts"].values() for by in kind.values() for n in by.values()),
        "sync s": round(seconds, 1),
        "refreshes meanwhile": len(refreshes),
        "calls/s": CALLS_PER_SECOND,
        "idle p50 ms": round(idle.p50, 2),
        "idle p99 ms": round(idle.p99, 2),
        "idle again p99 ms": round(after.p99, 2),
        "during p50 ms": round(busy.p50, 2),
        "during p99 ms": round(busy.p99, 2),
        "calls during": busy.calls,
        "times idle p99": round(busy.p99 / calm, 2),
        "target": TARGET,
    }


class _Background:
    """A command in the background."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._output = folder / "background.out"
        with self._output.open("wb") as output, (folder / "background.err").open("wb") as errors:
            self._process = subprocess.Popen(arguments, cwd=folder, stdout=output, stderr=errors, env=dict(os.environ))

    def is_running(self) -> bool:
        return self._process.poll() is None

    def output(self) -> bytes:
        code = self._process.wait()
        if code not in {0, 3, 4}:
            raise RuntimeError(f"the sync ended with {code}")
        return self._output.read_bytes()


def _for_seconds(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end


def _keep_refreshing(
    settings: str, folder: Path, files: tuple[Path, Path], stop: threading.Event, done: list[int]
) -> None:
    """Refreshes the directory repeatedly, alternating between two files."""
    directory, other = files
    kept = directory.read_bytes()
    changed = other.read_bytes()
    while not stop.is_set():
        fresh = directory.with_suffix(".new")
        fresh.write_bytes(changed if len(done) % 2 == 0 else kept)
        fresh.replace(directory)
        refresh = ["nice", "-n", NICE, *USHER, "directory", "refresh", "--config", settings]
        if subprocess.run(refresh, cwd=folder, capture_output=True, check=False).returncode == 0:
            done.append(1)


def _write_twice(company: Company, one: Path, other: Path) -> None:
    """Writes the company, and a copy without a tenth of its grants."""
    company.write(one)
    chance = random.Random(9)
    with one.open("rb") as source, other.open("wb") as target:
        target.writelines(line for line in source if b'"grant"' not in line or chance.random() > 0.1)


def _service_settings(
    folder: Path, port: int, backend_port: int, credentials: tuple[str, str], directory: Path
) -> Path:
    return write_settings(
        folder,
        {
            "database_url": f"sqlite:///{folder}/usher.db",
            "server": {"port": port, "workers": 1, "threads": THREADS},
            "provider": {"auth_tokens": [TOKEN]},
            "backend": {
                "base_url": f"http://127.0.0.1:{backend_port}",
                "api_key": credentials[0],
                "auth_token": credentials[1],
            },
            "directory": {"sources": [{"type": "file", "path": str(directory)}]},
        },
    )
