"""A real service behind a real nginx, and clients that misbehave."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil
import pytest
import requests
import yaml

from tests.attack.proxy import nginx
from tests.e2e.conftest import Usher, serving
from tests.foundation.outbound.servers import Authority
from tests.ports import HOST, free_port

TOKEN, ADMIN_TOKEN = "ask-me-for-tests", "rule-me-for-tests"
READ_TIMEOUT = 3
DIRECTORY = {
    "organizations": [{"organizationId": "acme", "organizationName": "Acme"}],
    "users": [{"userId": "ada", "name": "Ada", "email": "ada@acme.example"}],
    "memberships": [{"organizationId": "acme", "userId": "ada"}],
    "documents": [{"organizationId": "acme", "documentId": "plan", "documentName": "Plan"}],
}
QUESTION = {"userId": "ada", "resource": {"type": "document", "id": "plan", "organizationId": "acme"}}
BODY = orjson.dumps({"data": {"requests": [QUESTION]}})


@dataclass
class Target:
    """A server that is attacked."""

    usher: Usher
    port: int
    path: str
    headers: dict[str, str]
    tls_port: int = 0
    ca_file: str = ""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def head(self, *further: str) -> bytes:
        """The head of a valid call, without framing and end."""
        lines = [f"POST {self.path} HTTP/1.1", "Host: x", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, *further, ""]).encode()

    def connect(self, text: bytes = b"") -> socket.socket:
        peer = socket.create_connection((HOST, self.port), timeout=20)
        if text:
            peer.sendall(text)
        return peer

    def exchange(self, text: bytes) -> bytes:
        """The response until the server closes the connection."""
        with self.connect(text) as peer:
            return read_all(peer)

    def ask(self) -> float:
        """A valid call on its own connection; the seconds until its response."""
        began = time.monotonic()
        answer = requests.post(self.url + self.path, data=BODY, headers=self.json_headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return time.monotonic() - began

    @property
    def json_headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", **self.headers}

    def memory(self) -> int:
        """Bytes of all its processes, without pages of mapped files, which the system can reclaim."""
        parent = psutil.Process(self.usher.process.pid)
        found = [one.memory_info() for one in [parent, *parent.children(recursive=True)]]
        return sum(info.rss - info.shared for info in found)

    def workers(self) -> set[int]:
        return {child.pid for child in psutil.Process(self.usher.process.pid).children(recursive=True)}


def read_all(peer: socket.socket) -> bytes:
    received = b""
    try:
        while data := peer.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def write_service(folder: Path, port: int, **sections: object) -> str:
    """Writes the settings of a service with two threads, which few slow clients could occupy."""
    (folder / "directory.yaml").write_text(yaml.safe_dump(DIRECTORY))
    settings: dict[str, object] = {
        "database_url": f"sqlite:///{folder}/usher.db",
        "server": {"port": port, "workers": 1, "threads": 2, "read_timeout": READ_TIMEOUT, "trusted_proxies": 1},
        "provider": {"auth_tokens": [TOKEN], "max_requests": 100_000},
        "admin": {"tokens": [ADMIN_TOKEN]},
        "directory": {"sources": [{"type": "file", "path": str(folder / "directory.yaml")}]},
        **sections,
    }
    (folder / "usher.yaml").write_text(yaml.safe_dump(settings))
    return "usher.yaml"


@contextmanager
def served(folder: Path, path: str, token: str, **sections: object) -> Iterator[Target]:
    """A service that has read its directory, behind nginx."""
    port, proxy_port = free_port(), free_port()
    config = write_service(folder, port, **sections)
    refreshed = Usher(folder, "directory", "refresh", "--config", config, forked=True)
    assert refreshed.process.wait(60) == 0, refreshed.stderr()
    usher = Usher(folder, "serve", "--config", config, forked=True)
    authority = Authority(folder)
    target = Target(
        usher,
        proxy_port,
        path,
        {"Authorization": f"Bearer {token}"},
        tls_port=proxy_port + 1,
        ca_file=str(authority.ca_file),
    )
    certificate = authority.server_file(HOST)
    changes = {
        "127.0.0.1:8080": f"{HOST}:{port}",
        "listen 443 ssl;": f"listen {HOST}:{proxy_port} backlog=4096; listen {HOST}:{proxy_port + 1} ssl;",
        "/etc/nginx/usher.corp.example.pem": str(certificate),
        "/etc/nginx/usher.corp.example.key": str(certificate),
        "client_header_timeout 15s": f"client_header_timeout {READ_TIMEOUT}s",
        "client_body_timeout 15s": f"client_body_timeout {READ_TIMEOUT}s",
        # All clients of these tests have one address.
        "limit_conn usher_clients 200": "limit_conn usher_clients 5000",
    }
    try:
        serving(usher, f"http://{HOST}:{port}")
        with nginx(folder / "nginx", changes):
            serving(usher, target.url)
            yield target
        assert "Traceback" not in usher.stderr()
        assert token not in usher.stderr() + usher.stdout()
    finally:
        assert usher.end() == 0


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One service for all tests, each of which must leave it usable."""
    with served(tmp_path_factory.mktemp("attacked"), "/permissions/check", TOKEN) as target:
        yield target
