"""URLs of peers: usable ones, those of this machine, and addresses."""

import pytest

from app.foundation.outbound.urls import address_of, checked_url, is_loopback, is_plaintext, local_host

LOCAL = ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:8080"]
REMOTE = [
    "localhost.corp.example",
    "a.localhost",
    "127.0.0.1.nip.io",
    "127.0.0.1@evil.example",
    "10.0.0.1",
    "[::2]",
    "[::1",
    "",
]


@pytest.mark.parametrize(("host", "local"), [(host, True) for host in LOCAL] + [(host, False) for host in REMOTE])
def test_only_localhost_and_loopback_addresses_are_this_machine(host: str, local: bool) -> None:
    assert is_loopback(f"http://{host}") is local
    assert is_loopback(f"//{host}/path") is local


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://acme.example", True),
        ("ldap://acme.example", True),
        ("https://acme.example", False),
        ("ldaps://acme.example", False),
        ("ldapi://%2Frun%2Fslapd", False),
        ("http://127.0.0.2:8080", False),
        ("", False),
    ],
)
def test_a_call_without_tls_may_stay_on_this_machine(url: str, plain: bool) -> None:
    assert is_plaintext(url) is plain


@pytest.mark.parametrize(
    ("url", "proxy", "plain"),
    [
        ("http://127.0.0.1:8080", "http://proxy.example:3128", True),
        ("http://127.0.0.1:8080", "http://127.0.0.1:3128", False),
        ("http://acme.example", "http://127.0.0.1:3128", True),
        ("https://acme.example", "http://proxy.example:3128", False),
    ],
)
def test_a_proxy_gets_calls_to_this_machine_too(url: str, proxy: str, plain: bool) -> None:
    assert is_plaintext(url, proxy) is plain


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://acme.example", "must be an http or https URL"),
        ("https://", "must be an http or https URL"),
        ("https://acme.example:99999", "must be an http or https URL"),
        ("https://[acme.example", "must be an http or https URL"),
        ("https://acme.example/ü", "must be an http or https URL"),
        ("https://acme.example/\x7f", "must be an http or https URL"),
        ("https://acme.example/a b", "must be an http or https URL"),
        ("https://ada:hunter2@acme.example", "must not contain a user name or password; credentials go elsewhere"),
        ("https://@acme.example", "must not contain a user name or password; credentials go elsewhere"),
        ("https://acme.example?key=hunter2", "must not have a query or fragment; credentials go elsewhere"),
        ("https://acme.example#hunter2", "must not have a query or fragment; credentials go elsewhere"),
    ],
)
def test_an_unusable_url_is_refused_without_showing_it(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        checked_url(url, credentials="go elsewhere")
    assert "hunter2" not in str(caught.value)


def test_a_usable_url_is_unchanged() -> None:
    url = "https://acme.example:8443/@a/b%20c"
    assert checked_url(url, credentials="go elsewhere") == url
    assert checked_url(f"{url}?a=b", credentials="go elsewhere", query=True) == f"{url}?a=b"


def test_addresses() -> None:
    assert [address_of(url) for url in ("https://a.example/x", "http://a.example", "http://[::1]:8080")] == [
        "a.example:443",
        "a.example:80",
        "[::1]:8080",
    ]
    assert [local_host(host) for host in ("0.0.0.0", "::", "", "fe80::1", "a.example")] == [
        "127.0.0.1",
        "[::1]",
        "127.0.0.1",
        "[fe80::1]",
        "a.example",
    ]
