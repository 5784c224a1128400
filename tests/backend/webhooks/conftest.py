"""Receivers on loopback, and the workers that deliver to them."""

import random
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from app.backend.ids import new_id
from app.backend.security.vault import open_vault
from app.backend.webhooks.delivery import DeliveryWorker
from app.backend.webhooks.queues import claim
from app.backend.webhooks.sender import open_sender
from app.backend.webhooks.tables import WEBHOOK_DELIVERY
from tests.backend.conftest import BackendWorld, Caller, WorldMaker
from tests.ports import free_port
from tests.worlds.clock import SimulatedTime

NEVER = Event()


def take_turn(worker: DeliveryWorker) -> bool:
    """Delivers one due queue. Returns False if there is none."""
    queue = claim(worker.engine, new_id(worker.entropy), worker._now())
    if queue is not None:
        worker._work(queue, NEVER)
    return queue is not None


DOCUMENT = {"organizationId": "acme", "documentId": "roadmap"}
ADA = {"userId": "ada", "name": "Ada", "email": "ada@acme.example"}
BOB = {"userId": "bob", "name": "Bob", "email": "bob@acme.example"}


@dataclass(frozen=True)
class Received:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    """A server that stores requests and responds with `code`."""

    def __init__(self) -> None:
        self.code = 200
        self.answer_headers: dict[str, str] = {}
        self.got: list[Received] = []
        self.on_request: Callable[[Received], None] = lambda _: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                received = Received(self.path, headers, body)
                receiver.got.append(received)
                receiver.on_request(received)
                self.send_response(receiver.code)
                for name, value in receiver.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def wrap(self, context: ssl.SSLContext) -> None:
        """Switches to TLS."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_port}"

    @property
    def ids(self) -> list[str]:
        return [received.message_id for received in self.got]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def make_receiver() -> Iterator[Callable[[], Receiver]]:
    made: list[Receiver] = []

    def make() -> Receiver:
        made.append(Receiver())
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()


@pytest.fixture
def receiver(make_receiver: Callable[[], Receiver]) -> Receiver:
    return make_receiver()


class Post:
    """A backend with a customer, and workers under the control of the test."""

    def __init__(self, world: BackendWorld) -> None:
        self.world = world
        self.clock: SimulatedTime = world.clock
        self.tenant = world.tenant()
        self.naps: list[float] = []

    def worker(self, **changes: Any) -> DeliveryWorker:
        parts: dict[str, Any] = {
            "engine": self.world.engine,
            "vault": open_vault(self.world.settings, random.SystemRandom()),
            "clock": self.clock,
            "sleep": self._nap,
            "entropy": random.SystemRandom(),
            "send": open_sender(allow_private=True, timeout=5),
        }
        return DeliveryWorker(**(parts | changes))

    def _nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.clock.move_on(seconds=seconds)

    def work(self, **changes: Any) -> None:
        """Delivers everything that is due."""
        worker = self.worker(**changes)
        while take_turn(worker):
            pass

    def work_for(self, *, hours: float, step: float = 60) -> None:
        """Lets time pass, and delivers everything that is due every `step` seconds."""
        worker = self.worker()
        end = self.clock.now.timestamp() + hours * 3600
        while self.clock.now.timestamp() < end:
            while take_turn(worker):
                pass
            self.clock.move_on(seconds=step)

    def enable(self, **config: Any) -> None:
        self.tenant("update_advanced_webhook_config", isEnabled=True, **config)

    def endpoint(self, url: str, **fields: Any) -> str:
        created: str = self.tenant("create_advanced_webhook_endpoint", url=url, **fields)["id"]
        return created

    def secret(self, endpoint_id: str) -> str:
        found: str = self.tenant("get_advanced_webhook_endpoint_secret", endpointId=endpoint_id)["secret"]
        return found

    def begin_thread(self, annotation_id: str, caller: Caller | None = None, **fields: Any) -> None:
        """Two events: `comment_annotation.add` for the first comment and `comment.add` for the second."""
        annotation = {
            "annotationId": annotation_id,
            "commentData": [
                {"commentId": f"{annotation_id}-{number}", "commentText": "Why so late?", "from": ADA}
                for number in range(2)
            ],
        }
        there = DOCUMENT | {key: fields.pop(key) for key in ("organizationId", "documentId") if key in fields}
        results = (caller or self.tenant)("add_comment_annotations", **there, commentAnnotations=[annotation | fields])
        assert results[annotation_id]["success"], results

    def states(self) -> list[tuple[str, int]]:
        """State and number of attempts of each delivery."""
        with self.world.engine.connect() as connection:
            rows = connection.execute(
                select(WEBHOOK_DELIVERY.c.state, WEBHOOK_DELIVERY.c.attempts).order_by(
                    WEBHOOK_DELIVERY.c.target, WEBHOOK_DELIVERY.c.number
                )
            )
            return [(row.state, row.attempts) for row in rows]

    def attempts(self) -> int:
        """The number of attempts of all deliveries."""
        return sum(attempts for _, attempts in self.states())


@pytest.fixture
def post(make_world: WorldMaker) -> Post:
    world = make_world(allow_private_urls=True)
    made = Post(world)
    made.tenant("add_users", **DOCUMENT, users=[ADA, BOB])
    return made


@pytest.fixture
def closed_port() -> str:
    """A URL without a server."""
    return f"http://127.0.0.1:{free_port()}/"
