"""A scripted backend on loopback, and a client with simulated time."""

import json
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.client.client import BackendClient
from app.client.records import CallRecord
from app.client.settings import BackendSettings
from tests.ports import free_port
from tests.worlds.clock import SimulatedTime

API_KEY = "key-of-acme-4711"
AUTH_TOKEN = "token-of-acme-0815"

Behaviour = Callable[["Handler"], None]


@dataclass
class Received:
    """A received request."""

    path: str
    headers: Mapping[str, str]
    body: object


class Handler(BaseHTTPRequestHandler):
    """Answers by the script."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # headers and body in one packet: two would wait for each other's acknowledgement
    server: "ScriptedServer"

    def handle(self) -> None:
        if self.server.resets_before_reading:
            self.server.resets_before_reading -= 1
            self.reset()
            return
        super().handle()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.append(Received(self.path, headers, json.loads(raw)))
        self.server.next_behaviour()(self)

    def answer(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_raw(self, raw: bytes) -> None:
        """Sends bytes that need not be HTTP, and hangs up."""
        self.wfile.write(raw)
        self.close_connection = True

    def reset(self) -> None:
        """Resets the connection."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature is the base class'
        """Quiet."""


class ScriptedServer(ThreadingHTTPServer):
    """Answers each request by the next step of its script. The last step is repeated forever."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: deque[Behaviour] = deque()
        self.received: list[Received] = []
        self.resets_before_reading = 0
        self.released = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_behaviour(self) -> Behaviour:
        with self._lock:
            return self.script.popleft() if len(self.script) > 1 else self.script[0]

    def will(self, *behaviours: Behaviour) -> None:
        self.script = deque(behaviours)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that hang up."""


def responds(code: int, value: object = None, *, raw: bytes | None = None, **headers: str) -> Behaviour:
    """Answers with JSON, or with ``raw``. Header names are written with underscores."""
    body = json.dumps(value).encode() if raw is None else raw
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return lambda handler: handler.answer(code, body, named)


def succeeds(data: object = None, message: str = "done", **more: object) -> Behaviour:
    return responds(200, {"result": {"status": "success", "message": message, "data": data, **more}})


def fails(code: int, status: str, message: str = "no", details: object = None, **headers: str) -> Behaviour:
    error = {"status": status, "message": message} | ({} if details is None else {"details": details})
    return responds(code, {"error": error}, raw=None, **headers)


@dataclass
class Watching:
    """An observer that keeps the records."""

    records: list[CallRecord] = field(default_factory=list)

    def call_ended(self, record: CallRecord) -> None:
        self.records.append(record)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as created:
        thread = threading.Thread(target=created.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield created
        created.released.set()
        created.shutdown()
        thread.join()


@pytest.fixture
def fake_time() -> SimulatedTime:
    return SimulatedTime()


@pytest.fixture
def watching() -> Watching:
    return Watching()


@pytest.fixture
def connect(fake_time: SimulatedTime, watching: Watching) -> Iterator[Callable[..., BackendClient]]:
    """Creates clients in simulated time. Settings are keywords, other arguments are in ``parts``."""
    created: list[BackendClient] = []

    def build(base_url: str, *, parts: Mapping[str, Any] | None = None, **settings: Any) -> BackendClient:
        values = {"api_key": API_KEY, "auth_token": AUTH_TOKEN, "timeout": 10, "max_in_flight": 4, **settings}
        times: dict[str, Any] = {"clock": fake_time, "sleep": fake_time.sleep, "monotonic": fake_time.monotonic}
        client = BackendClient(
            BackendSettings(base_url=base_url, **values),
            **{**times, "random": random.Random(7), "observer": watching.call_ended, **(parts or {})},
        )
        created.append(client)
        return client

    yield build
    for client in created:
        client.close()


@pytest.fixture
def client(server: ScriptedServer, connect: Callable[..., BackendClient]) -> BackendClient:
    return connect(server.url)


@pytest.fixture
def closed_port() -> int:
    """A port that refuses connections."""
    return free_port()


@pytest.fixture
def script() -> object:
    """The steps of scripts, for test modules."""

    class Words:
        responds = staticmethod(responds)
        succeeds = staticmethod(succeeds)
        fails = staticmethod(fails)

    return Words
