"""A company's network on loopback: a certificate authority, web servers and a proxy."""

import base64
import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A private certificate authority; its certificate is in ``ca_file``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Acme's own authority")
        self.ca_file = folder / "ca.pem"
        usage = x509.KeyUsage(**{name: name in {"key_cert_sign", "crl_sign"} for name in _USAGES})
        self._certificate = (
            _begun(self._name, self._name, self._key, days=2)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def server_context(self, name: str = "127.0.0.1", *, days: int = 1) -> ssl.SSLContext:
        """The TLS context of a server; its certificate expires in ``days``, which may be negative."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server_file(name, days=days))
        return context

    def server_file(self, name: str = "127.0.0.1", *, days: int = 1) -> Path:
        """A file with the key and the certificate of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            alternative = x509.DNSName(name)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        created = (
            _begun(_named(name), self._name, key, days=days)
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .add_extension(authority_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self.folder / f"{created.serial_number}.pem"
        file.write_bytes(private + created.public_bytes(serialization.Encoding.PEM))
        return file


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(subject: x509.Name, issuer: x509.Name, key: Any, *, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + timedelta(days=days))
    )


@dataclass
class Answering:
    """A web server that answers every request in the same way and records the requests."""

    url: str = ""
    code: int = 200
    body: bytes = b'{"result": {"status": "success", "message": "", "data": {}}}'
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that hang up."""


@contextlib.contextmanager
def web_server(answering: Answering, tls: ssl.SSLContext | None = None) -> Iterator[Answering]:
    """Serves on a free port of loopback, with or without TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def setup(self) -> None:
            if tls is not None:
                # In this thread: nobody else waits for a handshake.
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answering.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(answering.code)
            for name, value in {**answering.headers, "Content-Length": str(len(answering.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answering.body)

        do_GET = do_POST = do_HEAD = answer  # noqa: N815 - the names of the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Quiet."""

    server = _QuietServer(("127.0.0.1", 0), Handler)
    answering.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    with _served(server):
        yield answering


@contextlib.contextmanager
def _served(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class ForwardProxy:
    """A small HTTP proxy: CONNECT, and plain requests with an absolute URL. ``names`` replaces its DNS."""

    def __init__(self, credentials: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.credentials = credentials
        self.names: dict[str, tuple[str, int]] = {}
        self.refuses = ""
        """The status line's end with which every CONNECT is answered."""
        self.went_through: list[str] = []
        self.heads: list[str] = []
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                peer = self._tls.wrap_socket(peer, server_side=True)
            with peer:
                self._pass_on(peer)

    def _pass_on(self, peer: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (piece := peer.recv(65536)):
                return
            head += piece
        text, _, rest = head.partition(b"\r\n\r\n")
        self.heads.append(text.decode())
        first, *lines = text.decode().split("\r\n")
        method, target, _ = first.split(" ")
        wanted = "Basic " + base64.b64encode(self.credentials.encode()).decode()
        if self.credentials and f"Proxy-Authorization: {wanted}" not in lines:
            peer.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        parts = urlsplit(target if "://" in target else f"//{target}")
        host, port = parts.hostname or "", parts.port or 80
        if method == "CONNECT" and self.refuses:
            peer.sendall(f"HTTP/1.1 {self.refuses}\r\nContent-Length: 0\r\n\r\n".encode())
            return
        self.went_through.append(f"{method} {host}:{port}")
        with socket.create_connection(self.names.get(host, (host, port))) as there:
            if method == "CONNECT":
                peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                kept = [line for line in lines if not line.lower().startswith("proxy-")]
                there.sendall("\r\n".join([f"{method} {parts.path} HTTP/1.1", *kept]).encode() + b"\r\n\r\n" + rest)
            back = threading.Thread(target=_pump, args=(there, peer), daemon=True)
            back.start()
            _pump(peer, there)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Runs ``talk`` for each connection to a free port; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def one(peer: socket.socket) -> None:
            with peer, contextlib.suppress(OSError):
                talk(peer)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    threading.Thread(target=one, args=(peer,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
