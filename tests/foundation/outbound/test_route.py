"""Calls to the backend and to webhooks with a private certificate authority, a proxy, or both."""

import io
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.client.client import BackendClient
from app.client.errors import NotReached
from app.client.retry import RetryPolicy
from app.client.settings import BackendSettings
from app.contract import operations
from app.contract.users import DeleteUsersRequest
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.configuration.showing import setting_rows
from app.foundation.logs import LogSettings, configure_logs
from app.monitoring.notify.channels import Webhook
from app.monitoring.notify.message import Message, NotDeliveredError
from app.monitoring.notify.settings import EmailSettings, WebhookSettings
from app.settings import load_settings
from tests.foundation.outbound.servers import Answering, Authority, ForwardProxy, web_server

SECRET = "whsec_QSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyAxMjM="
CREDENTIALS = "usher:TOP%25SECRET@"


def call(url: str, **settings: object) -> None:
    """One call to the backend at ``url``, without retries."""
    values = BackendSettings.model_validate({"base_url": url, "api_key": "K", "auth_token": "T", **settings})
    with BackendClient(values, policy=RetryPolicy(repeats=0)) as client:
        client.call(operations.DELETE_USERS, DeleteUsersRequest(organization_id="acme", user_ids=["ada"]))


def send(url: str, **settings: object) -> None:
    """One message to a webhook at ``url``."""
    values = WebhookSettings.model_validate({"url": url, "secret": SECRET, **settings})
    Webhook(values, timeout=5, clock=lambda: datetime(2026, 11, 20, tzinfo=UTC)).send(Message("msg_1", "{}"))


@pytest.fixture(params=[call, send], ids=["backend", "webhook"])
def way(request: pytest.FixtureRequest) -> object:
    """Each kind of call that uses a configured route."""
    return request.param


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All log lines, including those of libraries."""
    stream = io.StringIO()
    configure_logs(LogSettings(level="debug", format="json"), stream=stream)
    yield stream
    logging.getLogger().handlers = []


Way = Callable[..., None]


def test_private_authority_in_ca_file_is_trusted(tls_server: Answering, authority: Authority, way: Way) -> None:
    with pytest.raises((NotReached, NotDeliveredError), match=r"is not trusted: .*local issuer") as caught:
        way(tls_server.url)
    assert tls_server.asked == []
    assert "Error" not in str(caught.value)
    way(tls_server.url, ca_file=str(authority.ca_file))
    assert len(tls_server.asked) == 1


def test_ca_file_replaces_the_public_authorities(
    tls_server: Answering, authority: Authority, tmp_path: Path, way: Way
) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises((NotReached, NotDeliveredError), match="is not trusted"):
        way(tls_server.url, ca_file=str(Authority(tmp_path / "other").ca_file))
    assert tls_server.asked == []


def test_certificate_for_another_host_or_of_another_time_is_refused(authority: Authority, way: Way) -> None:
    for context, message in (
        (authority.server_context("else.example"), "is for another host"),
        (authority.server_context(days=-1), "is not valid now: certificate has expired"),
    ):
        with web_server(Answering(), context) as server:
            with pytest.raises((NotReached, NotDeliveredError), match=message):
                way(server.url, ca_file=str(authority.ca_file))
            assert server.asked == []


def test_tls_goes_through_a_proxy(
    tls_server: Answering, authority: Authority, proxy: ForwardProxy, way: Way, log: io.StringIO
) -> None:
    # A name that only the proxy can resolve.
    proxy.names["backend.acme.example"] = ("127.0.0.1", tls_server.port)
    with web_server(Answering(), authority.server_context("backend.acme.example")) as inside:
        proxy.names["backend.acme.example"] = ("127.0.0.1", inside.port)
        way(
            f"https://backend.acme.example:{inside.port}",
            ca_file=str(authority.ca_file),
            proxy=f"http://{CREDENTIALS}{proxy.place}",
        )
        assert len(inside.asked) == 1
        assert "proxy-authorization" not in inside.asked[0][1]
    assert proxy.went_through == [f"CONNECT backend.acme.example:{inside.port}"]
    assert "SECRET" not in log.getvalue()


def test_plain_http_goes_through_a_proxy(plain_server: Answering, proxy: ForwardProxy, way: Way) -> None:
    way(plain_server.url, proxy=f"http://{CREDENTIALS}{proxy.place}")
    assert len(plain_server.asked) == 1
    assert proxy.went_through == [f"POST 127.0.0.1:{plain_server.port}"]


def test_certificate_of_a_proxy_is_checked_on_the_way_to_any_address(
    plain_server: Answering, tls_server: Answering, authority: Authority, way: Way
) -> None:
    proxy = ForwardProxy("usher:TOP%SECRET", authority.server_context())
    for server in (plain_server, tls_server):
        with pytest.raises((NotReached, NotDeliveredError), match="proxy"):
            way(server.url, proxy=f"https://{CREDENTIALS}{proxy.place}")
        assert proxy.heads == []
        way(server.url, proxy=f"https://{CREDENTIALS}{proxy.place}", ca_file=str(authority.ca_file))
        assert len(server.asked) == 1
        proxy.heads.clear()
    proxy.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_refused_proxy_credentials_are_reported(
    plain_server: Answering, tls_server: Answering, proxy: ForwardProxy, way: Way, scheme: str
) -> None:
    server = plain_server if scheme == "http" else tls_server
    for credentials in ("", "usher:WRONGSECRET@"):
        with pytest.raises((NotReached, NotDeliveredError)) as caught:
            way(server.url, proxy=f"http://{credentials}{proxy.place}")
        assert f"the proxy {proxy.place} does not accept the credentials for it (407)" in str(caught.value)
        assert "SECRET" not in str(caught.value)
    assert server.asked == []


def test_refusing_and_missing_proxies_are_reported(
    tls_server: Answering, proxy: ForwardProxy, way: Way, closed_port: int
) -> None:
    proxy.refuses = "403 Forbidden by policy"
    with pytest.raises((NotReached, NotDeliveredError)) as caught:
        way(tls_server.url, proxy=f"http://{CREDENTIALS}{proxy.place}")
    place = f"127.0.0.1:{tls_server.port}"
    assert f"the proxy {proxy.place} refuses a connection to {place} (403 Forbidden by policy)" in str(caught.value)
    with pytest.raises((NotReached, NotDeliveredError)) as caught:
        way(tls_server.url, proxy=f"http://127.0.0.1:{closed_port}")
    assert f"no connection to the proxy: nothing listens at 127.0.0.1:{closed_port}" in str(caught.value)


def test_environment_is_ignored(
    tls_server: Answering,
    *,
    authority: Authority,
    proxy: ForwardProxy,
    plain_server: Answering,
    way: Way,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{CREDENTIALS}{proxy.place}")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(authority.ca_file))
    way(plain_server.url)
    with pytest.raises((NotReached, NotDeliveredError), match="is not trusted"):
        way(tls_server.url)
    assert proxy.heads == []


def test_no_cookie_is_kept(plain_server: Answering, way: Way) -> None:
    plain_server.headers["Set-Cookie"] = "a=b; Path=/"
    way(plain_server.url)
    way(plain_server.url)
    assert [headers.get("cookie") for _, headers in plain_server.asked] == [None, None]


def test_missing_ca_file_is_reported(tls_server: Answering, authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(authority.ca_file.read_bytes())
    values = BackendSettings(base_url=tls_server.url, api_key="K", auth_token="T", ca_file=str(file))
    with BackendClient(values, policy=RetryPolicy(repeats=0)) as client:
        file.unlink()
        with pytest.raises(NotReached, match=r"certificates to trust is gone: set backend\.ca_file to a PEM file"):
            client.call(operations.DELETE_USERS, DeleteUsersRequest(organization_id="acme", user_ids=["ada"]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("proxy.acme.example:3128", "must be an address such as http://user:password@proxy.example.com:3128"),
        ("socks5://proxy.acme.example:1080", "must be an address such as"),
        ("http://proxy.acme.example:3128/x", "must be an address such as"),
        ("http://proxy.acme.example:99999", "the port must be a number from 1 to 65535"),
        ("http://proxy.acme.example:0", "the port must be a number from 1 to 65535"),
        ("http://me:secret@proxy.acme.example:http", "the port must be a number from 1 to 65535"),
        ("http://me:TOP/SECRET@proxy.acme.example:3128", "(write / ? # :"),
        ("http://me:TOP@SECRET@proxy.acme.example:3128", "write an @ in the user's name or password as %40"),
        ("http://me:TOP SECRET@proxy.acme.example:3128", "must be printable ASCII"),
    ],
)
@pytest.mark.parametrize("section", ["backend", "notifications.webhook"])
def test_proxy_that_cannot_be_used_is_refused_without_showing_it(section: str, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(Path("/dev/null"), environment={}, command_line={f"{section}.proxy": text})
    [line] = caught.value.problems
    assert line.startswith(f"{section}.proxy: ")
    assert message in line
    assert "SECRET" not in line


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("backend", BackendSettings),
        ("notifications.webhook", WebhookSettings),
        ("notifications.email", EmailSettings),
    ],
)
def test_file_without_certificates_is_refused(
    section: str, model: type[BackendSettings | WebhookSettings | EmailSettings], tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_text("no certificate\n")
    for name, message in (("empty.pem", "but contains none"), ("gone.pem", "No such file or directory")):
        with pytest.raises(ValidationError, match=message):
            model(ca_file=str(tmp_path / name))
    with pytest.raises(ConfigurationError, match=rf"{section}\.ca_file: must be a readable PEM file"):
        load_settings(Path("/dev/null"), environment={}, command_line={f"{section}.ca_file": "/nowhere/ca.pem"})


def test_credentials_of_a_proxy_are_masked(tmp_path: Path) -> None:
    (tmp_path / "proxy").write_text("http://me:TOPSECRET@proxy.acme.example:3128\n")
    variables = {
        "USHER_BACKEND__PROXY_FILE": str(tmp_path / "proxy"),
        "USHER_NOTIFICATIONS__WEBHOOK__PROXY": "http://TOPSECRET@proxy.acme.example:3128",
    }
    configuration = load_settings(Path("/dev/null"), environment=variables)
    displayed = {key: value for key, value, _ in setting_rows(configuration.settings, configuration.origins)}
    assert displayed["backend.proxy"] == "http://********@proxy.acme.example:3128"
    assert displayed["notifications.webhook.proxy"] == "http://********@proxy.acme.example:3128"
    assert "TOPSECRET" not in repr(configuration.settings) + str(displayed)


@pytest.mark.parametrize("section", ["backend", "notifications"])
def test_checking_cannot_be_switched_off(section: str) -> None:
    """No section with outgoing calls has a setting for it."""
    configuration = load_settings(Path("/dev/null"), environment={})
    keys = [key for key, _, _ in setting_rows(configuration.settings, configuration.origins) if key.startswith(section)]
    assert keys
    assert not [key for key in keys if "verify" in key or "insecure" in key or "check" in key]
