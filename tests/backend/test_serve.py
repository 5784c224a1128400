"""The backend with gunicorn, over HTTP."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from app.backend.schema import METADATA
from app.backend.serve import serve_backend
from app.backend.settings import SelfHostedBackendSettings
from app.foundation.database.engine import open_engine
from app.http.gunicorn import ServerOptions
from tests.forking import Forked
from tests.ports import free_port
from tests.tables import make_tables

pytestmark = pytest.mark.e2e


def serve(settings: dict[str, object], port: int) -> None:
    """The entry point of the server process."""
    options = ServerOptions(port=port, workers=2, threads=4, max_requests=0)
    serve_backend(SelfHostedBackendSettings.model_validate(settings), options)


class Server:
    """A backend in separate processes."""

    def __init__(self, settings: dict[str, object], folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._errors = folder / f"{port}.err"
        self.process = Forked(serve, settings, port, folder=folder, out=folder / f"{port}.out", err=self._errors)

    def wait(self) -> None:
        for _ in range(800):  # a busy machine takes its time
            try:
                if requests.get(f"{self.url}/healthz", timeout=5).status_code == 200:
                    return
            except requests.RequestException:
                time.sleep(0.05)
        raise AssertionError("the server did not come up")

    def stop(self) -> tuple[int, str]:
        self.process.terminate()
        return self.process.wait(30), self._errors.read_text()


@pytest.fixture
def settings(database_url: str) -> dict[str, object]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    engine.dispose()
    return {"database_url": database_url, "secret_key": "a secret key for tests only"}


@pytest.fixture
def server(settings: dict[str, object], tmp_path: Path) -> Iterator[Server]:
    server = Server(settings, tmp_path)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def post(server: Server, path: str, data: object, headers: dict[str, str] | None = None) -> requests.Response:
    return requests.post(f"{server.url}{path}", json={"data": data}, headers=headers, timeout=30)


def tenant_headers(server: Server) -> dict[str, str]:
    workspace = post(server, "/v2/workspace/create", {"ownerEmail": "ada@acme.example"}).json()["result"]["data"]
    key = next(iter(workspace["apiKeyList"]))
    owner = {
        "x-service-workspace-id": workspace["id"],
        "x-service-workspace-auth-token": workspace["authToken"],
    }
    tokens = post(server, "/v2/workspace/authtokens/get", {"apiKey": key}, owner).json()["result"]["data"]
    return {"x-service-api-key": key, "x-service-auth-token": tokens["authTokens"][0]["token"]}


@pytest.mark.extended
def test_accepted_writes_are_durable(settings: dict[str, object], server: Server, tmp_path: Path) -> None:
    headers = tenant_headers(server)
    answer = post(server, "/v1/users/add", {"organizationId": "acme", "users": [{"userId": "ada"}]}, headers)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]
    assert server.stop()[0] == 0

    again = Server(settings, tmp_path)
    try:
        again.wait()
        users = post(again, "/v2/users/get", {"organizationId": "acme"}, headers).json()["result"]["data"]
    finally:
        again.stop()
    assert [user["userId"] for user in users] == ["ada"]


def test_document_is_migrated_by_the_server(server: Server) -> None:
    headers = tenant_headers(server)
    scope = {"organizationId": "acme"}
    documents = scope | {"documents": [{"documentId": "old"}], "createOrganization": True}
    post(server, "/v2/organizations/documents/add", documents, headers)
    ids = scope | {"documentId": "old", "newDocumentId": "new"}
    started = post(server, "/v2/organizations/documents/migrate", ids, headers).json()["result"]["data"]
    for _ in range(400):
        state = post(server, "/v2/organizations/documents/migrate/status", scope | started, headers).json()
        if state["result"]["data"]["status"] == "completed":
            return
        time.sleep(0.05)
    raise AssertionError(state)


def test_errors_and_openapi_document(server: Server) -> None:
    answer = requests.get(f"{server.url}/v1/users/add", timeout=5)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    answer = requests.post(f"{server.url}/nowhere", timeout=5)
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")
    document = requests.get(f"{server.url}/openapi.json", timeout=5).json()
    assert document["openapi"].startswith("3.")
    assert "/v1/users/add" in document["paths"]
    assert "/v2/users/add" in document["paths"]


def test_wrong_secret_key_is_reported_in_one_line(settings: dict[str, object], server: Server, tmp_path: Path) -> None:
    tenant_headers(server)
    other = Server(settings | {"secret_key": "another key than before"}, tmp_path)
    # It ends by itself; there is nothing to stop.
    other.process.wait(timeout=30)
    code, errors = other.stop()

    assert code != 0
    assert "self_hosted_backend.secret_key is not the key" in errors
    assert "Traceback" not in errors
    assert "another key than before" not in errors
