"""A server sends the webhooks of a killed one."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from standardwebhooks import Webhook

from tests.e2e.conftest import Usher, alive, children_of, serving, wait_for
from tests.ports import HOST, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.xdist_group("e2e")]

DOCUMENT = {"organizationId": "acme", "documentId": "roadmap"}
ADA = {"userId": "ada", "name": "Ada", "email": "ada@acme.example"}


@pytest.fixture
def got() -> list[tuple[dict[str, str], bytes]]:
    """Headers and body of each request to the receiver."""
    return []


@pytest.fixture
def receiver_url(got: list[tuple[dict[str, str], bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            got.append((headers, self.rfile.read(int(headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()

    yield f"http://{HOST}:{server.server_port}/hook"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.extended
def test_server_sends_webhooks_of_a_killed_one(
    start: Callable[..., Usher], tmp_path: Path, receiver_url: str, got: list[tuple[dict[str, str], bytes]]
) -> None:

    def configure(webhook_threads: int) -> None:
        section = {
            "database_url": f"sqlite:///{tmp_path}/backend.db",
            "allow_private_urls": True,
            "webhook_threads": webhook_threads,
        }
        (tmp_path / "usher.yaml").write_text(yaml.safe_dump({"self_hosted_backend": section}))

    configure(0)
    assert start("backend", "upgrade", "--config", "usher.yaml", forked=True).process.wait(60) == 0
    port = free_port()
    url = f"http://{HOST}:{port}"
    server = start("backend", "serve", "--port", str(port), "--config", "usher.yaml")
    serving(server, url)

    def call(path: str, data: object, headers: dict[str, str]) -> Any:
        response = requests.post(f"{url}{path}", json={"data": data}, headers=headers, timeout=20)
        assert response.status_code == 200, response.text
        return response.json()["result"].get("data")

    made = call("/v2/workspace/create", {"ownerEmail": "ada@acme.test"}, {})
    owner = {"x-service-workspace-id": made["id"], "x-service-workspace-auth-token": made["authToken"]}
    key = next(iter(made["apiKeyList"]))
    token = call("/v2/workspace/authtokens/get", {"apiKey": key}, owner)["authTokens"][0]["token"]
    tenant = {"x-service-api-key": key, "x-service-auth-token": token}
    call("/v2/workspace/advancedwebhookconfig/update", {"isEnabled": True}, tenant)
    endpoint = call("/v2/workspace/advancedwebhook/endpoints/create", {"url": receiver_url}, tenant)["id"]
    secret = call("/v2/workspace/advancedwebhook/endpoints/secret/get", {"endpointId": endpoint}, tenant)["secret"]
    call("/v1/users/add", DOCUMENT | {"users": [ADA]}, tenant)
    for number in range(5):
        thread = {"annotationId": f"t{number}", "commentData": [{"commentText": "Why?", "from": ADA}]}
        call("/v2/commentannotations/add", DOCUMENT | {"commentAnnotations": [thread]}, tenant)
    processes = [server.process.pid, *children_of(server.process.pid)]
    for process in processes:
        os.kill(process, signal.SIGKILL)
    server.process.wait(20)
    wait_for("the server's end", lambda: alive(processes) == [])
    assert got == []

    configure(2)
    delivering = start("backend", "serve", "--port", str(port), "--config", "usher.yaml")
    wait_for("five messages", lambda: len(got) >= 5)
    assert delivering.end() == 0, delivering.stderr()
    assert "Traceback" not in delivering.stderr()

    output = [Webhook(secret).verify(body, headers) for headers, body in got]
    # In the order of the events, each once: one worker at a time sends to a receiver.
    assert [one["data"]["annotationId"] for one in output] == [f"t{number}" for number in range(5)]
    assert len({headers["webhook-id"] for headers, _ in got}) == 5
