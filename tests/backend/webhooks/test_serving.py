"""Delivery of webhooks by several processes that start and stop."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import requests
from sqlalchemy import select

from app.backend.schema import METADATA
from app.backend.webhooks.tables import WEBHOOK_DELIVERY, WEBHOOK_QUEUE
from app.foundation.database.engine import open_engine, reading
from tests.backend.test_serve import Server, tenant_headers
from tests.backend.test_serve import post as call
from tests.tables import make_tables

from .conftest import ADA, DOCUMENT, Receiver

pytestmark = pytest.mark.e2e


@pytest.fixture
def settings(database_url: str) -> dict[str, object]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    engine.dispose()
    return {
        "database_url": database_url,
        "secret_key": "a secret key for tests only",
        "allow_private_urls": True,
    }


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[dict[str, object]], Server]]:
    servers: list[Server] = []

    def make(settings: dict[str, object]) -> Server:
        servers.append(Server(settings, tmp_path))
        servers[-1].wait()
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


class Customer:
    """A customer with an endpoint."""

    def __init__(self, server: Server, url: str) -> None:
        self.server = server
        self.headers = tenant_headers(server)
        self._call("/v2/workspace/advancedwebhookconfig/update", {"isEnabled": True})
        self.add_endpoint(url)
        self._call("/v2/users/add", DOCUMENT | {"users": [ADA]})

    def add_endpoint(self, url: str) -> None:
        self._call("/v2/workspace/advancedwebhook/endpoints/create", {"url": url})

    def begin_thread(self) -> None:
        annotation = {"commentData": [{"commentText": "Why?", "from": ADA}]}
        self._call("/v2/commentannotations/add", DOCUMENT | {"commentAnnotations": [annotation]})

    def _call(self, path: str, data: object) -> requests.Response:
        response = call(self.server, path, data, self.headers)
        assert response.status_code == 200, response.text
        return response


def states(settings: dict[str, object]) -> list[str]:
    engine = open_engine(str(settings["database_url"]))
    with reading(engine) as connection:
        found = list(connection.scalars(select(WEBHOOK_DELIVERY.c.state)))
    engine.dispose()
    return found


def is_idle(settings: dict[str, object]) -> bool:
    """Whether everything was delivered and no queue is leased."""
    engine = open_engine(str(settings["database_url"]))
    with reading(engine) as connection:
        held = list(connection.scalars(select(WEBHOOK_QUEUE.c.holder).where(WEBHOOK_QUEUE.c.due_at.is_not(None))))
        held += connection.scalars(select(WEBHOOK_QUEUE.c.holder).where(WEBHOOK_QUEUE.c.holder != ""))
    engine.dispose()
    return held == []


def wait_for(met: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_processes_of_a_server_send_each_message_once(
    settings: dict[str, object], serve: Callable[[dict[str, object]], Server], receiver: Receiver
) -> None:
    server = serve(settings)
    customer = Customer(server, receiver.url)
    for number in range(2):
        customer.add_endpoint(f"{receiver.url}/{number}")
    for _ in range(5):
        customer.begin_thread()
    # A process that is killed earlier keeps the leases of its queues.
    wait_for(lambda: is_idle(settings))
    assert len(sent(receiver)) == 15

    first, _ = psutil.Process(server.process.pid).children()
    os.kill(first.pid, signal.SIGKILL)
    customer.begin_thread()

    wait_for(lambda: states(settings) == ["delivered"] * 18)
    assert len(sent(receiver)) == 18


def sent(receiver: Receiver) -> set[tuple[str, str]]:
    """The path and id of each request, of which no two are equal."""
    found = {(received.path, received.message_id) for received in receiver.got}
    assert len(found) == len(receiver.got)
    return found


@pytest.mark.extended
def test_a_stopped_server_finishes_its_request(
    settings: dict[str, object], serve: Callable[[dict[str, object]], Server], receiver: Receiver
) -> None:
    server = serve(settings)
    customer = Customer(server, receiver.url)
    arrived, answer = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        arrived.set()
        answer.wait(30)

    receiver.on_request = hold
    customer.begin_thread()
    assert arrived.wait(30)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(1)
    answer.set()
    code, errors = server.stop()

    assert code == 0
    assert "Traceback" not in errors
    assert states(settings) == ["delivered"]
