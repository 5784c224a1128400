"""Creates the Flask app of the service from its parts, and that of a worker's metrics."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from time import perf_counter

from flask import Blueprint, Flask, Response, g, request
from sqlalchemy import Engine, select
from werkzeug.middleware.proxy_fix import ProxyFix

from app import __version__
from app.access.contents import oldest_good_read, source_states
from app.access.decision.decide import Rule
from app.access.origins import load_origins
from app.access.refresh.pushes import push_states
from app.access.revisions import current_revision, instance_stamp, revision_created_at
from app.contract.errors import Unavailable
from app.foundation.audit import Audit
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.foundation.database.programs import ForeignDatabaseError, SchemaNewerError, SchemaState
from app.http.app import new_app
from app.http.json import json_response
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, require_bearer
from app.monitoring.activity import NodeActivity
from app.monitoring.counters import counters_are_shared
from app.monitoring.database_metrics import DatabaseMetrics
from app.monitoring.metrics import Metrics
from app.service.admin.auth import AdminAuth
from app.service.admin.health import Check, NotReadyError, health_blueprint, metrics_blueprint
from app.service.admin.openapi import document, openapi_blueprint
from app.service.admin.resync import resync_blueprint
from app.service.console.blueprint import console_blueprint
from app.service.console.console import ConsoleParts
from app.service.provider.answer import ProviderObserver, ViewLoader
from app.service.provider.blueprint import provider_blueprint
from app.service.provider.settings import EXPLAIN_PATH, ProviderSettings
from app.service.provider.signing import Sign
from app.service.push.blueprint import PushParts, install_push
from app.service.refusals import Refusals
from app.sync.runs.lifecycle import Runs


@dataclass(frozen=True, kw_only=True)
class ServiceParts:
    """The dependencies of the service."""

    engine: Engine
    clock: Clock
    new_id: Callable[[], str]
    """Creates an id for a request without one."""
    runs: Runs
    load_view: ViewLoader
    load_view_with_names: ViewLoader
    sign: Sign | None
    push: PushParts
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
    refuse_if_incompatible(app, parts.check_schema)
    app.register_blueprint(
        provider_blueprint(
            provider,
            load_view=parts.load_view,
            load_view_with_names=parts.load_view_with_names,
            load_origins=partial(load_origins, parts.engine),
            require_admin=auth.require,
            clock=parts.clock,
            instance=lambda: _instance(parts.engine),
            observer=_Observers((metrics, parts.activity)),
            failures=parts.failures,
            sign=parts.sign,
        )
    )
    app.register_blueprint(resync_blueprint(parts.runs, auth))
    install_push(app, parts.push)
    app.register_blueprint(health_blueprint(readiness_checks(parts, max_age=max_age)))
    app.register_blueprint(
        metrics_blueprint(
            lambda accept: metrics.render(parts.database_metrics, shared=counters_are_shared(), accept=accept),
            auth.require if metrics_need_token else None,
        )
    )
    app.register_blueprint(
        openapi_blueprint(
            document(
                version=__version__,
                provider_path=provider.path,
                explain_path=EXPLAIN_PATH,
                max_requests=provider.max_requests,
                metrics_need_token=metrics_need_token,
            )
        )
    )
    if parts.console is not None:
        app.register_blueprint(console_blueprint(parts.console))
    app.register_blueprint(landing_blueprint(provider.path, has_console=parts.console is not None))
    if trusted_proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=trusted_proxies)  # type: ignore[method-assign]  # Flask's own way
    return app


def _instance(engine: Engine) -> str:
    with reading(engine) as connection:
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
        g.counted_from = perf_counter()

    @app.after_request
    def _count(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule is not None else "unknown"
        method = request.method if request.method in _METHODS else "other"
        requests_of(method, route, str(response.status_code)).inc()
        began = g.get("counted_from")
        if began is not None:
            seconds_of(route).observe(perf_counter() - began)
        return response


def refuse_if_incompatible(app: Flask, check_schema: Callable[[], None]) -> None:
    """Answers 503 if a newer version has made the database unusable for this one, except for health, metrics and the
    assets of error pages."""

    @app.before_request
    def _check() -> None:
        if request.blueprint in _ALWAYS_ANSWER or request.endpoint == "console.asset":
            return
        try:
            check_schema()
        except SchemaNewerError as error:
            raise Unavailable(str(error)) from error


_ALWAYS_ANSWER = frozenset({"health", "metrics", "landing", "openapi"})

_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"})


def readiness_checks(parts: ServiceParts, *, max_age: float = 0) -> Mapping[str, Check]:
    """The checks of ``/readyz``. ``max_age``: the maximum age of the directory, in seconds; 0: any age."""
    engine, clock = parts.engine, parts.clock

    def database() -> str:
        began = time.perf_counter()
        with reading(engine) as connection:
            connection.execute(select(1))
        return f"{engine.dialect.name} answered in {(time.perf_counter() - began) * 1000:.1f} ms"

    def migrations() -> str:
        try:
            state = parts.schema_state()
        except (SchemaNewerError, ForeignDatabaseError) as error:
            raise NotReadyError(str(error)) from error
        if state is SchemaState.OLDER:
            raise NotReadyError("the schema is older than this version: run usher db upgrade")
        return "current" if state is SchemaState.CURRENT else "newer than this version, which can still use it"

    def access_model() -> str:
        with reading(engine) as connection:
            revision, created_at = current_revision(connection), revision_created_at(connection)
        if created_at is None:
            raise NotReadyError("the directory has never been read: run usher directory refresh")
        age = max(0, round(clock().timestamp() - created_at / 1000))
        return f"revision {revision}, {age} s old"

    def directory() -> str:
        with reading(engine) as connection:
            states = [state for state in source_states(connection) if state.is_configured]
            pushes = push_states(connection)
        read_at = oldest_good_read(states)
        if read_at is None:
            raise NotReadyError("no source has ever been read successfully")
        age = max(0, round(clock().timestamp() - read_at / 1000))
        # This endpoint requires no token, so it contains no names and reasons. Metrics and runs contain them.
        failed = sum(state.last_verdict == "failed" for state in states)
        text = f"read successfully {age} s ago" + (
            f"; {failed} of {len(states)} sources failed since" if failed else ""
        )
        refused = sum(bool(state.refused) for state in states)
        text += f"; {refused} of {len(states)} refused because of what they would remove" if refused else ""
        incremental = sum(state.tells_changes for state in states)
        text += f"; {incremental} of {len(states)} read incrementally" if incremental else ""
        if pushes:
            last = max(push.pushed_at or 0 for push in pushes.values())
            text += f"; last push {max(0, round(clock().timestamp() - last / 1000))} s ago"
        if max_age and age > max_age:
            raise NotReadyError(f"{text}; directory.max_age allows {max_age:g} s")
        return text

    return {"database": database, "migrations": migrations, "accessModel": access_model, "directory": directory}


def landing_blueprint(provider_path: str, *, has_console: bool) -> Blueprint:
    """``/`` returns the product, its version and its endpoints."""
    blueprint = Blueprint("landing", __name__)
    links = {
        "permissions": provider_path,
        "explain": EXPLAIN_PATH,
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
