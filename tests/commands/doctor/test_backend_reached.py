"""The doctor's findings if another server answers at the backend's address, or none."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.client.client import BackendClient
from app.client.errors import ClientError
from app.client.retry import RetryPolicy
from app.commands.doctor.backend import check_backend
from app.commands.doctor.finding import Finding, State
from app.commands.doctor.registration import _check_service
from app.commands.doctor.settings import check_settings
from app.contract import operations
from app.contract.organizations import GetOrganizationsRequest
from app.foundation.clock import utc_now
from app.settings import load_settings
from tests.foundation.outbound.servers import Answering, Authority, ForwardProxy, web_server

HTML = {"Content-Type": "text/html; charset=utf-8"}
NO_SUCH_PATH = json.dumps({"error": {"status": "NOT_FOUND", "message": "there is nothing at this path"}}).encode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def given(url: str, **further: object) -> dict[str, object]:
    named = {key.replace("__", "."): value for key, value in further.items()}
    return {"backend.base_url": url, "backend.api_key": "K", "backend.auth_token": "T", **named}


def backend_finding(url: str, **further: object) -> Finding:
    """The finding about an unusable backend."""
    settings = load_settings(Path("/dev/null"), environment={}, command_line=given(url, **further)).settings
    [finding] = check_backend(settings, clock=utc_now)
    return finding


def synced(url: str) -> str:
    """The error of a plan or a sync."""
    settings = load_settings(Path("/dev/null"), environment={}, command_line=given(url)).settings
    policy = RetryPolicy(repeats=0, max_waiting=0)
    with BackendClient(settings.backend, policy=policy) as client, pytest.raises(ClientError) as caught:
        client.call(operations.GET_ORGANIZATIONS, GetOrganizationsRequest(page_size=1))
    return str(caught.value)


@contextlib.contextmanager
def answering(code: int, body: bytes, headers: dict[str, str]) -> Iterator[str]:
    with web_server(Answering(code=code, body=body, headers=headers)) as server:
        yield server.url


@pytest.mark.parametrize(
    ("code", "body", "headers", "path", "message", "advice"),
    [
        (404, NO_SUCH_PATH, {"Content-Type": "application/json"}, "/v2", "no backend answers at", "omit /v2"),
        (404, b"<html>", HTML, "", "no backend answers at", "not of another web server"),
        (405, b"<html>", HTML, "", "no backend answers at", "not of another web server"),
        (200, b"<html>", HTML, "", "HTTP 200 and text/html instead of a backend's JSON", "not of another web server"),
        (400, b"<html>", HTML, "", "HTTP 400 and text/html", "not of another web server"),
        (403, b"<html>", HTML, "", "a server in front of the backend refuses access", "allow this machine"),
        (302, b"", {"Location": "https://login.acme.example/"}, "", "redirects (HTTP 302)", "to the target"),
        (
            502,
            b"<html>",
            HTML,
            "",
            "a load balancer or proxy without a backend behind it",
            "check that the backend runs",
        ),
        (
            503,
            b"<html>",
            HTML,
            "",
            "a load balancer or proxy without a backend behind it",
            "check that the backend runs",
        ),
    ],
)
def test_answers_of_other_servers(
    code: int, body: bytes, headers: dict[str, str], *, path: str, message: str, advice: str
) -> None:
    with answering(code, body, headers) as url:
        finding = backend_finding(url + path)
    assert (finding.name, finding.state) == ("backend", State.PROBLEM)
    assert message in finding.message
    assert advice in finding.advice


@pytest.mark.parametrize(
    ("code", "headers", "message"),
    [
        (404, HTML, "see that backend.base_url has no version or path in it"),
        (200, HTML, "the answer is not JSON: see that backend.base_url leads to the backend"),
        (502, HTML, ": HTTP 502 without a readable error message; is there a backend behind that address? (after"),
        (503, HTML, ": HTTP 503 without a readable error message; is there a backend behind that address? (after"),
    ],
)
def test_plan_and_sync_name_the_address(code: int, headers: dict[str, str], message: str) -> None:
    with answering(code, b"<html>", headers) as url:
        assert message in synced(url)


def test_tls_and_plain_http_are_distinguished(authority: Authority) -> None:
    with web_server(Answering()) as plain, web_server(Answering(), authority.server_context()) as tls:
        to_plain, to_tls = plain.url.replace("http", "https"), tls.url.replace("https", "http")
        output = backend_finding(to_plain)
        assert "speaks plain HTTP, but the request used TLS" in output.message
        assert "let backend.base_url begin with http://" in output.advice
        assert "speaks plain HTTP, but the request used TLS: let backend.base_url begin with http://" in synced(
            to_plain
        )
        output = backend_finding(to_tls)
        assert "speaks TLS, but the request was plain HTTP" in output.message
        assert "let backend.base_url begin with https://" in output.advice
        assert "speaks TLS, but the request was plain HTTP: let backend.base_url begin with https" in synced(to_tls)
        output = backend_finding(tls.url)
        assert "is not trusted" in output.message
        assert "backend.ca_file" in output.advice
        assert "set backend.ca_file to" in synced(tls.url)


def test_unreachable_backend(closed_port: int) -> None:
    output = backend_finding(f"http://127.0.0.1:{closed_port}")
    assert "nothing listens at" in output.message
    assert "backend.proxy" in output.advice
    output = backend_finding("http://backend.invalid")
    assert "the name backend.invalid cannot be resolved" in output.message
    assert "is spelt right" in output.advice


def test_proxy_failures(closed_port: int) -> None:
    output = backend_finding(
        "https://backend.acme.example", backend__proxy=f"http://me:TOPSECRET@127.0.0.1:{closed_port}"
    )
    assert f"no connection to the proxy: nothing listens at 127.0.0.1:{closed_port}" in output.message
    assert "see that backend.proxy is right" in output.advice
    proxy = ForwardProxy("me:secret")
    output = backend_finding("https://backend.acme.example", backend__proxy=f"http://me:TOPSECRET@{proxy.place}")
    proxy.close()
    assert "does not accept the credentials" in output.message
    assert "into backend.proxy" in output.advice
    assert "TOPSECRET" not in output.message + output.advice


@pytest.mark.parametrize(
    ("environment", "warned"),
    [
        ({"HTTPS_PROXY": "http://proxy:3128"}, "HTTPS_PROXY"),
        ({"https_proxy": "http://proxy:3128"}, "https_proxy"),
        ({"ALL_PROXY": "http://proxy:3128"}, "ALL_PROXY"),
        ({"HTTP_PROXY": "http://proxy:3128"}, ""),
        ({"HTTPS_PROXY": ""}, ""),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "localhost,.acme.example"}, ""),
        ({"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "api.acme.example:443"}, ""),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, ""),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "me.example"}, "HTTPS_PROXY"),
    ],
)
def test_ignored_proxy_is_reported(environment: dict[str, str], warned: str) -> None:
    for proxy, expected in (("", warned), ("http://proxy:3128", "")):
        values = given("https://api.acme.example", backend__proxy=proxy)
        configuration = load_settings(Path("/dev/null"), environment={}, command_line=values)
        output = [finding for finding in check_settings(configuration, environment) if finding.name == "proxy"]
        assert [finding.message.partition(" ")[0] for finding in output] == ([expected] if expected else [])
        assert all(finding.state is State.WARNING and "backend.proxy" in finding.advice for finding in output)


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_ignored_certificates_are_reported(authority: Authority, variable: str) -> None:
    environment = {variable: "/etc/corp.pem"}
    with web_server(Answering(), authority.server_context()) as tls:
        settings = load_settings(Path("/dev/null"), environment={}, command_line=given(tls.url)).settings
        [output] = check_backend(settings, clock=utc_now, environment=environment)
    assert f"{variable} names /etc/corp.pem, which Usher does not read" in output.message
    assert "backend.ca_file" in output.advice


def service_finding(url: str, **further: object) -> Finding:
    """The finding about the registered address."""
    values = given("http://127.0.0.1:8090", provider__auth_tokens=["ask"], **further)
    settings = load_settings(Path("/dev/null"), environment={}, command_line=values).settings
    return _check_service(url, "ask", settings, lambda: None)


@pytest.mark.parametrize(
    ("code", "body", "state", "message"),
    [
        (200, b'{"data": [], "success": true, "statusCode": 200}', State.OK, "answers"),
        (400, b'{"error": {"status": "INVALID_ARGUMENT", "message": "no questions"}}', State.OK, "answers"),
        (200, b"<html>", State.PROBLEM, "not as a permission provider does"),
        (401, b"{}", State.PROBLEM, "does not accept the backend's token"),
        (404, b"{}", State.PROBLEM, "there is no permission provider at this path"),
        (502, b"", State.PROBLEM, "usher serve does not run behind it"),
        (503, b"", State.PROBLEM, "or cannot answer yet"),
    ],
)
def test_answers_of_the_registered_address(code: int, body: bytes, state: State, message: str) -> None:
    with answering(code, body, {"Content-Type": "application/json"}) as url:
        output = service_finding(url + "/permissions/check?x=SECRET")
    assert output.state is state
    assert message in output.message
    assert "SECRET" not in output.message


def test_registered_addresses_without_an_answer(authority: Authority, closed_port: int) -> None:
    output = service_finding(f"http://127.0.0.1:{closed_port}/permissions/check")
    assert (output.state, "start usher serve" in output.advice) == (State.PROBLEM, True)
    output = service_finding("http://usher.invalid/permissions/check")
    assert (output.state, "right host name" in output.advice) == (State.PROBLEM, True)
    with web_server(Answering()) as plain, web_server(Answering(), authority.server_context()) as tls:
        output = service_finding(plain.url.replace("http", "https"))
        assert (output.state, output.advice.startswith("register it with http://")) == (State.PROBLEM, True)
        # The backend may trust whom we do not.
        assert service_finding(tls.url).state is State.WARNING
        assert "backend.ca_file" in service_finding(tls.url).advice
        output = service_finding(tls.url, backend__base_url=tls.url, backend__ca_file=str(authority.ca_file))
        assert "the backend calls itself" in output.message


def test_registered_address_behind_the_proxy(authority: Authority) -> None:
    proxy = ForwardProxy()
    answer = Answering(body=b'{"data": []}')
    with web_server(answer, authority.server_context("usher.invalid")) as server:
        proxy.names["usher.invalid"] = ("127.0.0.1", server.port)
        route = {"backend__proxy": f"http://{proxy.place}", "backend__ca_file": str(authority.ca_file)}
        output = service_finding(f"https://usher.invalid:{server.port}/permissions/check", **route)
    proxy.close()
    assert output.state is State.OK


@pytest.mark.parametrize("url", ["", "nonsense", "http://[::1", "http://h:port/x", "ftp://h/x"])
def test_invalid_registered_address(url: str) -> None:
    assert service_finding(url).state is not State.OK
