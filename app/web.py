"""The service as one Flask app: permission answers, runs, health, metrics.

The app is made in each process after the fork, so that no database connection is shared between processes.
"""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from random import SystemRandom
from threading import Event, Thread
from time import perf_counter

from flask import Blueprint, Flask, Response, g, request
from sqlalchemy import Engine, text
from werkzeug.middleware.proxy_fix import ProxyFix

from app import __version__
from app.admin.health import Check, NotReadyError, health_blueprint, metrics_blueprint
from app.admin.openapi import openapi_blueprint
from app.admin.resync import resync_blueprint
from app.bootstrap import STORE_MIGRATIONS, expectations_of, look_for_concerns, watch_over
from app.clock import Clock, utc_now
from app.counters import counters_are_shared
from app.database.engine import open_engine, reading
from app.database.migrations import SchemaNewerError, pending
from app.database.programs import ForeignDatabaseError
from app.edge.errors import install_error_handlers
from app.edge.headers import install_security_headers
from app.edge.json import json_response
from app.edge.paths import install_path_rules
from app.edge.request_id import install_request_ids
from app.edge.throttle import FailedCredentials
from app.edge.tokens import TokenSet, require_bearer
from app.ingest.blueprint import Ingest, install_ingest
from app.ingest.targets import targets_from_settings
from app.metrics import Metrics
from app.model.contents import current_revision, oldest_good_read, revision_created_at, source_states
from app.model.origins import load_origins
from app.model.refresh.pushes import push_states
from app.model.view.loader import AccessViewLoader
from app.numbers import DatabaseNumbers
from app.provider.blueprint import provider_blueprint
from app.provider.settings import EXPLAIN_PATH
from app.provider.signing import BackendSigner, Sign
from app.runs.lifecycle import Runs
from app.settings import Settings

_WATCH_EVERY = 30.0
"""Seconds between two looks of a service; workers look more often."""


def make_app(settings: Settings) -> Flask:
    """The app for one process of the real service, with an engine of its own, and the one who tells people what needs
    their attention: a worker that is dead tells nobody."""
    engine = open_engine(settings.database_url, pool_size=settings.server.threads + 3, mapped=True)
    watch = watch_over(settings, engine, clock=utc_now, stop=Event())
    watch.every = _WATCH_EVERY
    Thread(target=watch.run, name="watch", daemon=True).start()
    return create_app(settings, engine, clock=utc_now, new_id=_random_id(SystemRandom()))


def create_app(settings: Settings, engine: Engine, *, clock: Clock, new_id: Callable[[], str]) -> Flask:
    """The service on this database."""
    app = Flask("usher", static_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined] # of Flask's default provider, which this is
    # A path with two slashes is another path, which does not exist, and not one to redirect a POST from.
    app.url_map.merge_slashes = False
    metrics = Metrics()
    failures = FailedCredentials()
    admin_tokens = TokenSet((token.get_secret_value() for token in settings.admin.tokens), failures)
    runs = Runs(engine, clock, SystemRandom())
    expected = expectations_of(settings)
    numbers = DatabaseNumbers(
        engine,
        clock,
        look_for_concerns(settings),
        due_after=expected.due_after,
        worker_after=expected.worker_after.total_seconds() or DatabaseNumbers.WORKER_AFTER,
    )

    # How many permission calls there are, and how fast, is what metrics are for.
    install_request_ids(app, new_id, frequent={settings.provider.path})
    install_path_rules(app)
    install_security_headers(app)
    install_error_handlers(app)
    count_requests(app, metrics)
    app.register_blueprint(
        provider_blueprint(
            settings.provider,
            load_view=AccessViewLoader(engine, settings.provider.policy),
            load_view_with_names=AccessViewLoader(engine, settings.provider.policy, names=True),
            load_origins=partial(load_origins, engine),
            require_admin=lambda: require_bearer(request, admin_tokens),
            clock=clock,
            observer=metrics,
            failures=failures,
            sign=_signer(settings),
        )
    )
    app.register_blueprint(resync_blueprint(runs, admin_tokens))
    install_ingest(app, Ingest(engine, targets_from_settings(settings.directory, failures), clock))
    app.register_blueprint(health_blueprint(readiness_checks(engine, clock, max_age=settings.directory.max_age)))
    app.register_blueprint(
        metrics_blueprint(
            lambda accept: metrics.render(numbers, shared=counters_are_shared(), accept=accept),
            admin_tokens if settings.metrics.require_token else None,
        )
    )
    app.register_blueprint(
        openapi_blueprint(
            version=__version__,
            provider_path=settings.provider.path,
            explain_path=EXPLAIN_PATH,
            max_requests=settings.provider.max_requests,
        )
    )
    app.register_blueprint(landing_blueprint(settings))
    if settings.server.trusted_proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=settings.server.trusted_proxies)  # type: ignore[method-assign]  # Flask's own way
    return app


def create_metrics_app(settings: Settings, metrics: Metrics) -> Flask:
    """What a worker shows at ``metrics.worker_port``: its own counters, to whoever sees the service's."""
    app = Flask("usher-worker", static_folder=None)
    install_request_ids(app, _random_id(SystemRandom()), frequent={"/metrics"})
    install_path_rules(app)
    install_security_headers(app)
    install_error_handlers(app)
    tokens = TokenSet((token.get_secret_value() for token in settings.admin.tokens), FailedCredentials())
    app.register_blueprint(
        metrics_blueprint(
            lambda accept: metrics.render(shared=counters_are_shared(), accept=accept),
            tokens if settings.metrics.require_token else None,
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


_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"})


def readiness_checks(engine: Engine, clock: Clock, *, max_age: float = 0) -> Mapping[str, Check]:
    """What has to be well for the service to answer; ``max_age``: seconds that the directory's last good read may be
    old, 0: any age will do."""

    def database() -> str:
        began = time.perf_counter()
        with reading(engine) as connection:
            connection.execute(text("SELECT 1"))
        return f"{engine.dialect.name} answered in {(time.perf_counter() - began) * 1000:.1f} ms"

    def migrations() -> str:
        try:
            behind = pending(engine, STORE_MIGRATIONS)
        except (SchemaNewerError, ForeignDatabaseError) as error:
            raise NotReadyError(str(error)) from error
        if behind:
            raise NotReadyError("the schema is older than this version: run usher db upgrade")
        return "current"

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
        told += f", {refused} of them refused for what they would take away" if refused else ""
        telling = sum(state.tells_changes for state in states)
        told += f"; {telling} of {len(states)} asked for changes" if telling else ""
        if pushes:
            last = max(push.pushed_at or 0 for push in pushes.values())
            told += f"; last pushed to {max(0, round(clock().timestamp() - last / 1000))} s ago"
        if max_age and age > max_age:
            raise NotReadyError(f"{told}; directory.max_age allows {max_age:g} s")
        return told

    return {"database": database, "migrations": migrations, "accessModel": access_model, "directory": directory}


def landing_blueprint(settings: Settings) -> Blueprint:
    """``/`` tells whoever comes by what this is and where to go on."""
    blueprint = Blueprint("landing", __name__)
    links = {
        "permissions": settings.provider.path,
        "explain": EXPLAIN_PATH,
        "resync": "/resync",
        "health": "/healthz",
        "readiness": "/readyz",
        "metrics": "/metrics",
        "openapi": "/openapi.json",
    }

    @blueprint.get("/")
    def landing() -> Response:
        return json_response({"product": "Usher", "version": __version__, "links": links})

    return blueprint


def _signer(settings: Settings) -> Sign | None:
    """Who signs answers to browsers; None where none are given, none are to be signed, or nobody could be asked."""
    provider, backend = settings.provider, settings.backend
    if not (provider.browser_origins and provider.signature_timeout and backend.api_key.get_secret_value()):
        return None
    from app.client.client import BackendClient  # noqa: PLC0415 - the service lives without it, and starts sooner
    from app.client.retry import RetryPolicy  # noqa: PLC0415 - as above

    client = BackendClient(
        backend.model_copy(update={"timeout": provider.signature_timeout}),
        policy=RetryPolicy(repeats=0, max_waiting=0),
    )
    return BackendSigner(client.generate_signature, patience=provider.signature_timeout)


def _random_id(random: SystemRandom) -> Callable[[], str]:
    return lambda: f"{random.getrandbits(64):016x}"
