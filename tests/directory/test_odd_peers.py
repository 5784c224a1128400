"""Peers that are no directory, such as web servers, fail the read in time."""

import importlib.util
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.directory.source import End, Verdict

pytestmark = [pytest.mark.process]

PAGE = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n<html>no</html>"
NEEDS_LDAP = (
    pytest.mark.external,
    pytest.mark.skipif(
        importlib.util.find_spec("ldap") is None, reason="the library for LDAP is not installed (make ldap)"
    ),
)


@pytest.fixture
def peer() -> Iterator[tuple[int, list[bytes]]]:
    """A port, and the pieces that it sends to each client, a tenth of a second apart."""
    pieces: list[bytes] = []

    def answer(client: socket.socket) -> None:
        with suppress(OSError), client:
            client.recv(4096)
            for piece in pieces:
                client.sendall(piece)
                time.sleep(0.1)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], pieces


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        pytest.param("ldap", [PAGE], marks=NEEDS_LDAP, id="LDAP, HTML"),
        # The header announces a gigabyte, and the body is slow.
        pytest.param("ldap", [b"0", b"\x84", b"\x40\0\0\0", *[b"x"] * 50], marks=NEEDS_LDAP, id="LDAP, by the byte"),
        pytest.param("postgresql", [PAGE], id="PostgreSQL, HTML"),
        pytest.param("mysql+pymysql", [PAGE], id="MySQL, HTML"),
        pytest.param("mysql+pymysql", [b"\xff", b"\xff", b"\xff\0", *[b"x"] * 50], id="MySQL, by the byte"),
    ],
)
def test_a_peer_that_is_no_directory_fails_the_read(
    peer: tuple[int, list[bytes]], source: str, sent: list[bytes]
) -> None:
    port, pieces = peer
    pieces += sent
    given: dict[str, Any] = {"name": "people", "connect_timeout": 1, "answer_timeout": 1}
    if source == "ldap":
        user = {"userId": "it.uid", "name": "it.cn", "email": "it.mail"}
        given |= {"type": "ldap", "url": f"ldap://127.0.0.1:{port}", "base": "dc=x", "preset": "openldap"}
        given |= {"map": [{"from": "users", "user": user}], "bind_dn": "cn=x", "bind_password": "hunter2-hunter2"}
    else:
        url = f"{source}://x:hunter2-hunter2@127.0.0.1:{port}/z"
        given |= {"type": "sql", "url": url, "queries": {"users": "SELECT 1"}}
    [read] = sources_from_settings(DirectorySettings.model_validate({"sources": [given]}))
    began = time.monotonic()
    [end] = read.read()
    assert time.monotonic() - began < 10
    assert isinstance(end, End)
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith("url: ")
    assert "\n" not in end.reason
    assert "hunter2" not in end.reason
