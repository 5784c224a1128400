"""Answers permission calls without Flask, whose routing, hooks and response take as much time as ten decisions.

A WSGI middleware answers calls that have nothing unusual. All others continue to the route in ``blueprint.py``, and so
does an error: the route raises it, and the app logs it and answers with an envelope.
"""

from collections.abc import Callable, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import orjson
from werkzeug.wsgi import ClosingIterator

from app.http.app import SECURITY_HEADERS
from app.http.body import parse_body
from app.http.request_id import BEGAN, HEADER, logs_frequent_requests, request_id_of
from app.http.tokens import TokenSet, bearer_token
from app.service.provider.answer import PermissionAnswer
from app.service.provider.parts import ProviderParts
from app.service.provider.settings import INSTANCE_HEADER, MIN_REVISION_HEADER, REVISION_HEADER

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

FAILURE = "usher.failure"
"""The key in the WSGI environment of the error that the route raises."""

_UNUSUAL = frozenset(
    f"HTTP_{name.upper().replace('-', '_')}"
    for name in ("Content-Encoding", "Transfer-Encoding", INSTANCE_HEADER, MIN_REVISION_HEADER)
)
"""Headers whose calls the route answers."""


class FastPath:
    def __init__(
        self, app: "WSGIApplication", parts: ProviderParts, *, new_id: Callable[[], str], count: Callable[[float], None]
    ) -> None:
        """``app`` has the route of ``provider_blueprint`` with the same parts. ``new_id`` creates the id of a request
        without one. ``count`` gets the seconds of each answered request."""
        self._app = app
        self._parts = parts
        self._new_id = new_id
        self._count = count
        self._max_bytes = parts.max_call_bytes
        self._tokens = TokenSet(parts.settings.auth_tokens)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if not self._is_fast(environ):
            return self._app(environ, start_response)
        began = perf_counter()
        try:
            answer = self._answer(environ)
        except Exception as error:  # noqa: BLE001 - the route raises it
            environ[FAILURE], environ[BEGAN] = error, began
            try:
                return self._app(environ, start_response)
            finally:
                # The error refers to this frame, and so to the body. Without the cycle both are freed at once.
                environ.pop(FAILURE, None)
        request_id = request_id_of(environ, self._new_id)
        body = orjson.dumps(answer.envelope())
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            (REVISION_HEADER, str(answer.revision)),
            (HEADER, request_id),
            *SECURITY_HEADERS,
        ]
        self._count(self._parts.count(answer, began))
        start_response("200 OK", headers)
        if answer.picked:
            return ClosingIterator([body], partial(self._parts.write_log, answer, request_id))
        return [body]

    def _is_fast(self, environ: "WSGIEnvironment") -> bool:
        """Whether the call has a valid token, and a JSON body of a declared and allowed length."""
        settings = self._parts.settings
        if environ["PATH_INFO"] != settings.path or environ["REQUEST_METHOD"] != "POST":
            return False
        length = environ.get("CONTENT_LENGTH", "")
        return (
            environ.get("CONTENT_TYPE") == "application/json"
            and len(length) < 10
            and length.isdecimal()
            and int(length) <= self._max_bytes
            and _UNUSUAL.isdisjoint(environ)
            and (settings.allow_anonymous or self._tokens.accepts(bearer_token(environ) or ""))
            and not logs_frequent_requests()
        )

    def _answer(self, environ: "WSGIEnvironment") -> PermissionAnswer:
        length = int(environ["CONTENT_LENGTH"])
        body = parse_body(environ["wsgi.input"].read, length, max_bytes=self._max_bytes, odd_values=True)
        return self._parts.answer(body)
