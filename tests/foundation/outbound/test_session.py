"""Outgoing sessions keep no cookies and ignore the environment."""

import ast
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pydantic import SecretStr

import app
from app.backend.permissions.provider_call import ask
from app.backend.permissions.provider_config import ProviderConfig
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.backend.webhooks.sender import open_sender
from app.client.transport import Transport
from app.commands.demo.questions import _reasons
from app.commands.doctor.registration import _call
from app.contract.permission_call import Question
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import bare_session
from app.http.listening import wait_until_ready
from app.monitoring.notify.channels import Webhook
from app.monitoring.notify.message import Message
from app.monitoring.notify.settings import WebhookSettings

CODE = Path(app.__file__).parent
MAKERS = {"app/foundation/outbound/session.py"}
"""Where sessions are made."""
CALLS = {"get", "post", "put", "patch", "delete", "head", "options", "request"}


class Server:
    """Answers every request with cookies of all kinds, and records the cookies that it receives."""

    def __init__(self) -> None:
        self.cookies: list[str | None] = []
        self.calls = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.calls += 1
                server.cookies += [value for name, value in self.headers.items() if name.lower().startswith("cookie")]
                self.send_response(200)
                for attributes in (
                    "",
                    "; Path=/",
                    f"; Domain={self.headers['Host'].partition(':')[0]}",
                    "; Max-Age=9999",
                ):
                    self.send_header("Set-Cookie", f"c{len(attributes)}=one{attributes}")
                body = b'{"success": true, "data": []}'
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST  # noqa: N815 - the base class's name

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Two servers on one host, because cookies ignore ports."""
    both = [Server(), Server()]
    yield both
    for server in both:
        server.http.shutdown()
        server.http.server_close()


def permission_provider() -> Callable[[str], object]:
    session = open_session(allow_private=True)
    question = Question("ada", "document", "plan", "acme")
    settings = SelfHostedBackendSettings(provider_timeout=5, provider_tries=2, provider_pause=0, provider_deadline=20)
    return lambda url: ask(ProviderConfig(url=url), settings, [question], session, time.sleep)


def webhook() -> Callable[[str], object]:
    send = open_sender(allow_private=True, timeout=5)
    return lambda url: send(url, {}, b"{}")


def client() -> Callable[[str], object]:
    transport = Transport(timeout=5, pool_size=2)
    return lambda url: transport.post(url, {}, b"{}")


def notification() -> Callable[[str], object]:
    def send(url: str) -> None:
        settings = WebhookSettings(url=url, secret=SecretStr("whsec_" + "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"))
        Webhook(settings, timeout=5, clock=lambda: datetime.now(UTC)).send(MESSAGE)

    return send


MESSAGE = Message("m", "{}")
KINDS: dict[str, Callable[[], Callable[[str], object]]] = {
    "permission provider": permission_provider,
    "webhook": webhook,
    "client": client,
    "notification": notification,
    "doctor": lambda: lambda url: _call(url, "token", Route()),
    "readiness": lambda: lambda url: wait_until_ready(url, 5, time.sleep),
    "demo": lambda: lambda url: _reasons((), url, {}),
    "session": lambda: bare_session().post,
}


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS)
def test_no_call_carries_a_cookie(servers: list[Server], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    call = KINDS[kind]()
    for server in servers * 3:
        call(server.url)

    assert all(server.calls >= 3 for server in servers)
    assert [server.cookies for server in servers] == [[], []]


def test_sessions_are_made_in_one_place() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(CODE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ""
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "requests":
                name = node.attr if node.attr in {"Session", "session", "sessions"} | CALLS else ""
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {
                "requests",
                "urllib",
                "http",
            }:
                taken = {alias.name for alias in node.names}
                name = ",".join(taken & ({"Session", "session", "request", "urlopen", "HTTPConnection"} | CALLS))
            elif isinstance(node, ast.Import):
                name = ",".join(alias.name for alias in node.names if alias.name in {"urllib.request", "http.client"})
            if name and not _is_a_type(node, path):
                found.setdefault(f"app/{path.relative_to(CODE)}", set()).add(name)
    assert set(found) - MAKERS == set(), found
    assert "app/foundation/outbound/session.py" in found


def _is_a_type(node: ast.AST, path: Path) -> bool:
    """Whether `requests.Session` is only used as a type."""
    return isinstance(node, ast.Attribute) and not any(
        isinstance(other, ast.Call) and ast.unparse(other.func) == ast.unparse(node) and other.lineno == node.lineno
        for other in ast.walk(ast.parse(path.read_text()))
    )
