"""A cheap load generator with keep-alive connections."""

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """One round: requests a second, and latencies in milliseconds."""

    rate: float
    p50: float
    p99: float
    answers: int


def post(host: str, port: int, path: str, body: bytes, token: str) -> bytes:
    """The bytes of one request."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def exchange(host: str, port: int, request: bytes) -> bytes:
    """The body of the answer to one request."""
    connection = _Connection(host, port)
    try:
        return connection.exchange(request)
    finally:
        connection.close()


def measure(
    host: str, port: int, requests: Sequence[bytes], *, seconds: float, connections: int, rate: float | None = None
) -> Measured:
    """Sends the requests in rotation from ``connections`` threads; every response must be 200.

    ``rate``: requests a second of all threads together. A late response does not delay the next request's due time, so
    its latency includes the wait. None: as many as possible.
    """
    latencies: list[list[float]] = [[] for _ in range(connections)]
    failures: list[str] = []
    start = time.perf_counter()
    end = start + seconds

    def due(number: int) -> float:
        """When the request is to be sent; waits until then."""
        now = time.perf_counter()
        if rate is None:
            return now
        moment = start + number / rate
        time.sleep(max(0.0, moment - now))
        return moment

    def run(worker: int) -> None:
        mine = latencies[worker]
        connection = _Connection(host, port)
        number = worker
        try:
            while (before := due(number)) < end:
                connection.exchange(requests[number % len(requests)])
                mine.append(time.perf_counter() - before)
                number += connections
        except (OSError, ValueError) as error:
            failures.append(str(error))
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - start
    if failures:
        raise RuntimeError(f"the server failed under load: {failures[0]}")
    everything = sorted(latency for mine in latencies for latency in mine)
    return Measured(
        rate=len(everything) / taken,
        p50=everything[len(everything) // 2] * 1000,
        p99=everything[min(len(everything) - 1, len(everything) * 99 // 100)] * 1000,
        answers=len(everything),
    )


class _Connection:
    """A keep-alive connection that parses only the end of a response."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self.head = b""
        """Status and headers of the last response, in lower case."""
        self._socket = self._open()

    def _open(self) -> socket.socket:
        opened = socket.create_connection(self._address, 30)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def exchange(self, request: bytes) -> bytes:
        """Sends one request and returns the body of its response."""
        self._socket.sendall(request)
        received = self._socket.recv(65536)
        while (head_end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        self.head = head = received[:head_end].lower()
        if b" 200 " not in head[:15]:
            raise ValueError(received[:300].decode(errors="replace"))
        length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        while len(received) < head_end + 4 + length:
            received += self._more()
        if b"connection: close" in head:
            self._socket.close()
            self._socket = self._open()
        return received[head_end + 4 :]

    def _more(self) -> bytes:
        more = self._socket.recv(65536)
        if not more:
            raise ValueError("the server closed the connection in the middle of an answer")
        return more

    def close(self) -> None:
        self._socket.close()
