"""A healthy installation: a directory file, a synced database, and a backend that calls a service on loopback."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
import requests
from sqlalchemy import Engine
from werkzeug.serving import make_server

from app.backend.app import create_backend
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.commands.bootstrap.service import service_app
from app.commands.doctor.checks import run_checks
from app.commands.doctor.finding import Finding
from app.contract.operations import by_name
from app.directory.configured import sources_from_settings
from app.foundation.clock import utc_now
from app.foundation.configuration.loading import Configuration
from app.foundation.database.engine import open_engine
from app.settings import Settings, load_settings
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import RunRequest, RunStatus
from tests.tables import copy_migrated
from tests.wsgi import WsgiAdapter

PEOPLE = "".join(
    json.dumps(record) + "\n"
    for record in (
        {"kind": "organization", "organizationId": "acme", "organizationName": "Acme"},
        *({"kind": "user", "userId": f"u{n}", "name": "U", "email": f"u{n}@acme.example"} for n in range(150)),
    )
)


class DatingAdapter(WsgiAdapter):
    """The backend in this process, with the ``Date`` header of a server."""

    off = timedelta()

    def send(self, *arguments: Any, **keywords: Any) -> requests.Response:
        answer = super().send(*arguments, **keywords)
        answer.headers["Date"] = format_datetime(datetime.now(UTC) + self.off, usegmt=True)
        return answer


@dataclass
class Installation:
    """A healthy installation. Tests may change its ``settings`` before the checks."""

    folder: Path
    backend: Any
    adapter: DatingAdapter
    api_key: str
    auth_token: str
    service_url: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def people(self) -> Path:
        return self.folder / "people.jsonl"

    def configuration(self) -> Configuration[Settings]:
        return load_settings(Path("/dev/null"), environment={}, command_line=self.settings)

    def findings(self) -> list[Finding]:
        return list(run_checks(self.configuration(), clock=utc_now, transport=self.adapter))

    def of(self, name: str) -> list[Finding]:
        return [finding for finding in self.findings() if finding.name == name]

    def engine(self) -> Engine:
        return open_engine(self.configuration().settings.database_url)

    def register(self, url: str, token: str, *, in_use: bool = True) -> None:
        self.call_backend(
            "update_permission_provider_config",
            usePermissionProvider=in_use,
            permissionProviderConfig={"permissionProviderUrl": url, "authToken": token},
        )

    def call_backend(self, operation: str, **data: Any) -> None:
        headers = {"x-service-api-key": self.api_key, "x-service-auth-token": self.auth_token}
        answer = self.backend.test_client().post(by_name(operation).path, json={"data": data}, headers=headers)
        assert answer.status_code == 200, answer.data


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    copy_migrated(tmp_path / "usher.db", STORE_MIGRATIONS)
    copy_migrated(tmp_path / "backend.db", BACKEND_MIGRATIONS)
    given = SelfHostedBackendSettings.model_validate(
        {
            "database_url": f"sqlite:///{tmp_path}/backend.db",
            "secret_key": "a secret key for tests only",
            "allow_private_urls": True,
        }
    )
    backend_engine = open_engine(given.database_url)
    backend = create_backend(given, backend_engine, utc_now, Random(4), open_session(allow_private=True))
    api_key, token = _credentials(backend)
    found = Installation(tmp_path, backend, DatingAdapter(backend), api_key, token)
    found.people.write_text(PEOPLE)
    found.settings = {
        "database_url": f"sqlite:///{tmp_path}/usher.db",
        "provider.auth_tokens": ["ask-me-for-tests"],
        "admin.tokens": ["rule-me-for-tests"],
        "backend.api_key": api_key,
        "backend.auth_token": token,
        "directory.sources": [{"type": "file", "path": str(found.people), "name": "people"}],
        "notifications.webhook.url": "https://hooks.acme.example/usher",
        "notifications.webhook.secret": "whsec_QSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyAxMjM=",
    }
    settings = found.configuration().settings
    engine = found.engine()
    read_directory(engine, sources_from_settings(settings.directory), clock=utc_now)
    runs = Runs(engine, utc_now, Random(1))
    run, _ = runs.enqueue(RunRequest(trigger="schedule"))
    runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=utc_now())
    runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)
    runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=utc_now())
    server = make_server("127.0.0.1", 0, service_app(settings, engine, clock=utc_now, new_id=lambda: "id"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.service_url = f"http://127.0.0.1:{server.server_port}/permissions/check"
    found.register(found.service_url, "ask-me-for-tests")
    yield found
    server.shutdown()
    thread.join()
    server.server_close()
    engine.dispose()
    backend_engine.dispose()


def _credentials(backend: Any) -> tuple[str, str]:
    client = backend.test_client()

    def ask(operation: str, headers: dict[str, str], **data: Any) -> Any:
        answer = client.post(by_name(operation).path, json={"data": data}, headers=headers).json
        return answer["result"]["data"]

    workspace = ask("create_workspace", {}, ownerEmail="owner@acme.example")
    names = ("x-service-workspace-id", "x-service-workspace-auth-token")
    headers = dict(zip(names, (workspace["id"], workspace["authToken"]), strict=True))
    api_key = next(iter(workspace["apiKeyList"]))
    return api_key, ask("get_auth_tokens", headers, apiKey=api_key)["authTokens"][0]["token"]
