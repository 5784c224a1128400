"""Adds a request id to each response and its log lines, and writes the access log.

The id is in the header ``x-request-id``: the caller's if it is printable and short, else a new one. The access log has
one line per request.
"""

import logging
import re
from collections.abc import Callable, Collection
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING

import structlog
from flask import Flask, Response, g, has_request_context, request

from app.http.tokens import bearer_token, token_fingerprint

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_log = structlog.stdlib.get_logger(__name__)

HEADER = "x-request-id"
BEGAN = "usher.began"
"""The key in the WSGI environment of the ``perf_counter`` at which a middleware began to answer the request."""

_VALID = re.compile(r"[!-~]{1,128}")
"""Printable ASCII without spaces, which is safe in headers and logs."""

_HEALTH_PATHS = frozenset({"/healthz"})


def install_request_ids(app: Flask, new_id: Callable[[], str], *, frequent: Collection[str] = ()) -> None:
    """Adds request ids and the access log. Install it before any other hook.

    ``new_id`` creates the id of a request without one. Successful requests for the paths in ``frequent`` and for health
    checks are logged at debug level only.
    """
    quiet = _HEALTH_PATHS | frozenset(frequent)

    @app.before_request
    def _begin() -> None:
        g.request_id = request_id_of(request.environ, new_id)
        g.request_began = began_at(request.environ)
        # If the app is embedded, the caller runs in this thread: its context is restored after the request.
        g.outer_log_context = structlog.contextvars.get_contextvars()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=g.request_id)

    @app.after_request
    def _end(response: Response) -> Response:
        response.headers[HEADER] = g.request_id
        status = response.status_code
        level = _level(request.path, status, quiet)
        if level == logging.DEBUG and not _log.is_enabled_for(level):
            return response
        _log.log(
            level,
            "request",
            method=request.method,
            path=_safe(request.path),
            status=status,
            duration_ms=round((perf_counter() - g.request_began) * 1000, 2),
            bytes=response.content_length or 0,
            **_caller_fields(),
        )
        return response

    @app.teardown_request
    def _leave(_error: BaseException | None) -> None:
        outer = g.pop("outer_log_context", None)
        if outer is not None:
            structlog.contextvars.clear_contextvars()
            structlog.contextvars.bind_contextvars(**outer)


def request_id_of(environ: "WSGIEnvironment", new_id: Callable[[], str]) -> str:
    """The caller's id for the request if it is valid, otherwise a new one."""
    sent: str = environ.get("HTTP_X_REQUEST_ID", "")
    return sent if _VALID.fullmatch(sent) else new_id()


def began_at(environ: "WSGIEnvironment") -> float:
    """When the request began, as ``perf_counter``."""
    began: float | None = environ.get(BEGAN)
    return perf_counter() if began is None else began


def logs_frequent_requests() -> bool:
    """Whether the access log also contains successful requests for frequent paths."""
    return logging.getLogger(__name__).isEnabledFor(logging.DEBUG)


def current_request_id() -> str | None:
    """The id of the current request, if there is one."""
    return g.get("request_id") if has_request_context() else None


def _caller_fields() -> dict[str, str]:
    """The caller's address, which respects ``trusted_proxies``, its user agent and the fingerprint of its token."""
    fields = {"address": request.remote_addr or ""}
    if agent := request.environ.get("HTTP_USER_AGENT", ""):
        fields["user_agent"] = _safe(agent)
    if bearer_token(request.environ) is not None:
        fields["fingerprint"] = token_fingerprint(request)
    return fields


def _level(path: str, status: int, quiet: Collection[str]) -> int:
    if status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED:
        return logging.ERROR
    if status >= 400:
        return logging.WARNING
    return logging.DEBUG if path in quiet else logging.INFO


def _safe(text: str) -> str:
    """A caller's text that cannot forge or flood a log line."""
    text = text if len(text) <= 200 else f"{text[:200]}..."
    return text if text.isascii() and text.isprintable() else ascii(text)[1:-1]
