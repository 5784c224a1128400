"""The gunicorn runner, as a real process."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import requests

from app.edge.listening import BindError, bind, wait_until_ready

pytestmark = pytest.mark.e2e

PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
from pathlib import Path
from flask import Flask, request
from app.edge.body import read_json
from app.edge.errors import install_error_handlers
from app.edge.gunicorn import ServerOptions, serve
from app.edge.json import json_response

def make():
    if sys.argv[3] == "mistake":
        raise ValueError("the database has moved")
    if sys.argv[3] == "bug":
        raise KeyError("oops")
    app = Flask("served")
    install_error_handlers(app)
    app.add_url_rule("/healthz", "health", lambda: json_response({}))
    app.add_url_rule("/echo", "echo", lambda: json_response(read_json(request, max_bytes=100)), methods=["POST"])
    return app

gone = Path(sys.argv[2])
serve(make, ServerOptions(port=int(sys.argv[1]), workers=1, threads=2, startup_errors=(ValueError,),
                          on_worker_exit=lambda pid: gone.write_text(str(pid))))
"""


def free_port() -> int:
    with bind("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


def start(port: int, folder: Path, mode: str = "serve") -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", PROGRAM, str(port), str(folder / "gone"), mode]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    port = free_port()
    process = start(port, tmp_path)
    try:
        assert wait_until_ready(f"http://127.0.0.1:{port}/healthz", 20, time.sleep)
        yield port, process
    finally:
        process.kill()
        process.wait()


def raw_exchange(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(text)
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65536), b""))


HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"

BAD_HTTP = {
    "garbage": (b"garbage\r\n\r\n", 400),
    "bad length": (HEAD + b"Content-Length: abc\r\n\r\n", 400),
    "two framings": (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "long address": (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "many headers": (HEAD + b"".join(b"x-%d: 1\r\n" % n for n in range(100)) + b"\r\n", 431),
    "bad chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
    "short body": (HEAD + b"Content-Length: 9\r\n\r\n{}", 400),
    "too many chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"a\r\n1111111111\r\n" * 50 + b"0\r\n\r\n", 413),
}


def test_serve_answers_and_stops_gracefully(server: tuple[int, subprocess.Popen[str]], tmp_path: Path) -> None:
    port, process = server
    for text, code in BAD_HTTP.values():
        answer = raw_exchange(port, text)
        assert answer.startswith(f"HTTP/1.1 {code} ".encode()), answer
        assert b'{"error":{"status":"INVALID_ARGUMENT"' in answer
    chunked = HEAD + b'Transfer-Encoding: chunked\r\n\r\n7\r\n{"a":1}\r\n0\r\n\r\n'
    assert raw_exchange(port, chunked).endswith(b'\r\n\r\n{"a":1}')
    assert requests.post(f"http://127.0.0.1:{port}/echo", json=[1], timeout=5).json() == [1]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert (tmp_path / "gone").read_text().isdigit()


def test_workers_share_what_was_loaded_before_they_were_made(server: tuple[int, subprocess.Popen[str]]) -> None:
    _, process = server
    (worker,) = psutil.Process(process.pid).children()
    memory = worker.memory_full_info()
    # A look of the collector at everything would make half of it the worker's own.
    assert memory.uss < memory.rss / 3


def test_serve_says_in_one_line_that_a_port_is_taken(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        process = start(port, tmp_path)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert errors == f"error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(("mode", "expected", "traceback"), [("mistake", "has moved", False), ("bug", "oops", True)])
def test_serve_ends_when_the_app_cannot_be_made(tmp_path: Path, mode: str, expected: str, traceback: bool) -> None:
    process = start(free_port(), tmp_path, mode)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert expected in errors
    assert ("Traceback" in errors) is traceback


@pytest.mark.parametrize(("host", "port"), [("no such host", 1), ("127.0.0.1", 70000), ("192.0.2.1", 8080)])
def test_bind_names_the_address_that_cannot_be_had(host: str, port: int) -> None:
    with pytest.raises(BindError, match=f"cannot listen on {host}:{port}: ."):
        bind(host, port)


def test_wait_until_ready_gives_up() -> None:
    slept: list[float] = []
    began = time.monotonic()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    assert not wait_until_ready(f"http://127.0.0.1:{free_port()}/healthz", 0.2, sleep)
    assert slept
    assert time.monotonic() - began < 5
