"""Fixtures: a backend with tables and a fixed clock, and callers with credentials."""

import itertools
import random
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import orjson
import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.backend.app import create_backend
from app.backend.schema import METADATA
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage.sqlite_statistics import ensure_statistics
from app.contract.operations import by_name
from app.foundation.database.engine import open_engine
from tests.conftest import DATABASES, empty_postgres_database
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime


class Caller:
    """Calls operations by name with one set of credentials."""

    def __init__(self, app: Flask, headers: dict[str, str], **ids: str) -> None:
        self.app = app
        self.headers = headers
        self.ids = ids

    def call(self, operation: str, **data: Any) -> TestResponse:
        """The response of `operation` (by its own path) to `data`."""
        return self.send(by_name(operation).path, orjson.dumps({"data": data}))

    def send(self, path: str, body: bytes, *, method: str = "POST", **headers: str) -> TestResponse:
        """The response to a raw body."""
        given = {"Content-Type": "application/json"} | self.headers | headers
        return self.app.test_client().open(path, method=method, data=body, headers=given)

    def __call__(self, operation: str, **data: Any) -> Any:
        """`result.data` of a call that must succeed."""
        response = self.call(operation, **data)
        assert response.status_code == 200, response.json
        body = response.json
        assert body is not None
        assert body["result"]["status"] == "success"
        assert isinstance(body["result"]["message"], str)
        return body["result"].get("data")

    def refused(self, operation: str, **data: Any) -> tuple[int, str, str]:
        """HTTP code, status and message of a call that must fail."""
        response = self.call(operation, **data)
        assert response.status_code != 200, response.json
        return (response.status_code, *error_of(response))


def error_of(response: TestResponse) -> tuple[str, str]:
    """Status and message of a failure envelope."""
    body = response.json
    assert body is not None
    assert set(body) == {"error"}
    return body["error"]["status"], body["error"]["message"]


class BackendWorld:
    """A backend and its callers."""

    def __init__(self, database_url: str, **settings: Any) -> None:
        self.clock = SimulatedTime()
        self.slept: list[float] = []
        self.settings = SelfHostedBackendSettings.model_validate(
            {
                "database_url": database_url,
                "secret_key": "a secret key for tests only",
                "workspaces_per_hour": 1000,
                "provider_pause": 0,
            }
            | settings
        )
        self.engine = open_engine(database_url)
        make_tables(self.engine, METADATA)
        ensure_statistics(self.engine, METADATA)
        self.app = self.another_node()
        self._numbers = itertools.count(1)

    def another_node(self, threads: int = 8) -> Flask:
        """A second application on the same database, for a process with these threads."""
        return create_backend(
            self.settings,
            self.engine,
            self.clock,
            random.SystemRandom(),
            open_session(allow_private=self.settings.allow_private_urls),
            sleep=self.slept.append,
            threads=threads,
        )

    @property
    def anonymous(self) -> Caller:
        return Caller(self.app, {})

    def workspace(self, email: str | None = None) -> Caller:
        """The owner of a new workspace."""
        wire = self.anonymous("create_workspace", ownerEmail=email or f"owner{next(self._numbers)}@acme.example")
        headers = {"x-service-workspace-id": wire["id"], "x-service-workspace-auth-token": wire["authToken"]}
        return Caller(self.app, headers, workspace=wire["id"], api_key=next(iter(wire["apiKeyList"])))

    def tenant(self) -> Caller:
        """A caller with the API key of a new workspace."""
        owner = self.workspace()
        tokens = owner("get_auth_tokens", apiKey=owner.ids["api_key"])
        headers = {
            "x-service-api-key": owner.ids["api_key"],
            "x-service-auth-token": tokens["authTokens"][0]["token"],
        }
        return Caller(self.app, headers, api_key=owner.ids["api_key"])

    def close(self) -> None:
        self.engine.dispose()


WorldMaker = Callable[..., BackendWorld]


@pytest.fixture
def make_world(database_url: str) -> Iterator[WorldMaker]:
    """A factory of backends with their own settings."""
    worlds: list[BackendWorld] = []

    def make(**settings: Any) -> BackendWorld:
        worlds.append(BackendWorld(database_url, **settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world: WorldMaker) -> BackendWorld:
    return make_world()


@pytest.fixture
def tenant(world: BackendWorld) -> Caller:
    return world.tenant()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackendWorld]:
    """One backend for all tests of a module, on SQLite: for behaviour that does not depend on the database."""
    world = BackendWorld(f"sqlite:///{tmp_path_factory.mktemp('standing')}/b.db")
    yield world
    world.close()


@pytest.fixture(scope="module", params=DATABASES)
def shared_world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackendWorld]:
    """One backend for all tests of a module, on each database: for tests with their own tenants."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('shared')}/b.db"
    else:
        url = request.getfixturevalue("postgres_standing_database")
        empty_postgres_database(url)
    world = BackendWorld(url)
    yield world
    world.close()


Answerer = Callable[[dict[str, Any], dict[str, str]], tuple[int, bytes]]


class ScriptedProvider:
    """A permission provider over HTTP with scripted responses. It records the requests."""

    def __init__(self, answer: Answerer) -> None:
        self.asked: list[list[dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                provider.asked.append(body["data"]["requests"])
                provider.headers.append(headers)
                code, raw = answer(body, headers)
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/permissions/check"
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def make_provider() -> Iterator[Callable[[Answerer], ScriptedProvider]]:
    providers: list[ScriptedProvider] = []

    def make(answer: Answerer) -> ScriptedProvider:
        providers.append(ScriptedProvider(answer))
        return providers[-1]

    yield make
    for provider in providers:
        provider.close()
