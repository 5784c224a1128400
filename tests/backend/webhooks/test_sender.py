"""Requests to receivers that respond slowly, endlessly or not at all."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from app.backend.security.outgoing import ConnectionWatch, open_session, time_limit
from app.backend.webhooks.sender import open_sender

from .conftest import Receiver

Talk = Callable[[socket.socket], None]


@pytest.fixture
def make_peer() -> Iterator[Callable[[Talk], str]]:
    """A factory of servers that pass each connection to a function."""
    listeners: list[socket.socket] = []

    def make(talk: Talk) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        talk(connection)
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    yield make
    for listener in listeners:
        listener.close()


def send_nothing(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def drip_a_header(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


def drip_a_status(connection: socket.socket) -> None:
    connection.recv(65536)
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.05)


@pytest.mark.parametrize("talk", [send_nothing, drip_a_header, drip_a_status])
def test_the_timeout_limits_the_whole_request(make_peer: Callable[[Talk], str], talk: Talk) -> None:
    send = open_sender(allow_private=True, timeout=0.5)
    started = time.monotonic()
    outcome = send(make_peer(talk), {}, b"{}")
    assert time.monotonic() - started < 3
    assert outcome.status_code is None
    assert outcome.problem == "no answer in time"


def talk_nonsense(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"\xff\xfe nonsense \r\n\r\n")


def hang_up(connection: socket.socket) -> None:
    connection.recv(10)


@pytest.mark.parametrize("talk", [talk_nonsense, hang_up])
def test_an_invalid_response_is_a_failure(make_peer: Callable[[Talk], str], talk: Talk) -> None:
    outcome = open_sender(allow_private=True, timeout=5)(make_peer(talk), {}, b"{}")
    assert outcome.status_code is None
    assert outcome.problem.startswith("no answer: ")


def test_an_endless_response_is_not_read(make_peer: Callable[[Talk], str]) -> None:
    sent = 0

    def flood(connection: socket.socket) -> None:
        nonlocal sent
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent += connection.send(b"x" * 65536)

    outcome = open_sender(allow_private=True, timeout=5)(make_peer(flood), {}, b"{}")
    assert outcome.problem == ""
    time.sleep(0.2)
    assert sent < 32 * 1024 * 1024


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://localhost:{port}/"])
def test_private_addresses_are_not_called(receiver: Receiver, url: str) -> None:
    outcome = open_sender(allow_private=False, timeout=5)(url.format(port=receiver.url.rpartition(":")[2]), {}, b"{}")
    assert outcome.problem.startswith("no answer: ")
    assert receiver.got == []


def test_cookies_are_not_kept(receiver: Receiver) -> None:
    receiver.answer_headers = {"Set-Cookie": "a=b; Path=/"}
    send = open_sender(allow_private=True, timeout=5)
    for _ in range(2):
        assert send(receiver.url, {}, b"{}").problem == ""
    assert "cookie" not in receiver.got[1].headers


@pytest.mark.parametrize("url", ["http://[::1", "http://\udcff/", "http://" + "a" * 70 + ".example/", "http://a..b/"])
def test_unreachable_urls_are_a_failure(url: str) -> None:
    assert open_sender(allow_private=True, timeout=5)(url, {}, b"{}").problem


@pytest.fixture
def tls_receiver(receiver: Receiver, tmp_path: Path) -> Path:
    """A receiver on TLS, and its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, SHA256())
    )
    path = tmp_path / "tls.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    receiver.wrap(context)
    return path


def test_certificates_are_checked(receiver: Receiver, tls_receiver: Path) -> None:
    outcome = open_sender(allow_private=True, timeout=5)(receiver.url, {}, b"{}")
    assert outcome.problem == "no answer: SSLError"
    assert receiver.got == []


def test_the_timeout_limits_requests_over_tls(receiver: Receiver, tls_receiver: Path) -> None:
    session = open_session(allow_private=True)
    session.verify = str(tls_receiver)
    with time_limit(5) as watch:
        assert session.post(receiver.url, data=b"{}", headers={"Connection": "close"}, timeout=5).status_code == 200
    assert not watch.was_cut
    receiver.on_request = lambda _: time.sleep(2)
    started = time.monotonic()
    with time_limit(0.5) as watch, pytest.raises(requests.ConnectionError):
        session.post(receiver.url, data=b"{}", timeout=30)
    assert watch.was_cut
    assert time.monotonic() - started < 1.9


def test_a_connection_that_is_made_after_the_time_limit_is_cut_at_once() -> None:
    watch = ConnectionWatch()
    watch.cut()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(5)
        watch.add(ours)
        assert theirs.recv(1) == b""
    watch.release()
