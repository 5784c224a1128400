"""``usher provider register``."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.client.client import BackendClient
from app.contract import operations
from app.contract.base import NoParameters
from app.contract.permissions import PermissionProviderConfig
from app.settings import load_settings

from .conftest import Usher

URL = "https://usher.acme.example/permissions/check"


@pytest.fixture
def usher(usher_with_backend: Usher, folder: Path) -> Usher:
    with (folder / "usher.yaml").open("a") as settings:
        settings.write("provider: {auth_tokens: [the-first-token-of-two, the-second-token-of-two]}\n")
    return usher_with_backend


def stored(folder: Path) -> PermissionProviderConfig:
    with BackendClient(load_settings(folder / "usher.yaml", environment={}).settings.backend) as client:
        return client.call(operations.GET_PERMISSION_PROVIDER_CONFIG, NoParameters()).data


@pytest.mark.process
def test_register_prints_before_and_after(usher: Usher, folder: Path) -> None:
    first = usher("provider", "register", "--url", URL)
    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout == (
        f"before: the backend calls no permission provider\nnow: the backend calls {URL}, with an accepted token\n"
    )
    config = stored(folder)
    state = config.permission_provider_config
    assert config.use_permission_provider
    assert state is not None
    assert (state.permission_provider_url, state.auth_token) == (URL, "the-first-token-of-two")

    (folder / "token").write_text("the-second-token-of-two\n")
    moved = usher("provider", "register", "--url", URL, "--token-file", "token", "--json")
    output = {"usePermissionProvider": True, "permissionProviderUrl": URL, "token": "accepted"}
    # Another of the tokens is a change, although both are accepted.
    assert json.loads(moved.stdout) == {"before": output, "after": output, "changed": True}
    again = usher("provider", "register", "--url", URL, "--token-file", "token", "--json")
    assert json.loads(again.stdout) == {"before": output, "after": output, "changed": False}
    assert "of-two" not in first.output + moved.output + again.output


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("usher.acme.example/permissions/check", "must be an http or https URL, such as https://HOST"),
        ("ftp://usher.acme.example/permissions/check", "must be an http or https URL"),
        ("https://usher.acme.example:0/permissions/check", "must be an http or https URL"),
        ("https://ada:pw@usher.acme.example/permissions/check", "must not contain a user name or password"),
        (URL + "?token=x", "must not have a query or fragment; credentials go into a header"),
        ("https://usher.acme.example", "write https://usher.acme.example/permissions/check"),
        ("https://usher.acme.example/resync", "the service answers at /permissions/check (provider.path)"),
        (URL + "/", "the service answers at /permissions/check (provider.path)"),
        ("http://usher.localhost/permissions/check", "over http anyone on the way reads the token"),
        ("http://usher.acme.example/permissions/check", "over http anyone on the way reads the token"),
    ],
)
def test_register_refuses_wrong_urls(usher_in: Usher, folder: Path, url: str, message: str) -> None:
    # Nobody is asked: nothing listens there.
    (folder / "usher.yaml").write_text(
        "backend: {base_url: 'http://127.0.0.1:9', api_key: k, auth_token: t}\n"
        "provider: {auth_tokens: [a-token-long-enough]}\n"
    )
    result = usher_in("provider", "register", "--url", url)

    assert result.exit_code == 1
    assert result.stderr.startswith("error: --url")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "pw" not in result.stderr


@pytest.mark.process
def test_register_with_any_path_and_plain_http(usher: Usher, folder: Path) -> None:
    url = "http://usher.acme.example/in/front"
    assert usher("provider", "register", "--url", url, "--any-path", "--plain-http").exit_code == 0
    state = stored(folder).permission_provider_config
    assert state is not None
    assert state.permission_provider_url == url


@pytest.mark.process
def test_register_of_a_private_address_names_the_setting(usher: Usher) -> None:
    # On loopback http is as good as https; this backend does not ask there.
    result = usher("provider", "register", "--url", "http://127.0.0.1:8080/permissions/check")
    assert result.exit_code == 1
    assert "must not lead to a private network" in result.stderr
    assert "self_hosted_backend.allow_private_urls" in result.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("another token", "is not among provider.auth_tokens"),
        ("", "must contain one token, on one line"),
        ("one\ntwo\n", "must contain one token, on one line"),
    ],
)
def test_register_refuses_unaccepted_tokens(usher_in: Usher, folder: Path, content: str, message: str) -> None:
    (folder / "usher.yaml").write_text(
        "backend: {base_url: 'http://127.0.0.1:9', api_key: k, auth_token: t}\n"
        "provider: {auth_tokens: [a-token-long-enough]}\n"
    )
    (folder / "token").write_text(content)
    result = usher_in("provider", "register", "--url", URL, "--token-file", "token")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "another token" not in result.stderr


def test_register_names_the_missing_setting(usher_in: Usher, folder: Path) -> None:
    nothing = usher_in("provider", "register", "--url", URL)
    assert nothing.exit_code == 1
    assert "backend.api_key and backend.auth_token are empty" in nothing.stderr
    (folder / "usher.yaml").write_text("backend: {api_key: k, auth_token: t}\n")
    tokenless = usher_in("provider", "register", "--url", URL)
    assert tokenless.exit_code == 1
    assert "provider.auth_tokens is empty" in tokenless.stderr


class Lacking(BaseHTTPRequestHandler):
    """A backend that returns its permission provider, but has no operation to change it."""

    returns_config = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        known = self.returns_config and self.path.endswith("/permissionproviderconfig/get")
        result: dict[str, Any] = {"result": {"status": "success", "message": "ok", "data": {}}}
        body = json.dumps(result if known else {"error": {"status": "NOT_FOUND", "message": "no"}}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class LackingBoth(Lacking):
    returns_config = False


@pytest.mark.process
@pytest.mark.parametrize("lacking", [Lacking, LackingBoth])
def test_register_without_the_operation_is_one_line(usher_in: Usher, folder: Path, lacking: type[Lacking]) -> None:
    for url in serving(lacking):
        (folder / "usher.yaml").write_text(
            f"backend: {{base_url: '{url}', api_key: k, auth_token: t}}\n"
            "provider: {auth_tokens: [a-token-long-enough]}\n"
        )
        result = usher_in("provider", "register", "--url", URL)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1
    assert "does not have the operation Update Permission Provider Config" in result.stderr
    assert "in its console" in result.stderr
    assert ("backend.base_url" in result.stderr) == (not lacking.returns_config)


def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
