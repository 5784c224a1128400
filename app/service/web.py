"""The service as one Flask app: permission answers, runs, health, metrics. It is handed its parts."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from time import perf_counter

from flask import Blueprint, Flask, Response, g, request
from sqlalchemy import Engine, text
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
from app.foundation.database.compatibility import SchemaState
from app.foundation.database.engine import reading
from app.foundation.database.programs import ForeignDatabaseError, SchemaNewerError
from app.http.app import new_app
from app.http.json import json_response
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet, require_bearer
from app.monitoring.activity import NodeActivity
from app.monitoring.counters import counters_are_shared
from app.monitoring.database_metrics import DatabaseNumbers
from app.monitoring.metrics import Metrics
from app.service.admin.auth import Door
from app.service.admin.health import Check, NotReadyError, health_blueprint, metrics_blueprint
from app.service.admin.openapi import openapi_blueprint
from app.service.admin.resync import resync_blueprint
from app.service.console.blueprint import console_blueprint
from app.service.console.console import ConsoleParts
from app.service.provider.answer import ProviderObserver, ViewLoader
from app.service.provider.blueprint import provider_blueprint
from app.service.provider.settings import EXPLAIN_PATH, ProviderSettings
from app.service.provider.signing import Sign
from app.service.push.blueprint import Ingest, install_ingest
from app.service.refusals import Refusals
from app.sync.runs.lifecycle import Runs


@dataclass(frozen=True, kw_only=True)
class ServiceParts:
    """What the service works with."""

    engine: Engine
    clock: Clock
    new_id: Callable[[], str]
    """Makes the ids of requests that bring none."""
    runs: Runs
    load_view: ViewLoader
    load_view_with_names: ViewLoader
    sign: Sign | None
    ingest: Ingest
    schema_state: Callable[[], SchemaState]
    """The state of the database's schema; raises what ``state_of`` does."""
    check_schema: Callable[[], None]
    """Raises ``SchemaNewerError`` if this version cannot use the database any more. Every request calls it."""
    failures: FailedCredentials
    refusals: Refusals
    """One for all entry points, so that they share its limits."""
    admin_tokens: TokenSet
    metrics: Metrics
    activity: NodeActivity
    numbers: DatabaseNumbers
    console: ConsoleParts | None
    """None: it is switched off."""


def create_app(
    parts: ServiceParts,
    *,
    provider: ProviderSettings,
    max_age: float = 0,
    metrics_need_token: bool = True,
    trusted_proxies: int = 0,
) -> Flask:
    """The service. ``max_age``: of the directory's last good read, in seconds, for readiness; 0: any age."""
    # How many permission calls there are, and how fast, is in the metrics.
    app = new_app("usher", parts.new_id, frequent={provider.path})
    app.json.sort_keys = False  # type: ignore[attr-defined] # of Flask's default provider, which this is
    metrics = parts.metrics
    door = Door(parts.admin_tokens, Audit(parts.clock), parts.refusals)

    count_requests(app, metrics)
    refuse_if_incompatible(app, parts.check_schema)
    app.register_blueprint(
        provider_blueprint(
            provider,
            load_view=parts.load_view,
            load_view_with_names=parts.load_view_with_names,
            load_origins=partial(load_origins, parts.engine),
            require_admin=door.require,
            clock=parts.clock,
            instance=lambda: _instance_of(parts.engine),
            observer=_Observers((metrics, parts.activity)),
            failures=parts.failures,
            sign=parts.sign,
        )
    )
    app.register_blueprint(resync_blueprint(parts.runs, door))
    install_ingest(app, parts.ingest)
    app.register_blueprint(health_blueprint(readiness_checks(parts, max_age=max_age)))
    app.register_blueprint(
        metrics_blueprint(
            lambda accept: metrics.render(parts.numbers, shared=counters_are_shared(), accept=accept),
            door.require if metrics_need_token else None,
        )
    )
    app.register_blueprint(
        openapi_blueprint(
            version=__version__,
            provider_path=provider.path,
            explain_path=EXPLAIN_PATH,
            max_requests=provider.max_requests,
        )
    )
    if parts.console is not None:
        app.register_blueprint(console_blueprint(parts.console))
    app.register_blueprint(landing_blueprint(provider.path, has_console=parts.console is not None))
    if trusted_proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=trusted_proxies)  # type: ignore[method-assign]  # Flask's own way
    return app


def _instance_of(engine: Engine) -> str:
    with reading(engine) as connection:
        return instance_stamp(connection)


@dataclass(frozen=True, slots=True)
class _Observers:
    """Forwards each call to several observers."""

    told: Sequence[ProviderObserver]

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        """Forwards the call."""
        for one in self.told:
            one.answered(allowed, denied, errors, seconds)


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
    """Counts and times every request by its route: a path would make a series of every id that anyone invents."""

    # To find a series by its labels takes longer than to count.
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
    """Answers 503 if a newer version made the database unusable for this one. Health, metrics and the assets of error
    pages do not need it."""

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
    """What has to be well for the service to answer; ``max_age``: seconds that the directory's last good read may be
    old, 0: any age will do."""
    engine, clock = parts.engine, parts.clock

    def database() -> str:
        began = time.perf_counter()
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
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
            raise NotReadyError("the directory was never read: run usher directory refresh, or a sync")
        age = max(0, round(clock().timestamp() - created_at / 1000))
        return f"revision {revision}, {age} s old"

    def directory() -> str:
        with reading(engine) as connection:
            states = [state for state in source_states(connection) if state.is_configured]
            pushes = push_states(connection)
        read_at = oldest_good_read(states)
        if read_at is None:
            raise NotReadyError("no source was ever read well")
        age = max(0, round(clock().timestamp() - read_at / 1000))
        # Whoever asks here shows no token: names and reasons stand in the metrics and in the runs.
        failed = sum(state.last_verdict == "failed" for state in states)
        told = f"read well {age} s ago" + (f"; {failed} of {len(states)} sources failed since" if failed else "")
        refused = sum(bool(state.refused) for state in states)
        told += f"; {refused} of {len(states)} refused for what they would take away" if refused else ""
        telling = sum(state.tells_changes for state in states)
        told += f"; {telling} of {len(states)} asked for changes" if telling else ""
        if pushes:
            last = max(push.pushed_at or 0 for push in pushes.values())
            told += f"; last pushed to {max(0, round(clock().timestamp() - last / 1000))} s ago"
        if max_age and age > max_age:
            raise NotReadyError(f"{told}; directory.max_age allows {max_age:g} s")
        return told

    return {"database": database, "migrations": migrations, "accessModel": access_model, "directory": directory}


def landing_blueprint(provider_path: str, *, has_console: bool) -> Blueprint:
    """``/`` names the product, its version and its endpoints."""
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
