"""Request ids and the access log."""

from collections.abc import Callable
from hashlib import sha256

import pytest
import structlog
from flask import Flask
from structlog.testing import capture_logs

from app.contract.errors import Unimplemented


def test_request_id_of_the_caller_comes_back(app: Flask) -> None:
    answer = app.test_client().get("/healthz", headers={"X-Request-Id": "abc-123"})
    assert answer.headers["x-request-id"] == "abc-123"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "tab\t"])
def test_invalid_request_id_is_replaced(app: Flask, given: str) -> None:
    answer = app.test_client().get("/healthz", headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"] == "id-1"


def test_request_id_is_new_for_each_request_and_on_errors_too(app: Flask) -> None:
    client = app.test_client()
    assert [client.get(path).headers["x-request-id"] for path in ("/healthz", "/nowhere", "/echo")] == [
        "id-1",
        "id-2",
        "id-3",
    ]


def test_request_id_is_bound_for_log_lines(app: Flask) -> None:
    seen = {}

    @app.get("/look")
    def _look() -> str:
        seen.update(structlog.contextvars.get_contextvars())
        structlog.contextvars.bind_contextvars(user="ada")
        return ""

    with structlog.contextvars.bound_contextvars(run="of the caller in the same thread"):
        app.test_client().get("/look")
        assert structlog.contextvars.get_contextvars() == {"run": "of the caller in the same thread"}
    assert seen == {"request_id": "id-1"}


def test_access_line_contains_the_result(app: Flask) -> None:
    with capture_logs() as lines:
        app.test_client().post("/echo?token=secret", json={"a": 1})
    (line,) = lines
    assert line.pop("duration_ms") >= 0
    assert (line.pop("address"), line.pop("user_agent")[:8]) == ("127.0.0.1", "Werkzeug")
    assert line == {
        "event": "request",
        "log_level": "info",
        "method": "POST",
        "path": "/echo",
        "status": 200,
        "bytes": 7,
    }


def test_request_for_an_operation_that_is_not_implemented_is_no_error(
    app: Flask, fails_with: Callable[[Exception], None]
) -> None:
    fails_with(Unimplemented("no"))
    with capture_logs() as lines:
        assert app.test_client().get("/fail").status_code == 501
    assert lines[-1]["log_level"] == "warning"


@pytest.mark.parametrize(("path", "level"), [("/healthz", "debug"), ("/nowhere", "warning"), ("/fail", "error")])
def test_access_line_has_a_level_by_status(
    app: Flask, fails_with: Callable[[Exception], None], path: str, level: str
) -> None:
    fails_with(KeyError())
    with capture_logs() as lines:
        app.test_client().get(path)
    assert lines[-1]["log_level"] == level


def test_access_line_cannot_be_forged_or_flooded(app: Flask) -> None:
    with capture_logs() as lines:
        app.test_client().get("/x%0Aforged%1b[2J" + "y" * 1000)
    assert lines[0]["path"].isprintable()
    assert len(lines[0]["path"]) < 300


def test_every_response_has_security_headers(app: Flask) -> None:
    for path in ("/healthz", "/nowhere"):
        headers = app.test_client().get(path).headers
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


def test_access_line_identifies_the_caller_without_its_token(app: Flask) -> None:
    headers = {"Authorization": "Bearer a-token-of-twenty-letters", "User-Agent": "curl/8\u00e9" + "x" * 300}
    with capture_logs() as logs:
        app.test_client().get("/nowhere", headers=headers, environ_base={"REMOTE_ADDR": "192.0.2.7"})
        app.test_client().get("/nowhere", environ_overrides={"HTTP_USER_AGENT": ""})
    first, second = (line for line in logs if line["event"] == "request")
    assert first["address"] == "192.0.2.7"
    assert first["user_agent"].startswith("curl/8")
    assert len(first["user_agent"]) < 300
    assert first["fingerprint"] == sha256(b"a-token-of-twenty-letters").hexdigest()[:8]
    assert "a-token" not in str(logs)
    assert {"user_agent", "fingerprint"} & second.keys() == set()
