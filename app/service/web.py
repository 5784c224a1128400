"""Creates the Flask apps of the service and of a worker's metrics."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flask import Blueprint, Flask, Response, request
from sqlalchemy import Engine
from werkzeug.middleware.proxy_fix import ProxyFix

from app import __version__
from app.access.index.index import AccessIndex
from app.access.origins import load_origins
from app.access.revisions import instance_stamp
from app.access.sql_view import opened_sql_view
from app.foundation.audit import Audit
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.foundation.database.programs import SchemaState
from app.http.app import new_app
from app.http.json import json_response
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, require_bearer
from app.monitoring.activity import NodeActivity
from app.monitoring.counters import counters_are_shared
from app.monitoring.database_metrics import DatabaseMetrics
from app.monitoring.metrics import IndexMetrics, Metrics
from app.service.admin.auth import AdminAuth
from app.service.admin.health import health_blueprint, metrics_blueprint, readiness_checks
from app.service.admin.listing import listing_blueprint
from app.service.admin.openapi import document, openapi_blueprint
from app.service.admin.resync import resync_blueprint
from app.service.console.blueprint import console_blueprint
from app.service.console.console import ConsoleParts
from app.service.hooks import Turn, count_requests, refuse_if_incompatible, take_turns
from app.service.provider.blueprint import provider_blueprint
from app.service.provider.decision_log import DecisionLog
from app.service.provider.fast_path import FastPath
from app.service.provider.parts import ProviderParts
from app.service.provider.settings import EXPLAIN_PATH, LIST_RESOURCES_PATH, LIST_USERS_PATH, ProviderSettings
from app.service.provider.signing import Sign
from app.service.push.blueprint import PushParts, install_push
from app.service.refusals import Refusals
from app.sync.runs.lifecycle import Runs

if TYPE_CHECKING:
    from app.service.scim.blueprint import ScimParts


@dataclass(frozen=True, kw_only=True)
class ServiceParts:
    """The dependencies of the service."""

    engine: Engine
    clock: Clock
    new_id: Callable[[], str]
    """Creates an id for a request without one."""
    runs: Runs
    index: AccessIndex | None
    """Answers permission calls. None if the database answers them."""
    sign: Sign | None
    decision_log: DecisionLog | None
    push: PushParts
    scim: "ScimParts | None"
    """None if no source is one of SCIM."""
    schema_state: Callable[[], SchemaState]
    """Returns the state of the database's schema. Raises what ``state_of`` raises."""
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
    """None if the console is disabled."""


def create_app(
    parts: ServiceParts, *, provider: ProviderSettings, max_age: float, metrics_need_token: bool, trusted_proxies: int
) -> Flask:
    """The service. ``max_age`` is the maximum age of the directory's last successful read, in seconds. 0: any age."""
    # Permission calls are too frequent for a log line each. Metrics count them.
    app = new_app("usher", parts.new_id, frequent={provider.path})
    app.json.sort_keys = False  # type: ignore[attr-defined] # of Flask's default provider, which this is
    auth = AdminAuth(parts.admin_tokens, Audit(parts.clock), parts.refusals)
    turn = nullcontext if parts.index is None else parts.index.turns.take
    count_requests(app, parts.metrics)
    take_turns(app, turn)
    # The index checks the schema in the background, and answers without the database.
    refuse_if_incompatible(app, parts.check_schema, exempt=set() if parts.index is None else {"provider.check"})
    provider_parts = _provider_parts(parts, provider, auth, turn)
    app.register_blueprint(provider_blueprint(provider_parts))
    app.register_blueprint(listing_blueprint(parts.engine, auth, parts.clock, provider.policy))
    app.register_blueprint(resync_blueprint(parts.runs, auth))
    _install_pushes(app, parts)
    readiness = readiness_checks(parts.engine, parts.clock, parts.schema_state, parts.index, max_age=max_age)
    app.register_blueprint(health_blueprint(readiness))
    app.register_blueprint(_metrics(parts, auth if metrics_need_token else None))
    app.register_blueprint(openapi_blueprint(lambda: document(provider, metrics_need_token=metrics_need_token)))
    if parts.console is not None:
        console = console_blueprint(parts.console)
        refuse_if_incompatible(console, parts.check_schema)
        app.register_blueprint(console)
    app.register_blueprint(landing_blueprint(provider.path, has_console=parts.console is not None))
    if trusted_proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=trusted_proxies)  # type: ignore[method-assign]  # Flask's own way
    # Calls of browsers need the app for their headers, and calls without an index for the check of the schema.
    if parts.index is not None and not provider.browser_origins:
        count = parts.metrics.counter_of("POST", provider.path)
        app.wsgi_app = FastPath(app.wsgi_app, provider_parts, new_id=parts.new_id, count=count)  # type: ignore[method-assign]
    return app


def _provider_parts(parts: ServiceParts, settings: ProviderSettings, auth: AdminAuth, turn: Turn) -> ProviderParts:
    sql_view = partial(opened_sql_view, parts.engine)
    return ProviderParts(
        settings=settings,
        open_view=sql_view if parts.index is None else parts.index.view,
        open_view_with_names=sql_view,
        load_origins=partial(load_origins, parts.engine),
        require_admin=auth.require,
        clock=parts.clock,
        instance=lambda: _instance(parts.engine, turn),
        observers=(parts.metrics, parts.activity),
        failures=parts.failures,
        sign=parts.sign,
        log=parts.decision_log,
    )


def _install_pushes(app: Flask, parts: ServiceParts) -> None:
    install_push(app, parts.push)
    if parts.scim is not None:
        from app.service.scim.blueprint import install_scim  # noqa: PLC0415 - its library is an extra

        install_scim(app, parts.scim)


def _metrics(parts: ServiceParts, auth: AdminAuth | None) -> Blueprint:
    collectors = [parts.database_metrics, *([] if parts.index is None else [IndexMetrics(parts.index)])]
    return metrics_blueprint(
        lambda accept: parts.metrics.render(*collectors, shared=counters_are_shared(), accept=accept),
        None if auth is None else auth.require,
    )


def _instance(engine: Engine, turn: Turn) -> str:
    with turn(), reading(engine) as connection:
        return instance_stamp(connection)


def create_metrics_app(metrics: Metrics, *, new_id: Callable[[], str], tokens: TokenSet | None) -> Flask:
    """The server of a worker's own metrics. It requires one of ``tokens``, unless they are None."""
    app = new_app("usher-worker", new_id, frequent={"/metrics"})
    app.register_blueprint(
        metrics_blueprint(
            lambda accept: metrics.render(shared=counters_are_shared(), accept=accept),
            None if tokens is None else lambda: require_bearer(request, tokens),
        )
    )
    return app


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
