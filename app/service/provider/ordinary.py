"""Answers ordinary permission calls without Flask.

Flask's routing, hooks and response take as much time as ten decisions. So a WSGI middleware answers calls that have
nothing unusual. All others continue to the route in ``app.service.provider.blueprint``, and so does an error: the route
raises it, and the app logs it and answers with an envelope.
"""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING

import orjson
from werkzeug.wsgi import ClosingIterator

from app.contract.permission_call import MalformedQuestion, Question
from app.foundation.clock import Clock
from app.http.app import SECURITY_HEADERS
from app.http.body import ANONYMOUS_BYTES, json_of
from app.http.request_id import BEGAN, HEADER, logs_frequent_requests, request_id_of
from app.http.tokens import TokenSet, bearer_token
from app.service.provider.answer import ProviderObserver, ViewOpener, answer_questions, read_questions
from app.service.provider.decision_log import DecisionLog
from app.service.provider.settings import (
    INSTANCE_HEADER,
    MAX_BODY_BYTES,
    MIN_REVISION_HEADER,
    REVISION_HEADER,
    ProviderSettings,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

FAILURE = "usher.failure"
"""The key in the WSGI environment of the error that the route raises."""

_UNUSUAL = frozenset(
    f"HTTP_{name.upper().replace('-', '_')}"
    for name in ("Content-Encoding", "Transfer-Encoding", INSTANCE_HEADER, MIN_REVISION_HEADER)
)
"""Headers whose calls the route answers."""


class OrdinaryCalls:
    """The middleware."""

    def __init__(
        self,
        app: "WSGIApplication",
        settings: ProviderSettings,
        *,
        open_view: ViewOpener,
        clock: Clock,
        new_id: Callable[[], str],
        observer: ProviderObserver,
        count: Callable[[float], None],
        log: DecisionLog | None,
    ) -> None:
        """``app`` has the route of ``provider_blueprint`` with the same parts. ``new_id`` creates the id of a request
        without one. ``count`` gets the seconds of each answered request."""
        self._app = app
        self._settings = settings
        self._open_view = open_view
        self._clock = clock
        self._new_id = new_id
        self._observer = observer
        self._count = count
        self._max_bytes = ANONYMOUS_BYTES if settings.allow_anonymous else MAX_BODY_BYTES
        self._log = log
        self._pick = None if log is None else log.picks
        self._policy = settings.policy
        self._tokens = TokenSet(settings.auth_tokens)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if not self._is_ordinary(environ):
            return self._app(environ, start_response)
        began = perf_counter()
        try:
            questions = self._questions(environ)
            now = self._clock()
            answer = answer_questions(questions, self._open_view, now, self._policy, pick=self._pick)
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
        seconds = perf_counter() - began
        self._observer.answered(answer.allowed, answer.denied, answer.errors, seconds)
        self._count(seconds)
        start_response("200 OK", headers)
        if (log := self._log) is not None and answer.picked:
            return ClosingIterator([body], lambda: log.write(answer.picked, now, answer.revision, request_id))
        return [body]

    def _is_ordinary(self, environ: "WSGIEnvironment") -> bool:
        """Whether the call has a valid token, and a JSON body of a declared and allowed length."""
        if environ["PATH_INFO"] != self._settings.path or environ["REQUEST_METHOD"] != "POST":
            return False
        length = environ.get("CONTENT_LENGTH", "")
        return (
            environ.get("CONTENT_TYPE") == "application/json"
            and len(length) < 10
            and length.isdecimal()
            and int(length) <= self._max_bytes
            and _UNUSUAL.isdisjoint(environ)
            and (self._settings.allow_anonymous or self._tokens.accepts(bearer_token(environ) or ""))
            and not logs_frequent_requests()
        )

    def _questions(self, environ: "WSGIEnvironment") -> list[Question | MalformedQuestion]:
        length = int(environ["CONTENT_LENGTH"])
        body = json_of(environ["wsgi.input"].read, length, max_bytes=self._max_bytes, odd_values=True)
        return read_questions(body, self._settings.max_requests)
