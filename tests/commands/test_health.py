"""What a container's HEALTHCHECK asks, by the process that the container runs."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from app.commands.health import address_of
from app.settings import ServerSettings, Settings
from tests.commands.conftest import Usher


class Healthz(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Healthz) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("arguments", "host", "address"),
    [
        (["usher", "serve", "--with-worker"], "0.0.0.0", "http://127.0.0.1:8080/healthz"),
        (["usher", "serve", "--port", "81"], "::", "http://[::1]:81/healthz"),
        (["python", "-P", "-m", "app", "serve", "--port=82"], "10.0.0.7", "http://10.0.0.7:82/healthz"),
        (["usher", "backend", "serve"], "127.0.0.1", "http://127.0.0.1:8090/healthz"),
        (["usher", "worker"], "0.0.0.0", ""),
        (["usher", "backend", "deliver"], "0.0.0.0", ""),
    ],
)
def test_each_process_is_asked_where_it_answers(arguments: list[str], host: str, address: str) -> None:
    assert address_of(arguments, Settings(server=ServerSettings(host=host))) == address


@pytest.mark.process
def test_health_ends_with_0_only_if_the_process_is_well(usher_in: Usher, folder: Path, port: int) -> None:
    command = folder / "cmdline"
    (folder / "usher.yaml").write_text("database_url: sqlite:///usher.db\nlog: {level: error}\n")

    def ask(*arguments: str) -> int:
        command.write_bytes("\0".join(["python", "/opt/usher/bin/usher", *arguments, ""]).encode())
        result = usher_in("health", "--of", str(command))
        assert (result.exit_code == 0) == (result.stdout == "ok\n")
        assert result.exit_code == 0 or result.stderr.startswith("error: ")
        return int(result.exit_code)

    assert ask("serve", "--port", str(port)) == 0
    assert ask("serve", "--port", "1") == 1
    assert ask("worker") == 1
    assert not (folder / "usher.db").exists()
    (folder / "usher.db").touch()
    assert ask("worker") == 0
    assert ask("backend", "deliver") == 1
