"""Hooks of the service's requests: they count requests, take turns at the database, and check its schema."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from time import perf_counter

from flask import Blueprint, Flask, Response, g, request

from app.contract.errors import Unavailable
from app.foundation.database.programs import SchemaNewerError
from app.http.request_id import began_at
from app.monitoring.metrics import Metrics

Turn = Callable[[], AbstractContextManager[None]]
"""Takes a turn at the database: see ``app.access.index.turns``."""

_ALWAYS_ANSWER = frozenset({"health", "metrics", "landing", "openapi"})
_WITHOUT_DATABASE = frozenset({None, "provider.preflight", "console.asset"})
"""Endpoints that need no database. None: no route has this path or method."""

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"})


def count_requests(app: Flask, metrics: Metrics) -> None:
    """Counts and times every request by its route. A path as label would create a time series for each id."""

    @app.before_request
    def _begin() -> None:
        g.counted_from = began_at(request.environ)

    @app.after_request
    def _count(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule is not None else "unknown"
        method = request.method if request.method in _METHODS else "other"
        metrics.requests.labels(method, route, str(response.status_code)).inc()
        began = g.get("counted_from")
        if began is not None:
            metrics.request_seconds.labels(route).observe(perf_counter() - began)
        return response


def take_turns(app: Flask, turn: Turn) -> None:
    """Requests that use the database take a turn. Permission calls take one if the index does not answer them, and
    requests of the console after they have a slot. Health checks and metrics do not wait for one, because they report
    the state of the database."""

    @app.before_request
    def _take() -> None:
        if request.endpoint == "push.upload":
            # Its body may arrive slowly, and the number of uploads is limited.
            with turn():
                return
        if request.blueprint in {*_ALWAYS_ANSWER, "console"} or request.endpoint in _WITHOUT_DATABASE:
            return
        if request.endpoint != "provider.check":
            turns = ExitStack()
            turns.enter_context(turn())
            g.database_turn = turns

    @app.teardown_request
    def _end(_error: BaseException | None) -> None:
        if (turns := g.pop("database_turn", None)) is not None:
            turns.close()


def refuse_if_incompatible(
    scope: Flask | Blueprint, check_schema: Callable[[], None], *, exempt: Collection[str] = ()
) -> None:
    """Answers 503 if a newer version has made the database unusable for this one.

    Requests that need no database, and those of ``exempt`` endpoints, are answered. The console's own blueprint checks
    its requests, because they have a turn by then.
    """

    @scope.before_request
    def _check() -> None:
        if (request.blueprint == "console") != isinstance(scope, Blueprint):
            return
        if request.blueprint in _ALWAYS_ANSWER or request.endpoint in _WITHOUT_DATABASE or request.endpoint in exempt:
            return
        try:
            check_schema()
        except SchemaNewerError as error:
            raise Unavailable(str(error)) from error
