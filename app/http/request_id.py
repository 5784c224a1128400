"""Request ids: which request a log line, or a caller's complaint, belongs to.

Every answer carries an `x-request-id`: the caller's own when it sent a sane one, else a new one. While the request is
handled, every log line carries it too. One line per request tells how it ended.
"""

import logging
import re
from collections.abc import Callable, Collection
from time import perf_counter

import structlog
from flask import Flask, Response, g, has_request_context, request

from app.http.tokens import bearer_token, shown_fingerprint

HEADER = "x-request-id"
_SANE = re.compile(r"[!-~]{1,128}")
"""Printable ASCII without spaces: it goes into headers and logs as it is."""

_QUIET_PATHS = frozenset({"/healthz"})
"""Asked every few seconds by machines; logged at debug level only, unless they fail."""


def install_request_ids(app: Flask, new_id: Callable[[], str], *, frequent: Collection[str] = ()) -> None:
    """Gives every request of `app` an id and a line in the log. Install it before any other hook.

    `new_id` makes the id for a request that brings none. `frequent` are paths that are asked so often that a line for
    each request that went well would drown all others: those are logged at debug level only.
    """
    quiet = _QUIET_PATHS | frozenset(frequent)
    log = structlog.stdlib.get_logger(__name__)

    @app.before_request
    def _begin() -> None:
        given = request.environ.get("HTTP_X_REQUEST_ID", "")
        g.request_id = given if _SANE.fullmatch(given) else new_id()
        g.request_began = perf_counter()
        # What was bound outside does not concern this request, and comes back after it: the caller may run in this
        # very thread, when the app is embedded.
        g.outer_log_context = structlog.contextvars.get_contextvars()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=g.request_id)

    @app.after_request
    def _end(response: Response) -> Response:
        response.headers[HEADER] = g.request_id
        status = response.status_code
        level = _level(request.path, status, quiet)
        if level == logging.DEBUG and not log.is_enabled_for(level):
            return response
        log.log(
            level,
            "request",
            method=request.method,
            path=_shown(request.path),
            status=status,
            duration_ms=round((perf_counter() - g.request_began) * 1000, 2),
            bytes=response.content_length or 0,
            **_who(),
        )
        return response

    @app.teardown_request
    def _leave(_error: BaseException | None) -> None:
        outer = g.pop("outer_log_context", None)
        if outer is not None:
            structlog.contextvars.clear_contextvars()
            structlog.contextvars.bind_contextvars(**outer)


def current_request_id() -> str | None:
    """The id of the request that is being handled, if any."""
    return g.get("request_id") if has_request_context() else None


def _who() -> dict[str, str]:
    """Who asked, as far as it is known: the address (a proxy's word counts where `trusted_proxies` says so), the
    program, and which token, by a fingerprint."""
    who = {"address": request.remote_addr or ""}
    if agent := request.environ.get("HTTP_USER_AGENT", ""):
        who["user_agent"] = _shown(agent)
    if bearer_token(request) is not None:
        who["fingerprint"] = shown_fingerprint(request)
    return who


def _level(path: str, status: int, quiet: Collection[str]) -> int:
    if status >= 500:
        return logging.ERROR
    if status >= 400:
        return logging.WARNING
    return logging.DEBUG if path in quiet else logging.INFO


def _shown(path: str) -> str:
    """A caller's text without what could forge or flood a log line."""
    path = path if len(path) <= 200 else f"{path[:200]}..."
    return path if path.isascii() and path.isprintable() else ascii(path)[1:-1]
