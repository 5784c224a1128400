"""The gunicorn runner as a real process, without a proxy."""

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

from app.http.listening import BindError, bind, wait_until_ready
from tests.ports import free_port

pytestmark = pytest.mark.e2e

PROGRAM = """
import logging, sys, time
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
from pathlib import Path
from flask import Flask, request
from app.http.body import read_json
from app.http.errors import install_error_handlers
from app.http.gunicorn import ServerOptions, serve
from app.http.json import json_response

def make():
    if sys.argv[3] == "mistake":
        raise ValueError("the database has moved")
    if sys.argv[3] == "bug":
        raise KeyError("oops")
    app = Flask("served")
    install_error_handlers(app)
    app.add_url_rule("/healthz", "health", lambda: json_response({}))
    app.add_url_rule("/echo", "echo", lambda: json_response(read_json(request, max_bytes=100)), methods=["POST"])
    app.add_url_rule("/form", "form", lambda: json_response(dict(request.form)), methods=["POST"])
    app.add_url_rule("/large", "large", lambda: "x" * 50_000_000)
    app.add_url_rule("/slow", "slow", slow)
    return app

def slow():
    gone.with_name("begun").touch()
    time.sleep(2)
    return json_response("done")

gone = Path(sys.argv[2])
serve(make, ServerOptions(port=int(sys.argv[1]), workers=1, threads=2, startup_errors=(ValueError,), read_timeout=1,
                          on_worker_exit=lambda pid: gone.write_text(str(pid))))
"""


def start(port: int, folder: Path, mode: str = "serve") -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", PROGRAM, str(port), str(folder / "gone"), mode]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    port = free_port()
    process = start(port, tmp_path)
    try:
        assert wait_until_ready(f"http://127.0.0.1:{port}/healthz", 60, time.sleep)
        yield port, process
    finally:
        process.kill()
        process.wait()


def raw_exchange(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(text)
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def head(path: str = "/echo", *lines: str, close: bool = True) -> bytes:
    end = ["Connection: close"] if close else []
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *end, *lines, "", ""]
    ).encode()


def with_length(body: bytes, length: int | None = None, *, path: str = "/echo", close: bool = True) -> bytes:
    return head(path, f"Content-Length: {len(body) if length is None else length}", close=close) + body


CHUNKED = head("/echo", "Transfer-Encoding: chunked")
FORM = b"POST /form HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n"
SECRET = "a-secret-of-the-client"
NOT_HTTP = {
    "garbage": (b"garbage\r\n\r\n", 400),
    "bad length": (head("/echo", "Content-Length: abc"), 400),
    "two lengths": (head("/echo", "Content-Length: 2", "Content-Length: 3") + b"{}", 400),
    "two framings": (head("/echo", "Content-Length: 3", "Transfer-Encoding: chunked"), 400),
    "long address": (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "many headers": (head("/echo", *(f"x-{n}: 1" for n in range(100))), 431),
    "a header without a colon": (head("/echo", f"x-api-key {SECRET}"), 400),
}
BROKEN_BODIES = {
    "bad chunk": (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", 400),
    "chunk without its end": (CHUNKED + b"2\r\n{}}\r\n0\r\n\r\n", 400),
    "forbidden trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nAuthorization: x\r\n\r\n", 400),
    "short body": (with_length(b"{}", 9), 400),
    "short form": (FORM + b"Content-Length: 9\r\n\r\na=b", 400),
    "form in bad chunks": (FORM + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "too many chunks": (CHUNKED + b"a\r\n1111111111\r\n" * 50 + b"0\r\n\r\n", 413),
    "too long": (with_length(b"1" * 101), 413),
}


@pytest.mark.extended
def test_malformed_requests_are_refused(server: tuple[int, subprocess.Popen[str]]) -> None:
    port, process = server
    for name, (text, code) in {**NOT_HTTP, **BROKEN_BODIES}.items():
        answer = raw_exchange(port, text)
        assert answer.startswith(f"HTTP/1.1 {code} ".encode()), (name, answer)
        assert answer.count(b"HTTP/1.1 ") == 1, (name, answer)
        if name in BROKEN_BODIES:
            assert b'{"error":{"status":"INVALID_ARGUMENT"' in answer, (name, answer)
    errors = ended(process)
    assert "Traceback" not in errors
    assert SECRET not in errors
    assert "InvalidHeader" in errors


def test_bodies_arrive_in_every_framing(server: tuple[int, subprocess.Popen[str]]) -> None:
    port, _ = server
    assert requests.post(f"http://127.0.0.1:{port}/echo", json=[1], timeout=5).json() == [1]
    assert raw_exchange(port, CHUNKED + b'7\r\n{"a":1}\r\n0\r\n\r\n').endswith(b'\r\n\r\n{"a":1}')
    expecting = head("/echo", "Content-Length: 2", "Expect: 100-continue")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(expecting)
        assert peer.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"{}")
        assert peer.recv(65536).startswith(b"HTTP/1.1 200 ")
    pipelined = (
        with_length(b"[1]", close=False) + with_length(b"[2]", path="/nowhere", close=False) + with_length(b"[3]")
    )
    answers = raw_exchange(port, pipelined).split(b"HTTP/1.1 ")
    assert [answer[:3] for answer in answers[1:]] == [b"200", b"404", b"200"]
    assert answers[-1].endswith(b"[3]")


def test_a_header_does_not_change_the_path(server: tuple[int, subprocess.Popen[str]]) -> None:
    port, _ = server
    for line in ("SCRIPT_NAME: /open", "Script_Name: /open", "PATH_INFO: /healthz"):
        text = f"GET /open/healthz HTTP/1.1\r\nHost: x\r\n{line}\r\nConnection: close\r\n\r\n"
        assert raw_exchange(port, text.encode()).startswith(b"HTTP/1.1 404 "), line


@pytest.mark.extended
def test_slow_bodies_and_unread_responses_end(server: tuple[int, subprocess.Popen[str]]) -> None:
    port, process = server
    for text in (with_length(b"{", 2), CHUNKED + b"5\r\n[", FORM + b"Content-Length: 9\r\n\r\na=b"):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
            peer.sendall(text)
            assert peer.recv(65536).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(4)
        received = len(b"".join(iter(lambda: peer.recv(65536), b"")))
    assert received < 50_000_000
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(with_length(b"{", 2))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert requests.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
    assert "Traceback" not in ended(process)


def test_a_stop_lets_requests_end(server: tuple[int, subprocess.Popen[str]], tmp_path: Path) -> None:
    port, process = server
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        # A stopping worker does not accept connections that are still in the backlog.
        deadline = time.monotonic() + 30
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        # Headers and body may arrive one after the other.
        answer = b"".join(iter(lambda: peer.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b'"done"')
    # Without another signal: it would kill an interpreter that has restored the default handlers.
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert (tmp_path / "gone").read_text().isdigit()


def test_a_killed_worker_is_replaced(server: tuple[int, subprocess.Popen[str]], tmp_path: Path) -> None:
    port, process = server
    (worker,) = psutil.Process(process.pid).children()
    worker.kill()
    assert wait_until_ready(f"http://127.0.0.1:{port}/healthz", 60, time.sleep)
    assert (tmp_path / "gone").read_text() == str(worker.pid)


def ended(process: subprocess.Popen[str]) -> str:
    """The log of a server until it was stopped."""
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    return errors


def test_workers_share_what_was_loaded_before_they_were_made(server: tuple[int, subprocess.Popen[str]]) -> None:
    _, process = server
    (worker,) = psutil.Process(process.pid).children()
    memory = worker.memory_full_info()
    # A look of the collector at everything would make half of it the worker's own.
    assert memory.uss < memory.rss / 3


def test_serve_reports_a_used_port_in_one_line(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        process = start(port, tmp_path)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == f"error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(("mode", "expected", "traceback"), [("mistake", "has moved", False), ("bug", "oops", True)])
def test_serve_ends_when_the_app_cannot_be_made(tmp_path: Path, mode: str, expected: str, traceback: bool) -> None:
    process = start(free_port(), tmp_path, mode)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert expected in errors
    assert ("Traceback" in errors) is traceback


@pytest.mark.parametrize(("host", "port"), [("no such host", 1), ("127.0.0.1", 70000), ("192.0.2.1", 8080)])
def test_bind_reports_the_address(host: str, port: int) -> None:
    with pytest.raises(BindError, match=f"cannot listen on {host}:{port}: ."):
        bind(host, port)


def test_wait_until_ready_times_out() -> None:
    slept: list[float] = []
    began = time.monotonic()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    assert not wait_until_ready(f"http://127.0.0.1:{free_port()}/healthz", 0.2, sleep)
    assert slept
    assert time.monotonic() - began < 5
