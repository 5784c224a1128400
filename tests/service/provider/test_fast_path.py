"""Calls on the fast path are answered, counted and logged as by the route."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from flask import Flask, request_started
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from app.access.index.index import AccessIndex, Condition
from app.commands.bootstrap.service import service_app
from app.foundation.database.engine import open_engine
from app.monitoring.metrics import Metrics
from app.service.provider.settings import MIN_REVISION_HEADER, ProviderSettings
from app.settings import Settings
from tests.worlds.access_model import StoredDirectory, records_from_wire

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
URL = "/permissions/check"
TOKEN = {"Authorization": "Bearer ask"}
Answer = tuple[int, dict[str, str], bytes]
"""The status code, headers and body of a response."""
DIRECTORY: dict[str, Any] = {
    "organizations": [{"organizationId": "acme", "organizationName": "Acme"}],
    "users": [{"userId": user, "name": user, "email": f"{user}@acme.example"} for user in ("ada", "bob")],
    "memberships": [{"organizationId": "acme", "userId": "ada"}],
    "documents": [{"organizationId": "acme", "documentId": "roadmap", "documentName": "Roadmap"}],
}


def question(user: str, **resource: Any) -> dict[str, Any]:
    return {"userId": user, "resource": {"type": "document", "id": "roadmap", "organizationId": "acme", **resource}}


BODY = orjson.dumps({"data": {"requests": [question("ada"), question("bob"), question("ada", type="x"), 7]}})


@contextmanager
def seen_by_flask(app: Flask) -> Iterator[list[str]]:
    """The paths of the requests that Flask gets."""
    paths: list[str] = []

    def note(_sender: Flask, **_: object) -> None:
        from flask import request

        paths.append(request.path)

    with request_started.connected_to(note, app):
        yield paths


class Service:
    """The service with an index."""

    def __init__(self, engine: Engine, folder: Path, **provider: Any) -> None:
        self.metrics = Metrics()
        self.index = AccessIndex(engine, folder, clock=lambda: NOW, uptime=lambda: 0.0)
        self.index.update()
        settings = Settings(provider=ProviderSettings.model_validate({"auth_tokens": ["ask"], **provider}))
        self.app = service_app(
            settings, engine, clock=lambda: NOW, new_id=lambda: "made", index=self.index, metrics=self.metrics
        )

    def call(self, body: bytes = BODY, *, by_route: bool = False, headers: dict[str, str] | None = None) -> Answer:
        headers = {"Content-Type": "application/json", **TOKEN, **(headers or {})}
        if by_route:
            headers[MIN_REVISION_HEADER] = "0"
        with self.app.test_client().post(URL, data=body, headers=headers) as response:
            return response.status_code, dict(response.headers), response.data

    def counted(self, name: str) -> dict[str, float]:
        """The values of a metric by its labels."""
        text = self.metrics.render(shared=False)[0].decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(name)]
        return {labels: float(value) for labels, value in lines if float(value)}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    StoredDirectory(engine).write(records_from_wire(DIRECTORY))
    yield engine
    engine.dispose()


@pytest.fixture
def service(engine: Engine, tmp_path: Path) -> Service:
    return Service(engine, tmp_path / "index")


def test_a_fast_call_does_not_reach_flask(service: Service) -> None:
    with seen_by_flask(service.app) as paths:
        status, _, body = service.call()
        assert (status, paths) == (200, [])
        assert [result["hasAccess"] for result in orjson.loads(body)["data"]] == [True, False, False, False]
        service.call(by_route=True)
        assert paths == [URL]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (BODY, {}, 200),
        (BODY, {"x-request-id": "call-1"}, 200),
        (BODY, {"x-request-id": "call 1"}, 200),
        (BODY, {"Content-Type": "application/json; charset=utf-8"}, 200),
        (BODY, {"Content-Type": "text/plain"}, 415),
        (BODY, {"Content-Encoding": "gzip"}, 415),
        (BODY, {"Authorization": "Bearer other"}, 401),
        (BODY, {"Authorization": "Basic ask"}, 401),
        (b"", {}, 400),
        (b"{", {}, 400),
        (b'{"data": {"requests": 1}}', {}, 400),
        (b"[" + b"1," * (4 << 20) + b"1]", {}, 413),
        (b"[" + b"{}," * (1 << 20) + b"1]", {}, 413),
    ],
)
def test_both_paths_answer_alike(service: Service, body: bytes, headers: dict[str, str], status: int) -> None:
    answer = service.call(body, headers=headers)
    assert answer[0] == status
    assert answer == service.call(body, headers=headers, by_route=True)


@pytest.mark.parametrize("name", ["usher_http_requests_total", "usher_decisions_total", "usher_denials_total"])
def test_both_paths_count_alike(service: Service, name: str) -> None:
    service.call()
    before = service.counted(name)
    assert before
    service.call(by_route=True)
    assert service.counted(name) == {labels: 2 * value for labels, value in before.items()}
    assert set(service.counted("usher_http_request_seconds_count").values()) == {2}


def test_an_anonymous_call(engine: Engine, tmp_path: Path) -> None:
    service = Service(engine, tmp_path / "index", auth_tokens=[], allow_anonymous=True)
    assert service.call()[0] == 200
    assert service.call(BODY + b" " * (64 << 10))[0] == 413


def test_a_call_of_a_browser_reaches_flask(engine: Engine, tmp_path: Path) -> None:
    service = Service(engine, tmp_path / "index", browser_origins=["http://localhost:3000"])
    assert service.call()[1]["Vary"] == "Origin"


@pytest.mark.one_database
def test_an_error_is_answered_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def away(*_: object) -> None:
        calls.append(1)
        raise OperationalError("SELECT 1", {}, Exception("no response"))

    monkeypatch.setattr("app.access.index.index.SqlView", away)
    monkeypatch.setattr(service.index, "_condition", Condition.BEHIND)
    status, headers, body = service.call()
    assert (status, headers["Retry-After"], len(calls)) == (503, "2", 1)
    assert b"cannot reach its database" in body


def test_the_decision_log(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    service = Service(engine, tmp_path / "index", decision_log={"path": str(path)})
    with seen_by_flask(service.app) as paths:
        service.call(headers={"x-request-id": "call-1"})
        assert not paths
    log = service.app.wsgi_app._parts.log  # type: ignore[attr-defined] # of the middleware
    assert log.flush()
    assert [orjson.loads(line)["requestId"] for line in path.read_bytes().splitlines()] == ["call-1"] * 2
