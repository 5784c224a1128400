"""The demo environment: what a demonstration needs on disk, and which processes it runs.

Everything lies in one folder: a copy of the sample directory that may be edited, a settings file that every command can
use, the databases, and a log for each process.
"""

import os
import secrets
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

import app
from app.commands.bootstrap.requirements import SetUpError
from app.foundation.files import make_folder, write_file
from app.foundation.processes import Children
from app.http.listening import BindError, bind, wait_until_ready
from app.settings import Settings, load_settings

SAMPLES = (
    Path(app.__file__).parent.parent / "config" / "demo" / "directory.yaml",
    Path(__file__).parent / "directory.yaml",
)
"""Where the sample directory lies: in a checkout, and in what was installed from it."""
HOST = "127.0.0.1"
OWNER = "owner@acme.example.com"
READY_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """One demonstration: its folder, its addresses, its token for operators."""

    folder: Path
    service_port: int
    backend_port: int

    @property
    def service_url(self) -> str:
        return f"http://{HOST}:{self.service_port}"

    @property
    def backend_url(self) -> str:
        return f"http://{HOST}:{self.backend_port}"

    @property
    def directory(self) -> Path:
        """The directory file, to be edited."""
        return self.folder / "directory.yaml"

    @property
    def settings_file(self) -> Path:
        return self.folder / "usher.yaml"

    @property
    def token_file(self) -> Path:
        """Holds the admin token, for curl."""
        return self.folder / "admin-token"

    def settings(self) -> Settings:
        """The settings of the file; the environment is ignored."""
        return load_settings(self.settings_file, environment={}).settings

    def log(self, name: str) -> Path:
        """Where the process of that name writes."""
        return self.folder / f"{name}.log"


def furnish(folder: Path, port: int | None) -> DemoEnvironment:
    """Fills the folder with what is missing in it. Raises ``SetUpError``.

    A folder of an earlier demonstration goes on as it is, at other ports if need be.
    """
    sample = next((path for path in SAMPLES if path.is_file()), None)
    if sample is None:
        raise SetUpError(f"the sample directory {SAMPLES[0]} is not there: install Usher again")
    if port is not None and not 0 < port < 65535:
        raise SetUpError("--port: the demo needs this port and the next one; give one from 1 to 65534")
    try:
        make_folder(folder)
        ports = (port, port + 1) if port is not None else _free_ports()
        demo = DemoEnvironment(folder.resolve(), *ports)
        if not demo.directory.exists():
            shutil.copyfile(sample, demo.directory)
        before = _read(demo.settings_file)
        _write(demo, before)
    except OSError as error:
        raise SetUpError(f"{error.filename or folder}: {error.strerror}; give another folder with --data") from error
    return demo


def remember_credentials(demo: DemoEnvironment, api_key: str, auth_token: str) -> None:
    """Puts the backend's credentials into the settings file."""
    values = _read(demo.settings_file)
    values["backend"] = {**values["backend"], "api_key": api_key, "auth_token": auth_token}
    _store(demo, values)


def _write(demo: DemoEnvironment, before: dict[str, Any]) -> None:
    def earlier(section: str, key: str, otherwise: Any) -> Any:
        return before.get(section, {}).get(key) or otherwise

    values: dict[str, Any] = {
        "database_url": f"sqlite:///{demo.folder}/usher.db",
        # One process each is enough to try things out, and starts sooner.
        "server": {"host": HOST, "port": demo.service_port, "workers": 1},
        # Without a cap the answers show when access itself ends.
        "provider": {
            "auth_tokens": earlier("provider", "auth_tokens", [secrets.token_urlsafe(24)]),
            "decision_ttl": 0,
        },
        "backend": {
            "base_url": demo.backend_url,
            "api_key": earlier("backend", "api_key", ""),
            "auth_token": earlier("backend", "auth_token", ""),
        },
        "directory": {
            "sources": [{"type": "file", "path": str(demo.directory), "name": "directory.yaml"}],
            # So small a directory loses a fifth by one line: what the limits hold is to be seen, not refused before.
            "guard": {"count": 100},
        },
        "sync": {"schedule": "every 15m", "jitter": 0},
        "worker": {"poll": 0.2},
        "admin": {"tokens": earlier("admin", "tokens", [secrets.token_urlsafe(24)])},
        "metrics": {"directory": str(demo.folder / "metrics")},
        "log": {"format": "text"},
        "self_hosted_backend": {
            "database_url": f"sqlite:///{demo.folder}/backend.db",
            "public_url": demo.backend_url,
            # The service that answers the backend's questions lives on this very machine.
            "allow_private_urls": True,
        },
    }
    _store(demo, values)
    write_file(demo.token_file, values["admin"]["tokens"][0] + "\n")


def _store(demo: DemoEnvironment, values: dict[str, Any]) -> None:
    write_file(demo.settings_file, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SetUpError(f"{path} cannot be read as YAML; remove it, or give another folder with --data") from error
    return values if isinstance(values, dict) else {}


def _free_ports() -> tuple[int, int]:
    with socket.create_server((HOST, 0)) as one, socket.create_server((HOST, 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def start_backend(demo: DemoEnvironment, children: Children) -> None:
    """The backend, which does not answer yet. Raises ``SetUpError`` where something else listens at its address, or at
    the service's."""
    for url in (demo.service_url, demo.backend_url):
        _expect_free(url)
    port = str(demo.backend_port)
    _start("backend", ["backend", "serve", "--port", port], demo, children)


def start_service(demo: DemoEnvironment, children: Children) -> None:
    """The service, which does not answer yet; it asks the backend by the credentials that the settings have by now."""
    _start("service", ["serve"], demo, children)


def _expect_free(url: str) -> None:
    """Raises ``SetUpError`` when somebody listens there already: it would be taken for a server of ours, and set up."""
    at = urlsplit(url)
    try:
        bind(at.hostname or "", at.port or 0).close()
    except BindError as error:
        raise SetUpError(f"{error}; name another port with --port") from error


def start_worker(demo: DemoEnvironment, children: Children) -> None:
    """The worker; it needs the backend's credentials in the settings file."""
    _start("worker", ["worker"], demo, children)


def _start(name: str, arguments: list[str], demo: DemoEnvironment, children: Children) -> None:
    common = ["--config", str(demo.settings_file), "--parent", str(os.getpid())]
    children.start(
        name,
        [*arguments, *common],
        # Whatever the caller's environment says is meant for a deployment of their own.
        environment={name: value for name, value in os.environ.items() if not name.startswith("USHER_")},
        log=demo.log(name),
    )


def wait_for(url: str, children: Children) -> None:
    """Returns when the server there answers. Raises ``ChildEndedError`` and ``SetUpError``."""

    def sleep(seconds: float) -> None:
        children.check()
        time.sleep(seconds)

    if not wait_until_ready(f"{url}/healthz", READY_WITHIN, sleep):
        raise SetUpError(f"{url} does not answer within {READY_WITHIN:.0f} seconds; the machine may be too busy")


def move_in(demo: DemoEnvironment) -> str:
    """A workspace with an API key in the backend, unless there is one; in words."""
    from app.commands.bootstrap.outside import new_workspace

    settings = demo.settings()
    if settings.backend.api_key.get_secret_value():
        return f"as before, with API key {settings.backend.api_key.get_secret_value()}"
    made = new_workspace(settings, OWNER)
    remember_credentials(demo, made.api_key, made.auth_token.get_secret_value())
    return f"{made.workspace_id}, with API key {made.api_key}"


def introduce(demo: DemoEnvironment) -> str:
    """Registers the service in the backend; returns its address."""
    from app.client.registration import register
    from app.commands.bootstrap.outside import backend_client

    settings = demo.settings()
    tokens = settings.provider.auth_tokens
    url = demo.service_url + settings.provider.path
    with backend_client(settings) as client:
        return register(client, url, tokens[0].get_secret_value(), tokens).after.url
