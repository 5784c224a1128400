"""The self-hosted backend on loopback, with real sockets, real workers in front of it and faults in between.

``Front`` is what stands between them: it knows which process sent each call and which items it was about, can be slow,
can keep calls waiting, and can break connections as a network does.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
import yaml
from sqlalchemy import text
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from app.commands.bootstrap.databases import STORE_MIGRATIONS
from app.directory.casting import object_from_record
from app.foundation.database.engine import open_engine, reading
from app.foundation.database.migrations import upgrade
from app.sync.runs.run import Run, RunRequest
from tests.faults.layer import Fault, _item_names
from tests.faults.world import FaultyWorld
from tests.forking import Forked, command
from tests.worlds.clock import NOON
from tests.worlds.company import Company
from tests.worlds.operation_paths import by_path

REFUSALS = {Fault.THROTTLED_SECONDS: 429, Fault.BAD_GATEWAY: 502, Fault.UNAVAILABLE: 503, Fault.UNAUTHORIZED: 401}


@dataclass
class Seen:
    """One write call as it went by."""

    pid: int
    operation: str
    items: frozenset[tuple[str, ...]]
    began: float
    ended: float | None = None


@dataclass
class Front:
    """The application that the server serves: the backend, with scripted faults before and after it."""

    app: Any
    seen: list[Seen] = field(default_factory=list)
    delay: float = 0.0
    """Seconds that every write takes."""
    faults: list[Fault] = field(default_factory=list)
    """What happens to the next writes, one after the other."""
    always: Fault | None = None

    def __post_init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self._pids: dict[int, int] = {}
        self._lock = threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        contracted = by_path(environ["PATH_INFO"])
        if contracted is None or contracted.is_read:
            return self.app(environ, start_response)
        raw = Request(environ).get_data()
        data = json.loads(raw)["data"]
        place = tuple(str(data.get(name, "")) for name in ("organizationId", "folderId", "documentId"))
        names = _item_names(contracted, data) or [""]
        seen = Seen(
            self._pid_of(int(environ["REMOTE_PORT"])),
            contracted.name,
            frozenset((contracted.name, *place, name) for name in names),
            time.monotonic(),
        )
        with self._lock:
            self.seen.append(seen)
            fault = self.faults.pop(0) if self.faults else self.always
        try:
            self.open.wait(60)
            time.sleep(self.delay)
            return self._answer(fault, {**environ, "wsgi.input": BytesIO(raw)}, start_response)
        finally:
            seen.ended = time.monotonic()

    def _answer(self, fault: Fault | None, environ: Any, start_response: Any) -> Any:
        if fault in REFUSALS:
            headers = {"Retry-After": "30"} if fault is Fault.THROTTLED_SECONDS else {}
            return Response(b"<html>no</html>", REFUSALS[fault], headers)(environ, start_response)
        if fault is not Fault.RESET_BEFORE:
            response = Response.from_app(self.app, environ)
        if fault is None:
            return response(environ, start_response)
        connection = environ["werkzeug.socket"]
        if fault is Fault.CUT:
            body = response.get_data()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body[: len(body) // 2])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
        connection.close()
        raise ConnectionResetError("injected")

    def _pid_of(self, port: int) -> int:
        """Which process is at the other end: kept per connection, looked up once."""
        with self._lock:
            if port not in self._pids:
                for connection in psutil.net_connections("tcp"):
                    if connection.laddr and connection.laddr.port == port and connection.pid:
                        self._pids[port] = connection.pid
                        break
            return self._pids.get(port, 0)

    def overlaps(self) -> list[str]:
        """Items that two processes were at the same time about."""
        found = []
        for number, one in enumerate(self.seen):
            for other in self.seen[number + 1 :]:
                apart = one.ended is not None and one.ended <= other.began
                if one.pid != other.pid and not apart and one.items & other.items:
                    found.append(f"{one} and {other}")
        return found

    def of(self, pid: int) -> list[Seen]:
        return [seen for seen in self.seen if seen.pid == pid]


class LiveWorld(FaultyWorld):
    """A world whose backend listens on loopback and whose workers are processes."""

    def serve(self, company: Company, *, database_url: str = "", batch_size: int = 1, max_in_flight: int = 3) -> None:
        """Starts a new world, with Usher's database at that URL (by default a new SQLite file)."""
        self.begin(company, batch_size=batch_size, max_in_flight=max_in_flight)
        self.time.sleep((datetime.now(UTC) - NOON).total_seconds())
        if database_url:
            self.engine.dispose()
            self.engine = open_engine(database_url)
            upgrade(self.engine, STORE_MIGRATIONS)
        self.front = Front(self.app)
        self._server = make_server("127.0.0.1", 0, self.front, threaded=True)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.workers: list[Forked] = []

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self._server.shutdown()
        super().close()

    def write_settings(self, **sync: Any) -> Path:
        with (self.folder / "company.jsonl").open("w") as file:
            for record in self.company.records.values():
                file.write(json.dumps(object_from_record(record)) + "\n")
        settings = {
            "database_url": self.engine.url.render_as_string(hide_password=False),
            "backend": {
                "base_url": f"http://127.0.0.1:{self._server.server_port}",
                "api_key": self.api_key,
                "auth_token": self.auth_token,
                "batch_size": self.batch_size,
                "max_in_flight": self.max_in_flight,
                "timeout": 10,
            },
            "directory": {"sources": [{"type": "file", "path": str(self.folder / "company.jsonl")}]},
            "sync": {
                "schedule": "",
                "verify_schedule": "",
                "limits": {"delete_count": 1_000_000, "delete_percent": 100},
                **sync,
            },
            "worker": {"poll": 0.2, "stop_timeout": 10},
        }
        path = self.folder / "usher.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    def start_worker(self) -> Forked:
        number = len(self.workers)
        log = self.folder / f"worker-{number}.log"
        arguments = ("worker", "--config", str(self.write_settings()))
        worker = Forked(command, *arguments, folder=self.folder, out=log, err=log)
        self.workers.append(worker)
        return worker

    def log_of(self, worker: Forked) -> str:
        return (self.folder / f"worker-{self.workers.index(worker)}.log").read_text("utf-8", "replace")

    def enqueue(self, **request: Any) -> Run:
        self.time.sleep(1)
        run, _created = self.runs.enqueue(RunRequest(trigger="resync", **{"allow_deletes": True, **request}))
        return run

    def ended(self, run: Run, within: float = 60) -> Run:
        """The run when it has come to an end."""
        until(lambda: self.runs.get(run.run_id).finished_at, within)
        return self.runs.get(run.run_id)

    def has_seen_more_than(self, number: int) -> bool:
        """Whether the backend has seen more writes."""
        return len(self.front.seen) > number

    def ask_database(self, sql: str) -> Sequence[Any]:
        with reading(self.engine) as connection:
            return connection.execute(text(sql)).all()


def until(there: Callable[[], Any], within: float = 60) -> Any:
    """Waits until ``there`` returns a true value, and returns it."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found = there()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {within} seconds")


def live_world(folder: Path) -> Iterator[LiveWorld]:
    """For fixtures."""
    world = LiveWorld(folder)
    yield world
    world.close()
