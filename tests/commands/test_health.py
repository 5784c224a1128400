"""``usher health``: which processes it finds, and when they are healthy."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner
from sqlalchemy import insert

from app.cli import usher
from app.commands.health import LongRunning, UsherProcess, command_of, health_url
from app.foundation.clock import epoch_ms, utc_now
from app.foundation.database.engine import open_engine, writing
from app.settings import ServerSettings, Settings
from app.sync.runs.run import process_name
from app.sync.runs.tables import WorkerRow
from tests.commands.conftest import Usher
from tests.faults.live import until


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
        ([sys.executable, "-P", "-m", "app", "serve", "--port=82"], "10.0.0.7", "http://10.0.0.7:82/healthz"),
        (["usher", "--config", "worker", "backend", "serve"], "127.0.0.1", "http://127.0.0.1:8090/healthz"),
    ],
)
def test_health_url_follows_options_and_settings(arguments: list[str], host: str, address: str) -> None:
    command = command_of(arguments)
    assert command is not None
    process = UsherProcess(1, command, tuple(arguments), Path())
    assert health_url(process, Settings(server=ServerSettings(host=host))) == address


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["python", "/opt/usher/bin/usher", "worker", ""], LongRunning.WORKER),
        (["usher", "-v", "backend", "serve"], LongRunning.BACKEND_SERVE),
        (["usher", "check", "ada", "document", "worker"], None),
        (["usher", "sync", "--config", "serve"], None),
        (["/usr/bin/python3", "-m", "app", "serve"], None),
        (["nginx", "serve"], None),
        (["vi", "usher"], None),
        ([""], None),
    ],
)
def test_command_of_ignores_other_processes(arguments: list[str], command: LongRunning | None) -> None:
    assert command_of(arguments) == command


def test_health_requires_every_process_to_be_healthy(usher_in: Usher, folder: Path, port: int) -> None:
    (folder / "usher.yaml").write_text("database_url: sqlite:///usher.db\nlog: {level: error}\n")
    proc = folder / "proc"

    def ask(*commands: str) -> str:
        """The error, or ``ok``. The processes have the ids 1, 2, and so on."""
        shutil.rmtree(proc, ignore_errors=True)
        (proc / "self").mkdir(parents=True)
        for number, words in enumerate(commands, start=1):
            (proc / str(number)).mkdir()
            arguments = ["python", "/opt/usher/bin/usher", *words.split(), "--config", "usher.yaml", ""]
            (proc / str(number) / "cmdline").write_bytes("\0".join(arguments).encode())
            (proc / str(number) / "cwd").symlink_to(folder)
        result = usher_in("health", "--proc", str(proc))
        assert result.exit_code == (0 if result.stdout else 1)
        return result.stdout.strip() or result.stderr.strip().removeprefix("error: ")

    assert ask() == "no usher serve, worker or backend that was started with usher.yaml runs here"
    assert ask("sync") == "no usher serve, worker or backend that was started with usher.yaml runs here"
    assert ask(f"serve --port {port}") == "ok"
    assert ask("serve --port 1").startswith("usher serve (process 1): http://127.0.0.1:1/healthz: ")
    assert ask("worker") == "usher worker (process 1): there is no usher.db yet"
    assert not (folder / "usher.db").exists()
    assert usher_in("db", "upgrade").exit_code == 0
    assert ask("worker") == "usher worker (process 1): has sent no heartbeat yet"
    engine = open_engine(f"sqlite:///{folder}/usher.db")

    def beat(pid: int, ago: int) -> None:
        at = epoch_ms(utc_now()) - ago * 1000
        with writing(engine) as connection:
            row = {"worker_id": str(pid), "name": process_name(pid), "started_at": at, "seen_at": at}
            connection.execute(insert(WorkerRow).values(**row))

    beat(1, ago=20)
    assert ask("worker") == "ok"
    assert ask("worker", f"serve --port {port}", f"serve --port {port}") == "ok"
    assert ask("worker", "worker") == "usher worker (process 2): has sent no heartbeat yet"
    beat(2, ago=190)
    assert ask("worker", "worker").startswith("usher worker (process 2): sent its last heartbeat 19")
    engine.dispose()


def test_health_uses_the_environment_of_the_process(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, its = folder / "proc", folder / "its"
    (proc / "7").mkdir(parents=True)
    its.mkdir()
    (its / "its.yaml").write_text("log: {level: error}\n")
    (proc / "7" / "cmdline").write_bytes(b"python\0/opt/usher/bin/usher\0serve\0")
    (proc / "7" / "environ").write_bytes(f"A=1\0USHER_CONFIG=its.yaml\0USHER_SERVER__PORT={port}\0".encode())
    (proc / "7" / "cwd").symlink_to(its)
    monkeypatch.setenv("USHER_CONFIG", "missing.yaml")

    def ask(*options: str) -> str:
        return CliRunner().invoke(usher, ["health", "--proc", str(proc), *options]).output

    assert [ask(), ask("--config", "its/its.yaml")] == ["ok\n", "ok\n"]
    (proc / "7" / "environ").write_bytes(b"USHER_CONFIG=its.yaml\0USHER_SERVER__PORT=1\0")
    assert "http://127.0.0.1:1/healthz" in ask("--config", "its/its.yaml")
    (proc / "7" / "environ").unlink()
    assert "missing.yaml" in ask()

    def deny(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    # Of another user's process.
    monkeypatch.setattr(os, "readlink", deny)
    assert "missing.yaml" in ask()


@pytest.mark.extended
def test_frozen_worker_is_unhealthy(usher_in: Usher, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = folder / "usher.yaml"
    settings.write_text(
        settings.read_text()
        + "backend: {base_url: 'http://127.0.0.1:9', api_key: key-of-sixteen, auth_token: token-of-sixteen}\n"
        + "notifications: {worker_after: 2}\n"
    )
    assert usher_in("db", "upgrade").exit_code == 0
    assert usher_in("health").stderr.endswith("backend that was started with usher.yaml runs here\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("USHER_")}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "app", "worker", "--config", "usher.yaml"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as worker:
        try:
            # From another folder: the paths are those of the worker.
            os.chdir(tmp_path_factory.mktemp("elsewhere"))
            until(lambda: usher_in("health", config=str(settings)).exit_code == 0)
            worker.send_signal(signal.SIGSTOP)
            until(lambda: usher_in("health", config=str(settings)).exit_code == 1)
            text = usher_in("health", config=str(settings)).stderr
            assert text.startswith(f"error: usher worker (process {worker.pid}): sent its last heartbeat ")
        finally:
            worker.kill()
