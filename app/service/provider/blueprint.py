"""The routes of the permission provider.

``POST`` on the configured path is the permission-provider call. ``POST /permissions/explain`` takes the same body from
operators and adds reasons; with ``data.at`` it decides as of another moment. It refuses unknown fields beside the
requests, while the call ignores them, because a newer backend may send more. Errors are envelopes with a code other
than 2xx, after which the caller retries and denies meanwhile: 401 for a wrong token, 400 for an invalid body, 503 if
neither the index nor the database can answer, or the directory was never read.

Handlers raise errors; the app turns them into envelopes (``app.http.errors``).
"""

import re
from collections.abc import Callable
from time import perf_counter

from flask import Blueprint, Response, after_this_request, request

from app.contract.errors import InvalidArgument
from app.contract.permission_call import MalformedQuestion, Question
from app.foundation.clock import Clock
from app.http.body import ANONYMOUS_BYTES, read_json
from app.http.json import json_response
from app.http.request_id import current_request_id
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, require_bearer
from app.service.provider.answer import (
    OriginsLoader,
    PermissionAnswer,
    ProviderObserver,
    ViewOpener,
    answer_questions,
    explain_questions,
    moment_of,
    read_questions,
)
from app.service.provider.decision_log import DecisionLog
from app.service.provider.ordinary import FAILURE
from app.service.provider.settings import (
    EXPLAIN_PATH,
    INSTANCE_HEADER,
    MAX_BODY_BYTES,
    MIN_REVISION_HEADER,
    REVISION_HEADER,
    ProviderSettings,
)
from app.service.provider.signing import Sign

_PREFLIGHT_SECONDS = "600"
_WHOLE_NUMBER = re.compile("[0-9]{1,18}")


def provider_blueprint(
    settings: ProviderSettings,
    *,
    open_view: ViewOpener,
    open_view_with_names: ViewOpener,
    load_origins: OriginsLoader,
    require_admin: Callable[[], None],
    clock: Clock,
    instance: Callable[[], str],
    observer: ProviderObserver | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    failures: FailedCredentials | None = None,
    sign: Sign | None = None,
    log: DecisionLog | None = None,
) -> Blueprint:
    """The two routes.

    ``open_view`` opens the view for decisions, ``open_view_with_names`` one with names for reasons. ``load_origins``
    loads the location of records in the sources. ``require_admin`` authenticates operators, or raises. ``failures``
    counts wrong tokens. ``instance`` identifies the state of the access model. ``sign`` signs answers to browsers.
    ``log`` is written after the responses to permission calls.
    """
    blueprint = Blueprint("provider", __name__)
    policy = settings.policy
    origins = frozenset(settings.browser_origins)
    tokens = TokenSet(settings.auth_tokens, failures)

    anonymous_bytes = min(max_body_bytes, ANONYMOUS_BYTES) if settings.allow_anonymous else max_body_bytes

    def read(max_bytes: int) -> tuple[object, list[Question | MalformedQuestion]]:
        """The body and its questions."""
        # A value that no database can store is an error of its request only.
        body = read_json(request, max_bytes=max_bytes, odd_values=True)
        return body, read_questions(body, settings.max_requests)

    def check() -> Response:
        began = perf_counter()
        if FAILURE in request.environ:
            raise request.environ.pop(FAILURE)
        if not settings.allow_anonymous:
            require_bearer(request, tokens)
        if INSTANCE_HEADER in request.headers:
            _add_instance_header(instance())
        min_revision = requested_revision()
        _, questions = read(anonymous_bytes)
        now = clock()
        pick = None if log is None else log.picks
        answer = answer_questions(questions, open_view, now, policy, min_revision=min_revision, pick=pick)
        if sign is not None and request.headers.get("Origin", "") in origins:
            answer.signature = sign(answer.results)
        response = _respond(answer, observer, began)
        if log is not None and answer.picked:
            request_id = current_request_id()
            response.call_on_close(lambda: log.write(answer.picked, now, answer.revision, request_id))
        return response

    def explain() -> Response:
        require_admin()
        min_revision = requested_revision()
        body, questions = read(max_body_bytes)
        now = moment_of(body) or clock()
        answer = explain_questions(
            questions, open_view_with_names, load_origins, now, policy, min_revision=min_revision
        )
        response = json_response(answer.envelope())
        response.headers[REVISION_HEADER] = str(answer.revision)
        return response

    blueprint.add_url_rule(settings.path, "check", check, methods=["POST"], provide_automatic_options=False)
    blueprint.add_url_rule(EXPLAIN_PATH, "explain", explain, methods=["POST"])
    if settings.browser_origins:
        _allow_origins(blueprint, settings.path, origins)
    return blueprint


def _add_instance_header(stamp: str) -> None:
    """Adds the header to the response, also to an error."""

    @after_this_request
    def _add(response: Response) -> Response:
        response.headers[INSTANCE_HEADER] = stamp
        return response


def requested_revision() -> int:
    """The oldest revision that the caller accepts; 0: any. Raises ``InvalidArgument``."""
    text = request.headers.get(MIN_REVISION_HEADER)
    if text is None:
        return 0
    if not _WHOLE_NUMBER.fullmatch(text):
        raise InvalidArgument(f"{MIN_REVISION_HEADER}: must be a whole number of at most 18 digits, as in 42")
    return int(text)


def _respond(answer: PermissionAnswer, observer: ProviderObserver | None, began: float) -> Response:
    response = json_response(answer.envelope())
    response.headers[REVISION_HEADER] = str(answer.revision)
    if observer is not None:
        observer.answered(answer.allowed, answer.denied, answer.errors, perf_counter() - began)
    return response


def _allow_origins(blueprint: Blueprint, path: str, origins: frozenset[str]) -> None:
    """Answers preflights of these origins, and allows them to read the responses, also errors."""

    def preflight() -> Response:
        response = Response(status=204)
        if request.headers.get("Origin", "") in origins:
            response.headers["Access-Control-Allow-Methods"] = "POST"
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, X-Request-Id"
            response.headers["Access-Control-Max-Age"] = _PREFLIGHT_SECONDS
        return response

    blueprint.add_url_rule(path, "preflight", preflight, methods=["OPTIONS"], provide_automatic_options=False)

    @blueprint.after_request
    def _allow(response: Response) -> Response:
        if request.url_rule is not None and request.url_rule.rule == path:
            response.headers.add("Vary", "Origin")
            origin = request.headers.get("Origin", "")
            if origin in origins:
                response.headers["Access-Control-Allow-Origin"] = origin
        return response
