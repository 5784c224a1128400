"""Throttling of failed authentication attempts."""

import time

import pytest
from flask import Flask, Response, request
from pydantic import SecretStr

from app.http.errors import install_error_handlers
from app.http.json import json_response
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, require_bearer


class Watch:
    """A manual clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_failures_are_too_many_until_their_window_is_over() -> None:
    watch = Watch()
    failed = FailedCredentials(watch, failures=3, window=60)
    assert [failed.record("192.0.2.1") for _ in range(3)] == [0, 0, 0]
    watch.now += 20
    assert failed.record("192.0.2.1") == 40
    assert failed.record("192.0.2.2") == 0
    watch.now += 40
    assert failed.record("192.0.2.1") == 0


def test_addresses_are_forgotten_when_there_are_too_many() -> None:
    failed = FailedCredentials(Watch(), failures=1, max_addresses=100)
    addresses = [f"192.0.{number // 256}.{number % 256}" for number in range(10_000)]
    for address in addresses:
        failed.record(address)
    assert [address for address in addresses if failed.is_throttled(address)] == addresses[-100:]


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        # Some proxies send it so in X-Forwarded-For.
        ("192.0.2.1:1000", "192.0.2.1:1024", True),
        ("192.0.2.1:1000", "192.0.2.2:1000", False),
        ("[2001:db8::1]:5", "2001:db8::2", True),
        ("[2001:db8::1]", "[2001:db8:0:1::1]:5", False),
        ("", "no address", False),
    ],
)
def test_a_peer_is_its_network(one: str, other: str, are_same: bool) -> None:
    failed = FailedCredentials(Watch(), failures=1)
    failed.record(one)
    assert bool(failed.record(other)) is are_same


def test_valid_token_is_never_throttled() -> None:
    tokens = TokenSet([SecretStr("right")], FailedCredentials(failures=5))
    app = Flask("guarded")
    install_error_handlers(app)

    @app.get("/")
    def guarded() -> Response:
        require_bearer(request, tokens)
        return json_response({})

    client = app.test_client()
    codes = [client.get("/", headers={"Authorization": f"Bearer wrong{number}"}).status_code for number in range(8)]
    assert codes == [401] * 5 + [429] * 3
    refused = client.get("/", headers={"Authorization": "Bearer wrong"})
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert refused.get_json()["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert client.get("/", headers={"Authorization": "Bearer right"}).status_code == 200
    assert client.get("/").status_code == 401


def test_a_token_is_compared_in_the_same_time_wherever_it_differs() -> None:
    """`hmac.compare_digest` compares digests. This only excludes a gross dependency on the common prefix."""
    right = "a" * 4096
    tokens = TokenSet([SecretStr(right)])

    def seconds(token: str) -> float:
        best = 1.0
        for _ in range(200):
            began = time.perf_counter()
            tokens.accepts(token)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds("b" * 4096) / seconds(right[:-1] + "b") == pytest.approx(1, abs=0.5)
