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
from app.backend.serve import deliver_webhooks
from app.backend.settings import SelfHostedBackendSettings
from app.backend.webhooks.tables import WEBHOOK_DELIVERY, WEBHOOK_QUEUE
from app.foundation.database.engine import open_engine, reading
from tests.backend.test_serve import Server, tenant_headers
from tests.backend.test_serve import post as call
from tests.forking import Forked
from tests.tables import make_tables

from .conftest import ADA, DOCUMENT, Receiver

pytestmark = pytest.mark.e2e


def deliver(settings: dict[str, object]) -> None:
    """The main function of a process that only delivers."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    print("ready", flush=True)
    deliver_webhooks(SelfHostedBackendSettings.model_validate(settings), 2, stop)


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
    """A customer with one endpoint."""

    def __init__(self, server: Server, url: str) -> None:
        self.server = server
        self.headers = tenant_headers(server)
        self._call("/v2/workspace/advancedwebhookconfig/update", {"isEnabled": True})
        self._call("/v2/workspace/advancedwebhook/endpoints/create", {"url": url})
        self._call("/v2/users/add", DOCUMENT | {"users": [ADA]})

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


def test_another_process_of_the_server_takes_over_the_delivery(
    settings: dict[str, object], serve: Callable[[dict[str, object]], Server], receiver: Receiver
) -> None:
    server = serve(settings)
    customer = Customer(server, receiver.url)
    customer.begin_thread()
    # A process that is killed earlier keeps the lease of the queue.
    wait_for(lambda: is_idle(settings))
    assert len(receiver.got) == 1

    workers = psutil.Process(server.process.pid).children()
    assert len(workers) == 2
    (leader,) = (
        worker for worker in workers if len(worker.threads()) == max(len(other.threads()) for other in workers)
    )
    os.kill(leader.pid, signal.SIGKILL)
    customer.begin_thread()

    wait_for(lambda: len(receiver.got) == 2)
    wait_for(lambda: states(settings) == ["delivered"] * 2)
    assert len(set(receiver.ids)) == 2


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


@pytest.mark.extended
def test_separate_processes_deliver_together(
    settings: dict[str, object], serve: Callable[[dict[str, object]], Server], receiver: Receiver, tmp_path: Path
) -> None:
    customer = Customer(serve(settings | {"webhook_threads": 0}), receiver.url)
    customer.begin_thread()
    time.sleep(1)
    assert receiver.got == []
    outputs = [tmp_path / f"{number}.out" for number in range(2)]
    delivering = [Forked(deliver, settings, folder=tmp_path, out=output, err=output) for output in outputs]
    wait_for(lambda: all(output.read_text() == "ready\n" for output in outputs))
    for _ in range(9):
        customer.begin_thread()
    wait_for(lambda: states(settings) == ["delivered"] * 10)
    for process, output in zip(delivering, outputs, strict=True):
        process.terminate()
        assert process.wait(30) == 0, output.read_text()
    assert len(receiver.ids) == len(set(receiver.ids)) == 10
