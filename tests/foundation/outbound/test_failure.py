"""Failures of calls to real ports that misbehave."""

import socket
import time
from collections.abc import Callable

import pytest
import requests

from app.foundation.outbound.failure import CallFailure, FailureKind, failure_of
from app.foundation.outbound.probe import probed_failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import session_for
from tests.foundation.outbound.servers import Answering, Authority, raw_server, web_server


def failure(url: str, *, timeout: float = 2.0, route: Route | None = None) -> CallFailure:
    with session_for(route or Route()) as session:
        try:
            with session.post(url, data=b"x", timeout=timeout, allow_redirects=False) as answer:
                raise AssertionError(answer.status_code)
        except (requests.RequestException, OSError) as error:
            return probed_failure_of(error, url, route)


def test_tls_to_a_port_that_speaks_http(plain_server: Answering) -> None:
    result = failure(plain_server.url.replace("http", "https"))
    place = f"127.0.0.1:{plain_server.port}"
    assert result == CallFailure(FailureKind.NOT_TLS, f"{place} speaks plain HTTP, but the request used TLS")
    assert result.is_lasting
    assert not result.may_have_been_sent


def wait_for_a_line(peer: socket.socket) -> None:
    """Like a server that waits for the end of a line, which a TLS handshake does not contain."""
    head = b""
    while b"\r\n\r\n" not in head:
        if not (piece := peer.recv(1000)):
            return
        head += piece
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_tls_to_a_port_that_waits_for_plain_http() -> None:
    with raw_server(wait_for_a_line) as port:
        result = failure(f"https://127.0.0.1:{port}", timeout=0.5)
    assert result.kind is FailureKind.NOT_TLS


def test_tls_to_a_silent_port() -> None:
    with raw_server(lambda peer: time.sleep(8)) as port:
        result = failure(f"https://127.0.0.1:{port}", timeout=0.5)
    assert result == CallFailure(
        FailureKind.HANDSHAKE, f"no TLS handshake with 127.0.0.1:{port}: no response within the time allowed"
    )


def test_http_to_a_port_that_speaks_tls(tls_server: Answering) -> None:
    result = failure(tls_server.url.replace("https", "http"))
    place = f"127.0.0.1:{tls_server.port}"
    assert result == CallFailure(FailureKind.TLS_REQUIRED, f"{place} speaks TLS, but the request was plain HTTP")
    assert result.is_lasting
    assert not result.may_have_been_sent


def hang_up(peer: socket.socket) -> None:
    peer.recv(1000)


@pytest.mark.parametrize(
    ("talk", "kind", "message"),
    [
        (hang_up, FailureKind.CONNECTION_LOST, "the connection was lost before an answer came"),
        (lambda peer: time.sleep(4), FailureKind.RESPONSE_TIMEOUT, "no answer within the time allowed"),
        (lambda peer: peer.sendall(b"\x15\x03\x01\x00\x02\x02\x46"), FailureKind.TLS_REQUIRED, "speaks TLS"),
        (lambda peer: peer.sendall(b"220 mail.test ready\r\n"), FailureKind.CONNECTION_LOST, "the connection was lost"),
    ],
    ids=["hangs up", "is silent", "TLS alert", "another protocol"],
)
def test_port_that_does_not_answer(talk: Callable[[socket.socket], None], kind: FailureKind, message: str) -> None:
    with raw_server(talk) as port:
        result = failure(f"http://127.0.0.1:{port}", timeout=0.5)
    assert result.kind is kind
    assert message in result.message
    assert result.may_have_been_sent is (kind in {FailureKind.CONNECTION_LOST, FailureKind.RESPONSE_TIMEOUT})


def test_unknown_host_name() -> None:
    result = failure("https://backend.invalid")
    assert result.kind is FailureKind.UNRESOLVED
    assert result.message.startswith("the name backend.invalid cannot be resolved (")


def test_port_without_a_listener(closed_port: int) -> None:
    result = failure(f"https://127.0.0.1:{closed_port}")
    assert result == CallFailure(
        FailureKind.REFUSED, f"nothing listens at 127.0.0.1:{closed_port} (connection refused)"
    )


def test_unreachable_network() -> None:
    # The broadcast address: no TCP connection is made to it.
    result = failure("http://255.255.255.255/", timeout=1)
    assert result.kind is FailureKind.UNREACHABLE
    assert result.message.startswith("no connection to 255.255.255.255:80: ")


def test_full_queue_of_connections() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        result = failure(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5)
        for client in waiting:
            client.close()
    assert result.kind is FailureKind.CONNECT_TIMEOUT


def test_error_page_for_plain_http_on_a_tls_port_is_not_taken_for_http(
    authority: Authority,
) -> None:
    """nginx does this on its TLS ports."""
    context = authority.server_context()

    def talk(peer: socket.socket) -> None:
        if peer.recv(1, socket.MSG_PEEK) != b"\x16":
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        with context.wrap_socket(peer, server_side=True) as created:
            created.recv(1000)

    with raw_server(talk) as port:
        result = failure(f"https://127.0.0.1:{port}", route=Route(str(authority.ca_file)))
    assert result.kind is FailureKind.CONNECTION_LOST


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (requests.ConnectTimeout(), FailureKind.CONNECT_TIMEOUT),
        (requests.ReadTimeout(), FailureKind.RESPONSE_TIMEOUT),
        (requests.ConnectionError(), FailureKind.OTHER),
        (requests.exceptions.InvalidURL(), FailureKind.INVALID_URL),
        (ConnectionRefusedError(), FailureKind.REFUSED),
        (BrokenPipeError(), FailureKind.CONNECTION_LOST),
    ],
)
def test_no_sentence_names_a_class(error: Exception, kind: FailureKind) -> None:
    result = failure_of(error, "http://backend.example")
    assert result.kind is kind
    assert type(error).__name__ not in result.message


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_has_advice(kind: FailureKind) -> None:
    reported = CallFailure(kind, "x").advice(address="backend.base_url", section="backend")
    assert reported
    assert reported[0].islower()
    assert not reported.endswith(".")


def test_servers_with_and_without_tls_are_distinguished(authority: Authority, plain_server: Answering) -> None:
    with web_server(Answering(), authority.server_context()) as other:
        assert failure(other.url.replace("https", "http")).kind is FailureKind.TLS_REQUIRED
        assert failure(plain_server.url.replace("http", "https")).kind is FailureKind.NOT_TLS
