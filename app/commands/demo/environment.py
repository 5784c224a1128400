"""The demo environment: one folder with a sample directory, settings, databases and logs, and its processes."""

import os
import secrets
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

import app
from app.client.registration import register
from app.commands.bootstrap.outgoing import backend_client, new_workspace
from app.commands.bootstrap.requirements import SetUpError
from app.foundation.files import make_folder, write_file
from app.foundation.processes import Child, Children
from app.http.listening import BindError, bind, wait_until_ready
from app.http.tokens import TokenSet
from app.settings import Settings, load_settings

SAMPLES = (
    Path(app.__file__).parent.parent / "config" / "demo" / "directory.yaml",
    Path(__file__).parent / "directory.yaml",
)
"""The sample directory in a checkout, and in an installed package."""
HOST = "127.0.0.1"
OWNER = "owner@acme.example.com"
READY_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """The folder and the ports of one demo."""

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
        """The directory file, which users may edit."""
        return self.folder / "directory.yaml"

    @property
    def settings_file(self) -> Path:
        return self.folder / "usher.yaml"

    @property
    def token_file(self) -> Path:
        """The admin token, for curl."""
        return self.folder / "admin-token"

    def settings(self) -> Settings:
        return load_settings(self.settings_file, environment={}).settings


def prepare(folder: Path, port: int | None) -> DemoEnvironment:
    """Creates the missing files. An earlier demo continues, perhaps on other ports. Raises ``SetUpError``."""
    sample = next((path for path in SAMPLES if path.is_file()), None)
    if sample is None:
        raise SetUpError(f"the sample directory {SAMPLES[0]} does not exist: install Usher again")
    if port is not None and not 0 < port < 65535:
        raise SetUpError("--port: the demo needs this port and the next one; choose one from 1 to 65534")
    try:
        make_folder(folder)
        ports = (port, port + 1) if port is not None else _free_ports()
        demo = DemoEnvironment(folder.resolve(), *ports)
        if not demo.directory.exists():
            shutil.copyfile(sample, demo.directory)
        values = _values(demo, _read(demo.settings_file) if demo.settings_file.exists() else {})
        _write(demo, values)
        write_file(demo.token_file, values["admin"]["tokens"][0] + "\n")
    except OSError as error:
        raise SetUpError(f"{error.filename or folder}: {error.strerror}; choose another folder with --data") from error
    return demo


def _values(demo: DemoEnvironment, earlier: dict[str, Any]) -> dict[str, Any]:
    """The settings. Tokens and credentials of an earlier demo are kept."""

    def stored(section: str, key: str, default: Any) -> Any:
        return earlier.get(section, {}).get(key) or default

    return {
        "database_url": f"sqlite:///{demo.folder}/usher.db",
        # One process suffices for a demo, and starts faster.
        "server": {"host": HOST, "port": demo.service_port, "workers": 1},
        # Without a limit, the answers show when the access itself ends.
        "provider": {"auth_tokens": stored("provider", "auth_tokens", [secrets.token_urlsafe(24)]), "decision_ttl": 0},
        "backend": {
            "base_url": demo.backend_url,
            "api_key": stored("backend", "api_key", ""),
            "auth_token": stored("backend", "auth_token", ""),
        },
        "directory": {
            "sources": [{"type": "file", "path": str(demo.directory), "name": "directory.yaml"}],
            # One line is a fifth of this small directory. The demo shows held deletes, not refused reads.
            "guard": {"count": 100},
        },
        "sync": {"schedule": "every 15m", "jitter": 0},
        "worker": {"poll": 0.2},
        "admin": {"tokens": stored("admin", "tokens", [secrets.token_urlsafe(24)])},
        "metrics": {"directory": str(demo.folder / "metrics")},
        "log": {"format": "text"},
        "self_hosted_backend": {
            "database_url": f"sqlite:///{demo.folder}/backend.db",
            "public_url": demo.backend_url,
            # The permission provider runs on this machine.
            "allow_private_urls": True,
        },
    }


def _write(demo: DemoEnvironment, values: dict[str, Any]) -> None:
    write_file(demo.settings_file, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SetUpError(f"{path} is not YAML; remove it, or choose another folder with --data") from error
    return values if isinstance(values, dict) else {}


def _free_ports() -> tuple[int, int]:
    with socket.create_server((HOST, 0)) as first, socket.create_server((HOST, 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]


def start(name: Literal["backend", "service", "sync", "worker"], demo: DemoEnvironment, children: Children) -> Child:
    """Starts a process. Raises ``SetUpError`` if another program, mistaken for it, listens at its address.

    ``sync`` writes to this terminal, the others into files.
    """
    ports = {"backend": demo.backend_port, "service": demo.service_port}
    if name in ports:
        try:
            bind(HOST, ports[name]).close()
        except BindError as error:
            raise SetUpError(f"{error}; choose another port with --port") from error
    command = {
        "backend": ["backend", "serve", "--port", str(demo.backend_port)],
        "service": ["serve"],
        "sync": ["sync"],
        "worker": ["worker"],
    }[name]
    parent = [] if name == "sync" else ["--parent", str(os.getpid())]
    return children.start(
        name,
        [*command, "--config", str(demo.settings_file), *parent],
        # Variables of the caller belong to other installations.
        environment={key: value for key, value in os.environ.items() if not key.startswith("USHER_")},
        log=None if name == "sync" else demo.folder / f"{name}.log",
    )


def wait_for(url: str, children: Children) -> None:
    """Returns as soon as the server answers. Raises ``ChildEndedError`` and ``SetUpError``."""

    def sleep(seconds: float) -> None:
        children.check()
        time.sleep(seconds)

    if not wait_until_ready(f"{url}/healthz", READY_TIMEOUT, sleep):
        raise SetUpError(f"{url} does not answer within {READY_TIMEOUT:.0f} seconds; the machine may be too busy")


def create_workspace(demo: DemoEnvironment) -> str:
    """Creates a workspace in the backend, unless an earlier demo did. Returns its description."""
    settings = demo.settings()
    if api_key := settings.backend.api_key.get_secret_value():
        return f"as before, with API key {api_key}"
    workspace = new_workspace(settings, OWNER)
    values = _read(demo.settings_file)
    values["backend"] |= {"api_key": workspace.api_key, "auth_token": workspace.auth_token.get_secret_value()}
    _write(demo, values)
    return f"{workspace.workspace_id}, with API key {workspace.api_key}"


def register_service(demo: DemoEnvironment) -> str:
    """Registers the service in the backend. Returns its URL."""
    settings = demo.settings()
    tokens = settings.provider.auth_tokens
    url = demo.service_url + settings.provider.path
    with backend_client(settings) as client:
        return register(client, url, tokens[0].get_secret_value(), TokenSet(tokens).accepts).after.url
