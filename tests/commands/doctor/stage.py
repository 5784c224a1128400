"""A whole installation on loopback, into which faults are planted: servers that run once, and a folder for each fault.

The backend and the services answer over real HTTP, from this process. What else a fault needs (a small disk, another
web server, a proxy) is real as well.
"""

import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import requests
import yaml
from sqlalchemy import make_url
from werkzeug.serving import WSGIRequestHandler, make_server

from app.backend.app import create_backend
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.commands.bootstrap.service import service_app
from app.contract.operations import by_name
from app.directory.configured import sources_from_settings
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.foundation.database.migrations import upgrade
from app.settings import load_settings
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import RunRequest, RunStatus
from tests.foundation.outbound.servers import Answering, Authority, web_server
from tests.tables import copy_migrated

ASK, RULE = "ask-me-for-tests", "rule-me-for-tests"

PEOPLE = [
    {"kind": "organization", "organizationId": "acme", "organizationName": "Acme"},
    *({"kind": "user", "userId": f"u{n}", "name": "U", "email": f"u{n}@acme.example"} for n in range(4)),
    *({"kind": "membership", "organizationId": "acme", "userId": f"u{n}"} for n in range(4)),
]


def lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@contextlib.contextmanager
def served(app: Any, *, clock_off: timedelta = timedelta()) -> Iterator[str]:
    """An application at its address, with a clock that may be wrong."""

    class Handler(WSGIRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return format_datetime(datetime.now(UTC) + clock_off, usegmt=True)

        def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Logs nothing."""

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Stage:
    """An installation for one fault. The data file contains ``words`` in angle brackets."""

    folder: Path
    settings: dict[str, Any]
    words: dict[str, str]
    call_backend: Any
    backend: Any
    cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def filled(self, value: Any) -> Any:
        """The value with its words replaced."""
        if isinstance(value, str):
            for name, word in self.words.items():
                value = value.replace(f"<{name}>", word)
            return value
        if isinstance(value, list):
            return [self.filled(part) for part in value]
        if isinstance(value, dict):
            return {key: self.filled(part) for key, part in value.items()}
        return value

    def plant(self, fault: Mapping[str, Any]) -> None:
        """Prepares a fault, except for its command."""
        self.words |= {"folder": str(self.folder)}
        for step in fault.get("prepare", []):
            getattr(self, step)()
        for key, value in self.filled(fault.get("settings", {})).items():
            *sections, name = key.split(".")
            inner = self.settings
            for section in sections:
                inner = inner.setdefault(section, {})
            if value is None:
                inner.pop(name, None)
            else:
                inner[name] = value
        (self.folder / "usher.yaml").write_text(yaml.safe_dump(self.settings) + self.filled(fault.get("text", "")))
        for name, content in self.filled(fault.get("files", {})).items():
            (self.folder / name).write_text(content)
        registered = {"url": "<service>/permissions/check", "token": ASK, "in_use": True}
        self.register(**self.filled({**registered, **fault.get("registered", {})}))

    def register(self, url: str, token: str, *, in_use: bool) -> None:
        self.call_backend(
            "update_permission_provider_config",
            usePermissionProvider=in_use,
            permissionProviderConfig={"permissionProviderUrl": url, "authToken": token},
        )

    # What a fault may ask for by name.

    def truncated_gzip(self) -> None:
        whole = gzip.compress(os.urandom(20_000))
        (self.folder / "people.jsonl.gz").write_bytes(whole[: len(whole) // 2])

    def directory_as_source(self) -> None:
        (self.folder / "export.jsonl").mkdir()

    def unreadable_source(self) -> None:
        # Root may read whatever has a mode; nobody follows a link to itself.
        (self.folder / "loop.jsonl").symlink_to("loop.jsonl")

    def new_database(self) -> None:
        (self.folder / "usher.db").unlink()

    def empty_folder(self) -> None:
        (self.folder / "some.db").mkdir()

    def small_disk(self) -> None:
        place = self.folder / "disk"
        place.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=False)
        if mounted.returncode:
            raise CannotPlantError("nothing can be mounted here")
        self.cleanup.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True)
        shutil.copy(self.folder / "usher.db", place / "usher.db")

    def full_disk(self) -> None:
        self.small_disk()
        ballast = self.folder / "disk" / "ballast"
        with ballast.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
            while opened.write(bytes(4096)):
                pass

    def read_only_disk(self) -> None:
        self.small_disk()
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder / "disk")], check=True)

    def backends_sqlite(self) -> None:
        shutil.copy(self.words["empty backend"], self.folder / "theirs.db")

    def ushers_postgres(self) -> None:
        engine = open_engine(self.words["postgres"])
        upgrade(engine, STORE_MIGRATIONS)
        engine.dispose()

    def backends_postgres(self) -> None:
        engine = open_engine(self.words["postgres"])
        upgrade(engine, BACKEND_MIGRATIONS)
        engine.dispose()

    def read_only_role(self) -> None:
        self.ushers_postgres()
        name = f"usher_reader_{os.getpid()}"
        owner = open_engine(self.words["postgres"])
        with owner.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN")
            connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA public TO {name}")
            connection.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
        url = make_url(self.words["postgres"]).set(username=name)
        self.words["postgres reader"] = url.render_as_string(hide_password=False)

        def remove() -> None:
            with owner.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"DROP OWNED BY {name}")
                connection.exec_driver_sql(f"DROP ROLE {name}")
            owner.dispose()

        self.cleanup.callback(remove)

    def refusing_backend(self) -> None:
        """A backend that refuses every organization."""
        refused = {"error": {"status": "INVALID_ARGUMENT", "message": "organizationName: is taken"}}

        def app(environ: Any, start_response: Any) -> Any:
            adds = environ["PATH_INFO"].endswith(("/organizations/add", "/organizations/update"))
            if adds:
                start_response("400 Bad Request", [("Content-Type", "application/json")])
                return [json.dumps(refused).encode()]
            return self.backend(environ, start_response)

        self.words["refusing backend"] = self.cleanup.enter_context(served(app))

    def taken_port(self) -> None:
        listener = self.cleanup.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.words["taken"] = str(listener.getsockname()[1])


class CannotPlantError(Exception):
    """The fault cannot be planted on this machine. The text is the reason."""


@dataclass
class Servers:
    """The servers that all faults share: their ``words``, and credentials in the backend."""

    words: dict[str, str]
    api_key: str
    auth_token: str
    database: Path
    """Usher's own database, healthy and in use."""
    backend: Any

    def call_backend(self, operation: str, **data: Any) -> None:
        headers = {"x-service-api-key": self.api_key, "x-service-auth-token": self.auth_token}
        url = self.words["backend"] + by_name(operation).path
        answer = requests.post(url, json={"data": data}, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def running_servers(folder: Path) -> Iterator[Servers]:
    """The backend, two services, and other servers."""
    authority = Authority(folder)
    with contextlib.ExitStack() as stack:
        for name, migrations in (("usher", STORE_MIGRATIONS), ("empty", BACKEND_MIGRATIONS)):
            copy_migrated(folder / f"{name}.db", migrations)
        shutil.copy(folder / "empty.db", folder / "backend.db")
        given = SelfHostedBackendSettings.model_validate(
            {
                "database_url": f"sqlite:///{folder}/backend.db",
                "secret_key": "a secret key for tests only",
                "allow_private_urls": True,
            }
        )
        engine = open_engine(given.database_url)
        stack.callback(engine.dispose)
        backend = create_backend(given, engine, utc_now, Random(4), open_session(allow_private=True))
        words = {"backend": stack.enter_context(served(backend)), "empty backend": str(folder / "empty.db")}
        words["late backend"] = stack.enter_context(served(backend, clock_off=timedelta(seconds=600)))
        words["early backend"] = stack.enter_context(served(backend, clock_off=timedelta(seconds=-60)))
        api_key, auth_token = _credentials(words["backend"])
        (folder / "people.jsonl").write_bytes(lines(PEOPLE))
        for name, token in (("service", ASK), ("other service", "ask-somebody-else")):
            words[name] = stack.enter_context(_service(folder, token))
        html = {"Content-Type": "text/html"}
        for name, code in (("404", 404), ("200", 200), ("502", 502), ("503", 503)):
            server = Answering(code=code, body=b"<html>", headers=html)
            words[name] = stack.enter_context(web_server(server)).url
        words["tls"] = stack.enter_context(web_server(Answering(), authority.server_context())).url
        with socket.create_server(("127.0.0.1", 0)) as free:
            words["closed"] = f"127.0.0.1:{free.getsockname()[1]}"
        words["key"], words["token"] = api_key, auth_token
        for name in ("backend", "service", "tls"):
            words[f"{name} place"] = words[name].partition("://")[2]
        yield Servers(words, api_key, auth_token, folder / "usher.db", backend)


@contextlib.contextmanager
def _service(folder: Path, token: str) -> Iterator[str]:
    values = {
        "database_url": f"sqlite:///{folder}/usher.db",
        "provider.auth_tokens": [token],
        "directory.sources": [{"type": "file", "path": str(folder / "people.jsonl"), "name": "people"}],
    }
    settings = load_settings(Path("/dev/null"), environment={}, command_line=values).settings
    engine = open_engine(settings.database_url)
    if token == ASK:
        read_directory(engine, sources_from_settings(settings.directory), clock=utc_now)
        runs = Runs(engine, utc_now, Random(1))
        run, _ = runs.enqueue(RunRequest(trigger="schedule"))
        runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=utc_now())
        runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING)
        runs.move(run.run_id, RunStatus.PLANNING, RunStatus.DONE, finished_at=utc_now())
        # Closing the last connection writes everything into one file, which is copied for each fault.
        engine.dispose()
    with served(service_app(settings, engine, clock=utc_now, new_id=lambda: "id")) as url:
        yield url
    engine.dispose()


def _credentials(url: str) -> tuple[str, str]:
    def ask(operation: str, headers: dict[str, str], **data: Any) -> Any:
        answer = requests.post(url + by_name(operation).path, json={"data": data}, headers=headers, timeout=30)
        return answer.json()["result"]["data"]

    workspace = ask("create_workspace", {}, ownerEmail="owner@acme.example")
    names = ("x-service-workspace-id", "x-service-workspace-auth-token")
    headers = dict(zip(names, (workspace["id"], workspace["authToken"]), strict=True))
    api_key = next(iter(workspace["apiKeyList"]))
    return api_key, ask("get_auth_tokens", headers, apiKey=api_key)["authTokens"][0]["token"]
