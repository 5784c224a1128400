"""TLS connections, and logins without a password."""

import socket
import struct
from pathlib import Path

import pytest

from tests.foundation.outbound.servers import Authority, raw_server
from tests.ldap import slapd
from tests.ldap.asking import ask, of_slapd
from tests.ldap.conftest import need

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("ldap")]


def test_starttls_requires_a_trusted_certificate(library: None, tmp_path: Path) -> None:
    need(slapd.programs())
    (tmp_path / "ours").mkdir()
    (tmp_path / "other").mkdir()
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    file = ours.server_file("127.0.0.1")
    server = slapd.Slapd(tmp_path / "slapd", slapd.company(5, 1), tls=(file, file))
    with slapd.running(server):
        trusted = ask(of_slapd(server.port, starttls=True, ca_file=ours.ca_file))
        assert (trusted.verdict, trusted.reason) == ("complete", "")
        untrusted = ask(of_slapd(server.port, starttls=True, ca_file=other.ca_file))
        assert untrusted.verdict == "failed"
        assert f"the TLS certificate of 127.0.0.1:{server.port} is not trusted: " in untrusted.reason
        assert "; set ca_file to a file with the certificate of the authority" in untrusted.reason
        plain = ask(of_slapd(server.port, url=f"ldaps://127.0.0.1:{server.port}", ca_file=ours.ca_file))
        assert f"no TLS handshake with 127.0.0.1:{server.port}: " in plain.reason
        assert "; see that url names a port that speaks TLS" in plain.reason
        unnamed = ask(of_slapd(server.port, starttls=True))
        assert (unnamed.verdict, unnamed.objects) == ("failed", {})


def test_a_certificate_for_localhost_is_explained(library: None, tmp_path: Path) -> None:
    """The library checks a connection to localhost against the name of this machine."""
    need(slapd.programs())
    (tmp_path / "ours").mkdir()
    ours = Authority(tmp_path / "ours")
    file = ours.server_file("localhost")
    server = slapd.Slapd(tmp_path / "slapd", slapd.company(5, 1), tls=(file, file))
    with slapd.running(server):
        answer = ask(of_slapd(server.port, url=f"ldap://localhost:{server.port}", starttls=True, ca_file=ours.ca_file))
        assert answer.verdict == "failed"
        assert f"localhost:{server.port} is for another host than {socket.gethostname()}" in answer.reason
        assert "let url name" in answer.reason


def test_sasl_external_needs_no_password(library: None, standing_slapd: slapd.Slapd) -> None:
    external = {"url": standing_slapd.socket_url, "sasl": "external", "bind_dn": "", "bind_password": ""}
    answer = ask(of_slapd(standing_slapd.port, base=f"ou=groups,{slapd.SUFFIX}", **external))
    assert (answer.verdict, len(answer.objects["groups"])) == ("complete", 41)
    elsewhere = ask(of_slapd(standing_slapd.port, **(external | {"url": standing_slapd.url})))
    assert elsewhere.verdict == "failed"
    assert elsewhere.reason.startswith("sasl: external did not work")


def test_a_plain_response_on_a_tls_port_is_explained(library: None) -> None:
    def talk(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(bytes.fromhex("300c02010078070a010204000400"))  # a notice of disconnection
        peer.recv(4096)

    with raw_server(talk) as port:
        answer = ask(of_slapd(port, url=f"ldaps://127.0.0.1:{port}"))
    assert answer.reason.endswith(
        f"no TLS handshake with 127.0.0.1:{port}: the response is not TLS; see that url names a port that speaks TLS"
    )


def test_a_lost_connection_names_the_server(library: None) -> None:
    def reset(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with raw_server(reset) as port:
        answer = ask(of_slapd(port, url=f"ldaps://127.0.0.1:{port}"))
    lost = f"127.0.0.1:{port}: the connection was lost before an answer came (Connection reset by peer)"
    assert lost in answer.reason


def test_a_file_without_a_certificate_is_named(library: None, tmp_path: Path) -> None:
    file = tmp_path / "authority.pem"
    file.write_text("nothing")

    def listen(peer: socket.socket) -> None:
        peer.recv(4096)

    with raw_server(listen) as port:
        answer = ask(of_slapd(port, url=f"ldaps://127.0.0.1:{port}", ca_file=str(file)))
    assert str(file) in answer.reason
