"""Creates the Flask app of the service from its parts, and that of a worker's metrics."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING

from flask import Blueprint, Flask, Response, g, request
from sqlalchemy import Engine
from werkzeug.middleware.proxy_fix import ProxyFix

from app import __version__
from app.access.decision.decide import Rule
from app.access.index.index import AccessIndex
from app.access.origins import load_origins
from app.access.revisions import instance_stamp
from app.access.sql_view import opened_sql_view
from app.contract.errors import Unavailable
from app.foundation.audit import Audit
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.foundation.database.programs import SchemaNewerError, SchemaState
from app.http.app import new_app
from app.http.json import json_response
from app.http.request_id import began_at
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, require_bearer
from app.monitoring.activity import NodeActivity
from app.monitoring.counters import counters_are_shared
from app.monitoring.database_metrics import DatabaseMetrics
from app.monitoring.metrics import IndexMetrics, Metrics
from app.service.admin.auth import AdminAuth
from app.service.admin.health import health_blueprint, metrics_blueprint
from app.service.admin.listing import listing_blueprint
from app.service.admin.openapi import Json, document, openapi_blueprint
from app.service.admin.readiness import readiness_checks
from app.service.admin.resync import resync_blueprint
from app.service.console.blueprint import console_blueprint
from app.service.console.console import ConsoleParts
from app.service.provider.answer import ProviderObserver
from app.service.provider.blueprint import provider_blueprint
from app.service.provider.decision_log import DecisionLog
from app.service.provider.ordinary import OrdinaryCalls
from app.service.provider.settings import EXPLAIN_PATH, LIST_RESOURCES_PATH, LIST_USERS_PATH, ProviderSettings
from app.service.provider.signing import Sign
from app.service.push.blueprint import PushParts, install_push
from app.service.refusals import Refusals
from app.sync.runs.lifecycle import Runs

if TYPE_CHECKING:
    from app.service.scim.blueprint import ScimParts

Turn = Callable[[], AbstractContextManager[None]]
"""A turn at the database: see ``app.access.index.turns``."""


@dataclass(frozen=True, kw_only=True)
class ServiceParts:
    """The dependencies of the service."""

    engine: Engine
    clock: Clock
    new_id: Callable[[], str]
    """Creates an id for a request without one."""
    runs: Runs
    index: AccessIndex | None
    """Answers permission calls; None: they are answered from the database."""
    sign: Sign | None
    decision_log: DecisionLog | None
    push: PushParts
    scim: "ScimParts | None"
    """None: no source is one of SCIM."""
    schema_state: Callable[[], SchemaState]
    """Returns the state of the database's schema. Raises what ``state_of`` does."""
    check_schema: Callable[[], None]
    """Raises ``SchemaNewerError`` if this version can no longer use the database. Every request calls it."""
    failures: FailedCredentials
    refusals: Refusals
    """One instance for all endpoints, so that they share its limits."""
    admin_tokens: TokenSet
    metrics: Metrics
    activity: NodeActivity
    database_metrics: DatabaseMetrics
    console: ConsoleParts | None
    """None: it is disabled."""

    @property
    def observer(self) -> ProviderObserver:
        """Counts permission calls in the metrics and in the activity of the node."""
        return _Observers((self.metrics, self.activity))


def create_app(
    parts: ServiceParts,
    *,
    provider: ProviderSettings,
    max_age: float = 0,
    metrics_need_token: bool = True,
    trusted_proxies: int = 0,
) -> Flask:
    """The service. ``max_age``: the maximum age of the directory's last successful read, in seconds; 0: any age."""
    # Permission calls are too frequent for a log line each. Metrics count them.
    app = new_app("usher", parts.new_id, frequent={provider.path})
    app.json.sort_keys = False  # type: ignore[attr-defined] # of Flask's default provider, which this is
    metrics = parts.metrics
    auth = AdminAuth(parts.admin_tokens, Audit(parts.clock), parts.refusals)
    count_requests(app, metrics)
    turn = nullcontext if parts.index is None else parts.index.turns.taken
    take_turns(app, turn)
    # The index checks the schema in the background, and answers without the database.
    refuse_if_incompatible(app, parts.check_schema, but=set() if parts.index is None else {"provider.check"})
    sql_view = partial(opened_sql_view, parts.engine)
    app.register_blueprint(
        provider_blueprint(
            provider,
            open_view=sql_view if parts.index is None else parts.index.view,
            open_view_with_names=sql_view,
            load_origins=partial(load_origins, parts.engine),
            require_admin=auth.require,
            clock=parts.clock,
            instance=lambda: _instance(parts.engine, turn),
            observer=parts.observer,
            failures=parts.failures,
            sign=parts.sign,
            log=parts.decision_log,
        )
    )
    app.register_blueprint(listing_blueprint(parts.engine, auth, parts.clock, provider.policy))
    app.register_blueprint(resync_blueprint(parts.runs, auth))
    _install_pushes(app, parts)
    readiness = readiness_checks(parts.engine, parts.clock, parts.schema_state, parts.index, max_age=max_age)
    app.register_blueprint(health_blueprint(readiness))
    collectors = [parts.database_metrics, *([] if parts.index is None else [IndexMetrics(parts.index)])]
    app.register_blueprint(
        metrics_blueprint(
            lambda accept: metrics.render(*collectors, shared=counters_are_shared(), accept=accept),
            auth.require if metrics_need_token else None,
        )
    )
    app.register_blueprint(openapi_blueprint(lambda: _api_document(provider, metrics_need_token=metrics_need_token)))
    if parts.console is not None:
        app.register_blueprint(_console(parts.console, parts.check_schema))
    app.register_blueprint(landing_blueprint(provider.path, has_console=parts.console is not None))
    if trusted_proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=trusted_proxies)  # type: ignore[method-assign]  # Flask's own way
    _answer_ordinary_calls(app, parts, provider)
    return app


def _install_pushes(app: Flask, parts: ServiceParts) -> None:
    install_push(app, parts.push)
    if parts.scim is not None:
        from app.service.scim.blueprint import install_scim  # noqa: PLC0415 - its library is an extra

        install_scim(app, parts.scim)


def _answer_ordinary_calls(app: Flask, parts: ServiceParts, provider: ProviderSettings) -> None:
    """Puts the middleware for ordinary permission calls before the app, unless all calls need the app: those of
    browsers for their headers, and those without an index for the check of the schema."""
    if parts.index is None or provider.browser_origins:
        return
    app.wsgi_app = OrdinaryCalls(  # type: ignore[method-assign]  # Flask's own way
        app.wsgi_app,
        provider,
        open_view=parts.index.view,
        clock=parts.clock,
        new_id=parts.new_id,
        observer=parts.observer,
        count=parts.metrics.counter_of("POST", provider.path),
        log=parts.decision_log,
    )


def _console(parts: ConsoleParts, check_schema: Callable[[], None]) -> Blueprint:
    blueprint = console_blueprint(parts)
    refuse_if_incompatible(blueprint, check_schema)
    return blueprint


def _api_document(provider: ProviderSettings, *, metrics_need_token: bool) -> Json:
    return document(
        version=__version__,
        provider_path=provider.path,
        explain_path=EXPLAIN_PATH,
        max_requests=provider.max_requests,
        metrics_need_token=metrics_need_token,
    )


def _instance(engine: Engine, turn: Turn) -> str:
    with turn(), reading(engine) as connection:
        return instance_stamp(connection)


@dataclass(frozen=True, slots=True)
class _Observers:
    """Forwards each call to several observers."""

    observers: Sequence[ProviderObserver]

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        for observer in self.observers:
            observer.answered(allowed, denied, errors, seconds)


def create_metrics_app(metrics: Metrics, *, new_id: Callable[[], str], tokens: TokenSet | None) -> Flask:
    """The server of a worker's own metrics at ``metrics.worker_port``. ``tokens``: accepted tokens; None: no
    authentication."""
    app = new_app("usher-worker", new_id, frequent={"/metrics"})
    app.register_blueprint(
        metrics_blueprint(
            lambda accept: metrics.render(shared=counters_are_shared(), accept=accept),
            None if tokens is None else lambda: require_bearer(request, tokens),
        )
    )
    return app


def count_requests(app: Flask, metrics: Metrics) -> None:
    """Counts and times every request by its route. A path as label would create a time series for each id."""

    # Looking up a time series by its labels takes longer than counting.
    requests_of = lru_cache(maxsize=1024)(metrics.requests.labels)
    seconds_of = lru_cache(maxsize=1024)(metrics.request_seconds.labels)

    @app.before_request
    def _begin() -> None:
        g.counted_from = began_at(request.environ)

    @app.after_request
    def _count(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule is not None else "unknown"
        method = request.method if request.method in _METHODS else "other"
        requests_of(method, route, str(response.status_code)).inc()
        began = g.get("counted_from")
        if began is not None:
            seconds_of(route).observe(perf_counter() - began)
        return response


def take_turns(app: Flask, turn: Turn) -> None:
    """Requests that use the database take a turn. Permission calls take one if the index does not answer them, and
    those of the console after they have a slot. Health checks and metrics do not wait for one: they report the
    database."""

    @app.before_request
    def _take() -> None:
        if request.endpoint == "ingest.upload":
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
    scope: Flask | Blueprint, check_schema: Callable[[], None], *, but: Collection[str] = ()
) -> None:
    """Answers 503 if a newer version has made the database unusable for this one, except for requests that need no
    database. Requests of the console are checked by its own blueprint: they have a turn by then."""

    @scope.before_request
    def _check() -> None:
        if (request.blueprint == "console") != isinstance(scope, Blueprint):
            return
        if request.blueprint in _ALWAYS_ANSWER or request.endpoint in _WITHOUT_DATABASE or request.endpoint in but:
            return
        try:
            check_schema()
        except SchemaNewerError as error:
            raise Unavailable(str(error)) from error


_ALWAYS_ANSWER = frozenset({"health", "metrics", "landing", "openapi"})
_WITHOUT_DATABASE = frozenset({None, "provider.preflight", "console.asset"})
"""Endpoints that need no database. None: no route has this path or method."""

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"})


def landing_blueprint(provider_path: str, *, has_console: bool) -> Blueprint:
    """``/`` returns the product, its version and its endpoints."""
    blueprint = Blueprint("landing", __name__)
    links = {
        "permissions": provider_path,
        "explain": EXPLAIN_PATH,
        "listResources": LIST_RESOURCES_PATH,
        "listUsers": LIST_USERS_PATH,
        "resync": "/resync",
        **({"console": "/console/"} if has_console else {}),
        "health": "/healthz",
        "readiness": "/readyz",
        "metrics": "/metrics",
        "openapi": "/openapi.json",
    }

    @blueprint.get("/")
    def landing() -> Response:
        return json_response({"product": "Usher", "version": __version__, "links": links})

    return blueprint
