"""Error responses, and details that only the log contains."""

import errno
import logging
import sqlite3
from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from structlog.testing import capture_logs
from werkzeug.exceptions import Gone, ServiceUnavailable

from app.contract.errors import AlreadyExists, InvalidArgument, Unauthenticated
from app.foundation.database.errors import log_fields
from app.http.throttle import TooManyRequests

Fails = Callable[[Exception], None]


def error_of(app: Flask, path: str = "/fail", method: str = "GET") -> tuple[int, dict[str, str], dict[str, object]]:
    answer = app.test_client().open(path, method=method)
    return answer.status_code, dict(answer.headers), answer.get_json()["error"]


def test_contract_errors_answer_in_their_envelope(app: Flask, fails_with: Fails) -> None:
    fails_with(AlreadyExists("it is there", details={"a": {"success": False}}))
    code, _, error = error_of(app)
    assert code == 409
    assert error == {"status": "ALREADY_EXISTS", "message": "it is there", "details": {"a": {"success": False}}}


def test_contract_errors_keep_their_finer_code(app: Flask, fails_with: Fails) -> None:
    fails_with(InvalidArgument("no", http_code=415))
    assert error_of(app)[0] == 415


def test_unauthenticated_names_the_scheme(app: Flask, fails_with: Fails) -> None:
    fails_with(Unauthenticated("who are you?"))
    code, headers, _ = error_of(app)
    assert (code, headers["WWW-Authenticate"]) == (401, "Bearer")


def test_too_many_requests_has_retry_after(app: Flask, fails_with: Fails) -> None:
    fails_with(TooManyRequests("slowly", retry_after=17))
    code, headers, error = error_of(app)
    assert (code, headers["Retry-After"], error["status"]) == (429, "17", "RESOURCE_EXHAUSTED")


def test_unknown_paths_and_methods_answer_in_the_envelope(app: Flask) -> None:
    code, _, error = error_of(app, "/nowhere")
    assert (code, error["status"]) == (404, "NOT_FOUND")
    code, headers, error = error_of(app, "/echo")
    assert (code, error["status"], headers["Allow"]) == (405, "INVALID_ARGUMENT", "OPTIONS, POST")


@pytest.mark.parametrize(("raised", "code"), [(Gone(), 410), (ServiceUnavailable(), 503)])
def test_errors_of_the_framework_answer_in_the_envelope(
    app: Flask, fails_with: Fails, raised: Exception, code: int
) -> None:
    fails_with(raised)
    got, _, error = error_of(app)
    assert got == code
    assert set(error) == {"status", "message"}


class ReadOnlyServerError(Exception):
    sqlstate = "25006"


UNAVAILABLE = {
    "operational": OperationalError("SELECT secret", {}, Exception("secret")),
    "pool timeout": PoolTimeout("secret"),
    "connection lost": DBAPIError("SELECT secret", {}, Exception("secret"), connection_invalidated=True),
    "read-only server": DBAPIError("SELECT secret", {}, ReadOnlyServerError("secret")),
    "disk full": OSError(errno.ENOSPC, "secret"),
    "read-only disk": OSError(errno.EROFS, "secret"),
}


@pytest.mark.parametrize("raised", UNAVAILABLE.values(), ids=UNAVAILABLE.keys())
def test_a_database_that_is_gone_means_unavailable(app: Flask, fails_with: Fails, raised: Exception) -> None:
    fails_with(raised)
    with capture_logs():
        code, headers, error = error_of(app)
    assert (code, error["status"]) == (503, "UNAVAILABLE")
    assert int(headers["Retry-After"]) > 0
    assert "secret" not in str(error)


def test_a_real_database_failure_means_unavailable(app: Flask, tmp_path: object) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/no/such/folder.db")

    @app.get("/fail")
    def _fail() -> str:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        return ""

    with capture_logs():
        assert error_of(app)[0] == 503


@pytest.mark.parametrize(
    "raised", [KeyError("secret"), DBAPIError("SELECT secret", {}, Exception("secret")), OSError("secret")]
)
def test_other_errors_are_logged_and_hidden(app: Flask, fails_with: Fails, raised: Exception) -> None:
    fails_with(raised)
    with capture_logs() as lines:
        code, headers, error = error_of(app)
    assert (code, error["status"]) == (500, "INTERNAL")
    assert "secret" not in str(error)
    assert headers["x-request-id"] in str(error["message"])
    failure = next(line for line in lines if line["event"] == "request_failed")
    assert failure["exc_info"] is raised
    assert failure["log_level"] == "error"


def test_errors_do_not_propagate_while_testing(app: Flask, fails_with: Fails) -> None:
    app.testing = True
    fails_with(ZeroDivisionError())
    logging.disable()
    try:
        assert error_of(app)[0] == 500
    finally:
        logging.disable(logging.NOTSET)


def test_log_fields_keep_the_traceback_of_bugs() -> None:
    error = KeyError("x")
    assert log_fields(error) == {"problem": "KeyError", "exc_info": error}
    away = OperationalError("SELECT 1", {"secret": "s3cret"}, sqlite3.OperationalError("disk I/O error"))
    assert log_fields(away) == {"problem": "OperationalError", "reason": "disk I/O error"}
