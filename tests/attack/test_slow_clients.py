"""Hundreds of slow clients do not block a service with two threads."""

import contextlib
import socket
import time
from collections.abc import Iterator
from statistics import median

import pytest
import requests

from tests.attack.conftest import BODY, READ_TIMEOUT, Target, read_all

pytestmark = [pytest.mark.e2e, pytest.mark.external, pytest.mark.timeout(120), pytest.mark.xdist_group("attack")]

MB = 1024 * 1024
CROWD = 60
"""Peers of each kind."""
WITHIN = READ_TIMEOUT * 2 / 3
"""Seconds within which others are answered on a machine that is busy, too. A thread that a slow peer kept would be kept
for the whole of its time, and then by the next one."""


def beginnings(target: Target) -> dict[str, bytes]:
    """The data that is sent before the client stalls."""
    head, length = target.head(), target.head(f"Content-Length: {len(BODY)}")
    chunked = target.head("Transfer-Encoding: chunked") + b"\r\n"
    return {
        "nothing": b"",
        "half a line": b"POST /perm",
        "half a head": head[:-2],
        "no body": length + b"\r\n",
        "half a body": length + b"\r\n" + BODY[: len(BODY) // 2],
        "half a chunk": chunked + b"%x\r\n" % len(BODY) + BODY[:10],
        "no last chunk": chunked + b"%x\r\n" % len(BODY) + BODY + b"\r\n",
        "chunks that look like the end": chunked + b"f0\r\n" + b"0\r\n\r\n" * 5,
        "no end of trailers": chunked + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\nx: 1\r\n",
        "a second request": length + b"\r\n" + BODY + b"POST /perm",
        "expects to be asked": target.head("Content-Length: 100", "Expect: 100-continue") + b"\r\n",
        "garbage, and stays": b"garbage\r\n\r\n",
    }


@pytest.fixture
def crowd(service: Target) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(service.connect(text)) for text in beginnings(service).values() for _ in range(CROWD)
        ]


def test_others_are_served_while_hundreds_are_slow(service: Target, crowd: list[socket.socket]) -> None:
    workers, before = service.workers(), service.memory()
    began = time.monotonic()
    taken = []
    while time.monotonic() - began < READ_TIMEOUT + 4:
        taken.append(service.ask())
        time.sleep(0.05)
    assert max(taken) < WITHIN, f"{median(taken):.3f} s, at most {max(taken):.3f} s"
    assert service.workers() == workers
    assert service.memory() - before < 64 * MB


def test_slow_clients_are_disconnected(service: Target) -> None:
    with contextlib.ExitStack() as stack:
        peers = {name: stack.enter_context(service.connect(text)) for name, text in beginnings(service).items()}
        answers = {name: read_all(peer) for name, peer in peers.items()}
    assert answers.pop("garbage, and stays").startswith(b"HTTP/1.1 400 ")
    assert answers.pop("a second request").startswith(b"HTTP/1.1 200 ")
    for name, answer in answers.items():
        assert b" 200 " not in answer, name


def test_slow_drips_occupy_no_thread(service: Target) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(service.connect(service.head("Content-Length: 1000")[:40])) for _ in range(20)]
        peers += [
            stack.enter_context(service.connect(service.head("Content-Length: 1000") + b"\r\n")) for _ in range(20)
        ]
        for _ in range(10):
            for peer in peers:
                with contextlib.suppress(ConnectionError):
                    peer.sendall(b" ")
            assert service.ask() < WITHIN


def test_unread_responses_occupy_no_thread(service: Target) -> None:
    many = b'{"data":{"requests":[' + b",".join([BODY[21:-3]] * 20_000) + b"]}}"
    text = service.head(f"Content-Length: {len(many)}") + b"\r\n" + many
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(20)
            peer.connect(("127.0.0.1", service.port))
            peer.sendall(text)
        # Three responses take a busy machine some time; a thread that waited for a client would wait for longer.
        until = time.monotonic() + 30
        while (slowest := max(service.ask() for _ in range(20))) >= 1.0 and time.monotonic() < until:
            time.sleep(1)
        assert slowest < 1.0


def test_other_clients_are_served_during_a_flood_of_connections(service: Target) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1500):
            stack.enter_context(service.connect())
        workers = service.workers()
        assert max(service.ask() for _ in range(20)) < WITHIN
        assert service.workers() == workers


def test_a_request_in_pieces_and_two_at_once_are_answered(service: Target) -> None:
    whole = service.head(f"Content-Length: {len(BODY)}") + b"\r\n" + BODY
    with service.connect() as peer:
        for place in range(0, len(whole), 7):
            peer.sendall(whole[place : place + 7])
        assert peer.recv(65536).startswith(b"HTTP/1.1 200 ")
        last = service.head(f"Content-Length: {len(BODY)}", "Connection: close") + b"\r\n" + BODY
        peer.sendall(whole + last)
        assert read_all(peer).count(b"HTTP/1.1 200 OK") == 2
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\nx: 1\r\n\r\n"
    chunked = service.head("Transfer-Encoding: chunked", "Connection: close") + b"\r\n" + pieces
    assert service.exchange(chunked).startswith(b"HTTP/1.1 200 ")
    expecting = {**service.json_headers, "Expect": "100-continue"}
    assert requests.post(service.url + service.path, data=BODY, headers=expecting, timeout=5).status_code == 200
