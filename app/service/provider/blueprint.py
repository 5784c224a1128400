"""The routes of the permission provider.

- ``POST`` on the configured path is the permission-provider call. ``fast_path.py`` answers it before Flask, unless
  something is unusual. It ignores unknown fields, because a newer backend may send more.
- ``POST /permissions/explain`` takes the same body from operators, and adds reasons. With ``data.at`` it decides as of
  another moment. It refuses unknown fields beside the requests.

Handlers raise errors, and the app turns them into envelopes (``app.http.errors``). Until a retry of the caller
succeeds, it denies access:

- 400: the body is invalid.
- 401: the token is wrong.
- 503: neither the index nor the database can answer, or the directory was never read.
"""

import re
from functools import partial
from time import perf_counter

from flask import Blueprint, Response, after_this_request, request

from app.contract.errors import InvalidArgument
from app.http.body import read_json
from app.http.json import json_response
from app.http.request_id import current_request_id
from app.http.tokens import TokenSet, require_bearer
from app.service.provider.answer import PermissionAnswer, explain_questions, read_questions, requested_moment
from app.service.provider.fast_path import FAILURE
from app.service.provider.parts import ProviderParts
from app.service.provider.settings import (
    EXPLAIN_PATH,
    INSTANCE_HEADER,
    MAX_BODY_BYTES,
    MIN_REVISION_HEADER,
    REVISION_HEADER,
)

_PREFLIGHT_SECONDS = "600"
_WHOLE_NUMBER = re.compile("[0-9]{1,18}")


def provider_blueprint(parts: ProviderParts) -> Blueprint:
    """The two routes, and the preflight of ``browser_origins``."""
    blueprint = Blueprint("provider", __name__)
    settings = parts.settings
    origins = frozenset(settings.browser_origins)
    tokens = TokenSet(settings.auth_tokens, parts.failures)
    check = partial(_check, parts, tokens, origins)
    blueprint.add_url_rule(settings.path, "check", check, methods=["POST"], provide_automatic_options=False)
    blueprint.add_url_rule(EXPLAIN_PATH, "explain", partial(_explain, parts), methods=["POST"])
    if origins:
        _allow_origins(blueprint, settings.path, origins)
    return blueprint


def _check(parts: ProviderParts, tokens: TokenSet, origins: frozenset[str]) -> Response:
    began = perf_counter()
    if FAILURE in request.environ:
        # The fast path has failed. The app turns its error into a response, as if it were an error of this route.
        raise request.environ.pop(FAILURE)
    if not parts.settings.allow_anonymous:
        require_bearer(request, tokens)
    if INSTANCE_HEADER in request.headers:
        _add_instance_header(parts.instance())
    min_revision = requested_revision()
    answer = parts.answer(_read_body(parts.max_call_bytes), min_revision)
    if parts.sign is not None and request.headers.get("Origin", "") in origins:
        answer.signature = parts.sign(answer.results)
    response = _respond(answer)
    parts.count(answer, began)
    if answer.picked:
        response.call_on_close(partial(parts.write_log, answer, current_request_id()))
    return response


def _explain(parts: ProviderParts) -> Response:
    parts.require_admin()
    min_revision = requested_revision()
    body = _read_body(MAX_BODY_BYTES)
    questions = read_questions(body, parts.settings.max_requests)
    answer = explain_questions(
        questions,
        parts.open_view_with_names,
        parts.load_origins,
        requested_moment(body) or parts.clock(),
        parts.settings.policy,
        min_revision=min_revision,
    )
    return _respond(answer)


def _read_body(max_bytes: int) -> object:
    # A value that no database can store is an error of its request only.
    return read_json(request, max_bytes=max_bytes, odd_values=True)


def _respond(answer: PermissionAnswer) -> Response:
    return json_response(answer.envelope(), headers={REVISION_HEADER: str(answer.revision)})


def _add_instance_header(stamp: str) -> None:
    """Adds the header to the response, also to an error."""

    @after_this_request
    def _add(response: Response) -> Response:
        response.headers[INSTANCE_HEADER] = stamp
        return response


def requested_revision() -> int:
    """The oldest revision that the caller accepts. 0: any. Raises ``InvalidArgument``."""
    text = request.headers.get(MIN_REVISION_HEADER)
    if text is None:
        return 0
    if not _WHOLE_NUMBER.fullmatch(text):
        raise InvalidArgument(f"{MIN_REVISION_HEADER}: must be a whole number of at most 18 digits, as in 42")
    return int(text)


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
