from typing import Any

import pytest
import requests

from app.backend.security.outgoing import is_public_address, names_private_host, open_session

from .conftest import ScriptedProvider


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_private_addresses(address: str) -> None:
    assert not is_public_address(address)


def test_names_private_host_does_not_query_dns() -> None:
    assert not names_private_host("https://provider.example/x")
    assert not names_private_host("https://does-not-exist.invalid/x")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_session_calls_private_hosts_only_if_allowed(host: str) -> None:
    provider = ScriptedProvider(lambda *_: (200, b"{}"))
    url = provider.url.replace("127.0.0.1", host)
    body: dict[str, Any] = {"data": {"requests": []}}
    try:
        assert open_session(allow_private=True).post(provider.url, json=body, timeout=5).status_code == 200
        with pytest.raises(requests.ConnectionError):
            open_session(allow_private=False).post(url, json=body, timeout=5)
        with pytest.raises(requests.ConnectionError):
            open_session(allow_private=False).post(url.replace("http:", "https:"), json=body, timeout=5)
    finally:
        provider.close()
    assert len(provider.asked) == 1


def test_session_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    provider = ScriptedProvider(lambda *_: (200, b"{}"))
    try:
        response = open_session(allow_private=True).post(provider.url, json={"data": {"requests": []}}, timeout=5)
    finally:
        provider.close()
    assert response.status_code == 200
