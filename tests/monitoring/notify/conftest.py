"""Real receivers on loopback: a web server that records requests, and a small mail server."""

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_string
from email.message import EmailMessage as Letter
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import IO

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import Engine, text

from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, writing
from app.sync.ledger.ledger import open_ledger
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import Run, RunRequest, RunStatus
from tests.ports import free_port
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime


@pytest.fixture
def time() -> SimulatedTime:
    return SimulatedTime()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


@dataclass
class Past:
    """Runs with the outcomes that a test needs."""

    runs: Runs
    time: SimulatedTime

    def ended(self, status: RunStatus, **values: object) -> Run:
        """A full run that begins and ends now."""
        run, created = self.runs.enqueue(RunRequest(trigger="schedule"))
        assert created
        self.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=self.time())
        before = RunStatus.READING
        if status is not RunStatus.FAILED:
            before = self.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING).status
        return self.runs.move(run.run_id, before, status, finished_at=self.time(), **values)

    def held(self, deletes: int, kind: str = "document", organization: str = "acme") -> Run:
        reason = f"{deletes} deletes, the limit is 2"
        hold = {"kind": kind, "organizationId": organization, "deletes": deletes, "ledger": 100, "reason": reason}
        return self.ended(
            RunStatus.HELD,
            counts={kind: {"delete": {"held": deletes}}},
            report={"held": [hold]},
            held_until=self.time() + timedelta(days=7),
        )

    def failing(self, *items: str, parked: bool = False) -> None:
        """Replaces the failed items by these documents."""
        ledger = open_ledger(self.runs.engine, "https://backend.example", "key", self.time)
        with writing(self.runs.engine) as connection:
            connection.execute(text("DELETE FROM item_failure"))
            for item in items:
                connection.execute(
                    text(
                        """
                        INSERT INTO item_failure (ledger_id, kind, organization_id, container_id, item_id, deleting,
                            fingerprint, failures, retry_at, parked, message, failing_since)
                        VALUES (:ledger_id, 'document', 'acme', '', :item, FALSE, '', 10, 0, :parked, 'too long',
                            :since)
                        """
                    ),
                    {
                        "ledger_id": ledger.ledger_id,
                        "item": item,
                        "parked": parked,
                        "since": round(self.time().timestamp() * 1000),
                    },
                )


@pytest.fixture
def past(engine: Engine, time: SimulatedTime) -> Past:
    return Past(Runs(engine, time, Random(3)), time)


@dataclass
class Posted:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """A web server. ``answers``: the statuses of its responses; the last one is repeated."""

    url: str
    answers: list[int] = field(default_factory=lambda: [204])
    posted: list[Posted] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.posted.append(Posted(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            code = found.answers.pop(0) if len(found.answers) > 1 else found.answers[0]
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/hooks/usher"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Delivered:
    """A received mail."""

    sender: str
    recipients: list[str]
    letter: Letter
    encrypted: bool
    credentials: str


class MailServer:
    """A mail server for one connection at a time, with EHLO, STARTTLS, AUTH PLAIN, MAIL, RCPT, DATA and QUIT."""

    def __init__(self, certificate: Path) -> None:
        self.delivered: list[Delivered] = []
        self.refuses: dict[str, str] = {}
        """Command → the reply."""
        self.silent = False
        self._certificate = certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        with socket.create_connection(("127.0.0.1", self.port)):
            pass
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._ending.is_set():
                connection.close()
                return
            connection.settimeout(10)
            try:
                self._talk(connection)
            except (OSError, ValueError):
                pass
            finally:
                connection.close()

    def _talk(self, connection: socket.socket) -> None:  # noqa: C901 - a protocol is a list of commands
        if self.silent:
            while connection.recv(1000):
                pass
            return
        lines: IO[bytes] = connection.makefile("rb")
        encrypted, credentials, sender, recipients = False, "", "", list[str]()

        def answer(text: str) -> None:
            connection.sendall(text.encode() + b"\r\n")

        answer("220 mail.test ready")
        while line := lines.readline().decode().strip():
            command = line.partition(" ")[0].upper()
            if command in self.refuses:
                answer(self.refuses[command])
            elif command == "EHLO":
                offered = ["250-mail.test", "250-AUTH PLAIN", *([] if encrypted else ["250-STARTTLS"]), "250 8BITMIME"]
                answer("\r\n".join(offered))
            elif command == "STARTTLS":
                answer("220 go on")
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self._certificate)
                connection = context.wrap_socket(connection, server_side=True)
                lines, encrypted = connection.makefile("rb"), True
            elif command == "AUTH":
                credentials = line.split(" ")[2]
                answer("235 welcome")
            elif command == "MAIL":
                sender = line
                answer("250 ok")
            elif command == "RCPT":
                recipients.append(line.partition("<")[2].partition(">")[0])
                answer("250 ok")
            elif command == "DATA":
                answer("354 go on")
                text = b""
                while (part := lines.readline()) != b".\r\n":
                    text += part
                letter = message_from_string(text.decode(), policy=default)
                self.delivered.append(Delivered(sender, recipients, letter, encrypted, credentials))
                answer("250 taken")
            elif command == "QUIT":
                answer("221 bye")
                return
            else:
                answer("502 unknown")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a self-signed certificate for 127.0.0.1, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificate") / "mail.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def mail_server(certificate: Path) -> Iterator[MailServer]:
    server = MailServer(certificate)
    yield server
    server.close()


@pytest.fixture
def closed_port() -> int:
    """A port without a listener."""
    return free_port()
