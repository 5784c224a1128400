"""Malicious permission providers: internal addresses, rebinding names, redirects, endless responses."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import requests

from app.backend.permissions.provider_call import ask
from app.backend.permissions.provider_config import ProviderConfig
from app.backend.security import outgoing
from app.backend.security.outgoing import is_public_address, names_private_host, open_session
from app.backend.settings import SelfHostedBackendSettings
from app.contract.permission_call import Question

QUESTION = Question("ada", "document", "plan", "acme")
TIMEOUT = 0.6


@contextlib.contextmanager
def answering(talk: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[bytes]]]:
    """A server on loopback that reads the beginning of a request and runs ``talk``; its port, and the received data."""
    taken: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    threading.Thread(target=one, args=(peer,), daemon=True).start()

        def one(peer: socket.socket) -> None:
            with peer, contextlib.suppress(OSError):
                taken.append(peer.recv(65536))
                talk(peer)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], taken
        listener.shutdown(socket.SHUT_RDWR)


def asked(port: int, *, tries: int = 1) -> tuple[object, float]:
    url = f"http://127.0.0.1:{port}/x"
    provider = ProviderConfig(url=url, auth_token="t")
    settings = SelfHostedBackendSettings(
        provider_timeout=TIMEOUT, provider_tries=tries, provider_pause=0, provider_deadline=60
    )
    began = time.monotonic()
    with open_session(allow_private=True) as session:
        verdicts = ask(provider, settings, [QUESTION], session, time.sleep)
    return verdicts[0], time.monotonic() - began


def drip(peer: socket.socket, text: bytes, again: bytes) -> None:
    peer.sendall(text)
    for _ in range(200):
        peer.sendall(again)
        time.sleep(0.05)


SLOW: dict[str, Callable[[socket.socket], None]] = {
    "nothing": lambda peer: time.sleep(5),
    "a status line that drips": lambda peer: drip(peer, b"HTTP/1.1 200 O", b"K"),
    "headers that drip": lambda peer: drip(peer, b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"),
    "a header that drips": lambda peer: drip(peer, b"HTTP/1.1 200 OK\r\nx-a: ", b"b"),
    "1xx without end": lambda peer: drip(peer, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body that drips": lambda peer: drip(peer, b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b" "),
    "chunks that drip": lambda peer: drip(
        peer, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_an_answer_that_takes_too_long_is_none(name: str) -> None:
    with answering(SLOW[name]) as (port, _):
        verdict, seconds = asked(port)
    assert verdict is None
    assert seconds < 2 * TIMEOUT + 0.5


def flood(peer: socket.socket, head: bytes, piece: bytes) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\n" + head)
    for _ in range(2000):
        peer.sendall(piece)


ENDLESS: dict[str, Callable[[socket.socket], None]] = {
    "a body": lambda peer: flood(peer, b"\r\n", b" " * 65536),
    "chunks": lambda peer: flood(peer, b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "headers": lambda peer: flood(peer, b"", b"x-a: b\r\n" * 8192),
    "one header": lambda peer: flood(peer, b"x-a: ", b"b" * 65536),
    "a compressed bomb": lambda peer: peer.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
        + __import__("gzip").compress(b" " * 50_000_000)
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_that_is_too_large_is_none(name: str) -> None:
    with answering(ENDLESS[name]) as (port, _):
        verdict, seconds = asked(port)
    assert verdict is None
    assert seconds < 2 * TIMEOUT + 0.5


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(code: int) -> None:
    with answering(lambda peer: None) as (target, reached):
        head = f"HTTP/1.1 {code} X\r\nLocation: http://127.0.0.1:{target}/inside\r\nContent-Length: 0\r\n\r\n".encode()
        with answering(lambda peer: peer.sendall(head)) as (port, _):
            verdict, _ = asked(port)
    assert verdict is None
    assert reached == []


@pytest.mark.parametrize(
    "address",
    [
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::7f00:1",
        "64:ff9b::a00:1",
        "2002:a00:1::1",
        "2001:0:7f00:1::",
        "fec0::1",
        "5f00::1",
        "fc00::1",
        "100::1",
        "2001:db8::1",
        "0.0.0.0",
        "192.0.0.1",
        "198.18.0.1",
        "240.0.0.1",
    ],
)
def test_internal_addresses_are_refused(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize(
    "host",
    [
        "0",
        "0x7f.1",
        "017700000001",
        "2130706433",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::]",
        "[::127.0.0.1]",
        "localhost.",
        "LOCALHOST",
        "a.localhost",
        "foo@127.0.0.1",
        "evil.example@127.0.0.1:80",
        "10.0.0.1.",
    ],
)
def test_internal_hosts_are_refused(host: str) -> None:
    assert names_private_host(f"http://{host}/")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """The addresses of each name, one for each lookup."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def resolve(host: str, port: object, *further: object, **options: object) -> list[object]:
        if host not in known:
            return list(real(host, port, *further, **options))  # type: ignore[arg-type]  # passed on as they came
        answers = known[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["169.254.169.254"], ["::ffff:127.0.0.1"]]
)
def test_name_with_an_internal_address_is_not_called(names: dict[str, list[list[str]]], addresses: list[str]) -> None:
    names["provider.example"] = [addresses]
    with answering(lambda peer: None) as (port, reached):
        for scheme in ("http", "https"):
            with open_session(allow_private=False) as session, pytest.raises(requests.ConnectionError):
                session.get(f"{scheme}://provider.example:{port}/", timeout=1)
    assert reached == []


def test_rebinding_name_is_called_at_the_checked_address(names: dict[str, list[list[str]]]) -> None:
    # Addresses reserved for documentation are private to Usher; 192.0.32.7 is a public one.
    names["provider.example"] = [["192.0.32.7"], ["127.0.0.1"]]
    called: list[object] = []
    real = vars(outgoing)["create_connection"]

    def connect(address: tuple[str, int], *further: object, **options: object) -> socket.socket:
        called.append(address[0])
        raise OSError("not from here")

    with pytest.MonkeyPatch.context() as patch, open_session(allow_private=False) as session:
        patch.setattr(outgoing, "create_connection", connect)
        with pytest.raises(requests.ConnectionError):
            session.get("http://provider.example/", timeout=1)
    assert called == ["192.0.32.7"]
    assert real is vars(outgoing)["create_connection"]


def test_unreachable_address_is_followed_by_the_next(names: dict[str, list[list[str]]]) -> None:
    def greet(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    names["receiver.example"] = [["127.0.0.3", "127.0.0.2", "127.0.0.1"]]
    with answering(greet) as (port, _), open_session(allow_private=True) as session:
        assert session.get(f"http://receiver.example:{port}/", timeout=1).text == "hi"


@pytest.mark.parametrize("allow_private", [False, True])
def test_silent_name_server_is_bounded_by_the_timeout(monkeypatch: pytest.MonkeyPatch, allow_private: bool) -> None:
    silence = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [silence.wait(20)][:0])
    began = time.monotonic()
    with open_session(allow_private=allow_private) as session, pytest.raises(requests.ConnectTimeout):
        session.get("http://receiver.example/", timeout=TIMEOUT)
    assert time.monotonic() - began < TIMEOUT + 0.5
    silence.set()
