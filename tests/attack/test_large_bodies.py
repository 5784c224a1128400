"""Oversized bodies of every kind are refused without using memory."""

import contextlib
import gzip
import threading
import time
from collections.abc import Iterable

import orjson
import pytest
import requests

from tests.attack.conftest import BODY, QUESTION, Target

pytestmark = [pytest.mark.e2e, pytest.mark.external, pytest.mark.timeout(180), pytest.mark.xdist_group("attack")]

MB = 1024 * 1024
GB = 1024 * MB


def pour(target: Target, head: bytes, pieces: Iterable[bytes]) -> bytes:
    """The response to a client that sends as much as the server accepts."""
    with target.connect(head) as peer:
        with contextlib.suppress(ConnectionError, TimeoutError):
            for piece in pieces:
                peer.sendall(piece)
        with contextlib.suppress(ConnectionError):
            return peer.recv(65536)
    return b""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_a_gigabyte_is_refused(service: Target) -> None:
    before = service.memory()
    length = service.head(f"Content-Length: {GB}") + b"\r\n"
    chunked = service.head("Transfer-Encoding: chunked") + b"\r\n"
    for head, piece in ((length, b" " * MB), (chunked, chunk(b" " * MB))):
        answer = pour(service, head, (piece for _ in range(100)))
        # A client that goes on sending may lose the response to a reset of the connection.
        assert not answer or answer.startswith(b"HTTP/1.1 413 ")
    assert service.exchange(length).startswith(b"HTTP/1.1 413 ")
    assert service.memory() - before < 32 * MB


def test_many_large_bodies_at_once_stay_within_the_memory(service: Target) -> None:
    service.ask()
    before, maximum, done = service.memory(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            maximum[0] = max(maximum[0], service.memory() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    head = service.head(f"Content-Length: {8 * MB}") + b"\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            peer = stack.enter_context(service.connect(head))
            with contextlib.suppress(ConnectionError):
                peer.sendall(b" " * (8 * MB - 1))
        assert service.ask() < 2
    done.set()
    watcher.join()
    assert maximum[0] < 256 * MB, f"{maximum[0] / MB:.0f} MB"


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/resync", "/permissions/check", "/directory/x"])
def test_a_refused_request_with_a_large_body_gets_its_response(service: Target, path: str) -> None:
    answer = requests.post(service.url + path, data=b" " * (15 * MB), timeout=30)
    assert answer.status_code in {401, 404, 405, 429}, answer.text


def test_chunks_of_one_byte_cost_little(service: Target) -> None:
    before = service.memory()
    pieces = (b"1\r\n \r\n" * 10_000 for _ in range(1000))
    answer = pour(service, service.head("Transfer-Encoding: chunked") + b"\r\n", pieces)
    assert not answer or answer.startswith(b"HTTP/1.1 408 ")
    assert service.ask() < 2
    assert service.memory() - before < 64 * MB


def test_batch_limit_of_questions(service: Target) -> None:
    before = service.memory()
    body = orjson.dumps({"data": {"requests": [QUESTION] * 100_000}})
    assert len(body) > 8 * MB
    answer = requests.post(service.url + service.path, data=body, headers=service.json_headers, timeout=30)
    assert answer.status_code == 413
    short = {"userId": "a", "resource": {"type": "folder", "id": "b", "organizationId": "c"}}
    body = orjson.dumps({"data": {"requests": [short] * 90_000}})
    if len(body) <= 8 * MB:
        answer = requests.post(service.url + service.path, data=body, headers=service.json_headers, timeout=60)
        assert answer.status_code == 200
        assert len(answer.json()["data"]) == 90_000
    body = b'{"data":{"requests":[' + b"{}," * 100_000 + b"{}]}}"
    answer = requests.post(service.url + service.path, data=body, headers=service.json_headers, timeout=30)
    assert answer.status_code == 400
    assert "100000" in answer.json()["error"]["message"]
    assert service.memory() - before < 400 * MB


BOMBS = {
    "deep arrays": b"[" * 4_000_000,
    "deep objects": b'{"a":' * 1_000_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "a long number": b'{"data":' + b"9" * 4_000_000 + b"}",
    "a long exponent": b'{"data":1e' + b"9" * 1_000_000 + b"}",
    "many keys": b"{" + b",".join(b'"k%d":1' % number for number in range(300_000)) + b"}",
    "one long text": b'{"data":"' + b"x" * 7_000_000 + b'"}',
    "escapes": b'{"data":"' + b"\\u0041" * 1_000_000 + b'"}',
}


def test_json_bombs_are_refused_quickly(service: Target) -> None:
    before = service.memory()
    for name, body in BOMBS.items():
        for _ in range(50):
            began = time.monotonic()
            answer = requests.post(service.url + service.path, data=body, headers=service.json_headers, timeout=30)
            if answer.status_code != 503:
                break
            time.sleep(0.1)  # earlier bodies still occupy memory: a client retries after 503
        assert answer.status_code in {400, 413}, (name, answer.text)
        assert len(answer.content) < 1000
        assert time.monotonic() - began < 5, name
    assert service.memory() - before < 200 * MB


def test_compressed_bombs_are_not_decompressed(service: Target) -> None:
    bomb = gzip.compress(b" " * (64 * MB) + BODY)
    for encoding in ("gzip", "deflate", "br", "gzip, gzip"):
        answer = requests.post(
            service.url + service.path,
            data=bomb,
            headers={**service.json_headers, "Content-Encoding": encoding},
            timeout=10,
        )
        assert answer.status_code == 415
    head = service.head("Transfer-Encoding: gzip, chunked") + b"\r\n"
    answer_head = service.exchange(head + chunk(bomb) + b"0\r\n\r\n")[:13]
    assert answer_head.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")), answer_head
