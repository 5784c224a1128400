"""Builds the service of one process.

Each process builds its own after the fork, because database connections must not be shared between processes.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from random import Random, SystemRandom
from threading import BoundedSemaphore, Event, Thread
from time import sleep
from types import MappingProxyType
from typing import TYPE_CHECKING

from flask import Flask
from sqlalchemy import Engine

from app.access.index.crashes import record_crashes
from app.access.index.index import AccessIndex
from app.commands.bootstrap.application import Application, build_watch, concern_finder, due_after, expectations
from app.commands.bootstrap.databases import STORE_MIGRATIONS, index_folder, open_store_for_service, store_guard
from app.commands.bootstrap.outgoing import backend_client
from app.commands.bootstrap.requirements import has_credentials
from app.contract import operations
from app.directory.settings import ScimSourceSettings
from app.foundation.clock import Clock, utc_now
from app.foundation.configuration.showing import setting_rows
from app.foundation.database.migrations import state_of
from app.http.throttle import FailedCredentials
from app.http.tokens import TokenSet
from app.monitoring.activity import NodeActivity, node_name
from app.monitoring.database_metrics import DatabaseMetrics
from app.monitoring.metrics import Metrics
from app.service.console.backend_answer import GetPermissions
from app.service.console.console import COUNT_LIMIT, ConsoleParts
from app.service.console.examinations import Examine
from app.service.provider.decision_log import DecisionLog
from app.service.provider.signing import BackendSigner, Sign
from app.service.push.auditing import PushAudit
from app.service.push.blueprint import PushParts
from app.service.push.targets import targets_from_settings
from app.service.refusals import Refusals
from app.service.web import ServiceParts, create_app, create_metrics_app
from app.settings import Settings

if TYPE_CHECKING:
    from app.service.scim.blueprint import ScimParts

_WATCH_INTERVAL = 30.0
"""Seconds between two checks by a service. Workers check more often."""
_BACKEND_TIMEOUT = 5.0
"""Timeout of calls to the backend that a page waits for, in seconds."""


def open_service(
    settings: Settings, *, origins: Mapping[str, str] = MappingProxyType({}), examine: Examine | None = None
) -> Flask:
    """The service with its own database engine and background threads. ``origins``: the origin of each setting.
    ``examine``: runs the doctor."""
    engine = open_store_for_service(settings)
    stop = Event()
    watch = build_watch(settings, engine, clock=utc_now, stop=stop, interval=_WATCH_INTERVAL)
    Thread(target=watch.run, name="watch", daemon=True).start()
    activity = NodeActivity(node=node_name(settings.server.port), role="service", clock=utc_now)
    Thread(target=activity.keep_writing, args=(engine, stop), name="activity", daemon=True).start()
    metrics = Metrics()
    index = AccessIndex(
        engine,
        index_folder(settings),
        clock=utc_now,
        max_staleness=settings.index.max_staleness or settings.directory.max_age,
        # One thread is left to permission calls.
        turns=max(1, settings.server.threads - 1),
        check_schema=store_guard(engine).check,
        observe_delay=metrics.index_delay_seconds.observe,
    )
    record_crashes(index_folder(settings))
    Thread(target=index.run, args=(stop,), name="index", daemon=True).start()
    return service_app(
        settings,
        engine,
        clock=utc_now,
        new_id=_random_id(SystemRandom()),
        activity=activity,
        index=index,
        metrics=metrics,
        origins=origins,
        examine=examine,
    )


def service_app(
    settings: Settings,
    engine: Engine,
    *,
    clock: Clock,
    new_id: Callable[[], str],
    activity: NodeActivity | None = None,
    index: AccessIndex | None = None,
    metrics: Metrics | None = None,
    origins: Mapping[str, str] = MappingProxyType({}),
    examine: Examine | None = None,
) -> Flask:
    """The service on this database. ``index`` answers permission calls. None: the database answers them."""
    application = Application(settings=settings, engine=engine, clock=clock, sleep=sleep, random=SystemRandom())
    failures, refusals = FailedCredentials(), Refusals(application.audit, engine)
    console = None
    if settings.console.enabled:
        console = _console_parts(application, failures, refusals, index, origins=origins, examine=examine)
    push = _push_parts(application, failures, refusals, index)
    return create_app(
        ServiceParts(
            engine=engine,
            clock=clock,
            new_id=new_id,
            runs=application.runs,
            index=index,
            sign=_signer(settings),
            decision_log=_decision_log(settings),
            push=push,
            scim=_scim(settings, push, new_id),
            schema_state=lambda: state_of(engine, STORE_MIGRATIONS),
            check_schema=store_guard(engine).check,
            failures=failures,
            refusals=refusals,
            admin_tokens=TokenSet(settings.admin.tokens, failures),
            metrics=metrics or Metrics(),
            activity=activity or NodeActivity(node=node_name(settings.server.port), role="service", clock=clock),
            database_metrics=_database_metrics(application, index),
            console=console,
        ),
        provider=settings.provider,
        max_age=settings.directory.max_age,
        metrics_need_token=settings.metrics.require_token,
        trusted_proxies=settings.server.trusted_proxies,
    )


def _push_parts(
    application: Application, failures: FailedCredentials, refusals: Refusals, index: AccessIndex | None
) -> PushParts:
    settings = application.settings
    return PushParts(
        application.engine,
        targets_from_settings(settings.directory, failures),
        application.clock,
        PushAudit(application.audit, refusals),
        uploads=BoundedSemaphore(max(1, settings.server.threads // 4)),
        follow=(lambda _: None) if index is None else index.wait_for,
    )


def _database_metrics(application: Application, index: AccessIndex | None) -> DatabaseMetrics:
    settings = application.settings
    return DatabaseMetrics(
        application.engine,
        application.clock,
        concern_finder(settings),
        due_after=expectations(settings).due_after,
        dead_after=settings.notifications.dead_after,
        turn=nullcontext if index is None else index.free_turn,
    )


def _console_parts(
    application: Application,
    failures: FailedCredentials,
    refusals: Refusals,
    index: AccessIndex | None,
    *,
    origins: Mapping[str, str],
    examine: Examine | None,
) -> ConsoleParts:
    settings = application.settings
    return ConsoleParts(
        engine=application.engine,
        clock=application.clock,
        random=application.random,
        settings=settings.console,
        admin_tokens=settings.admin.tokens,
        failures=failures,
        refusals=refusals,
        runs=application.runs,
        ask_backend=_permission_getter(settings),
        plan_problem=application.plan_problem,
        policy=settings.provider.policy,
        provider_path=settings.provider.path,
        find_concerns=concern_finder(settings, limit=COUNT_LIMIT),
        due_after=expectations(settings).due_after,
        verify_due_after=due_after(settings, settings.sync.verify_schedule),
        settings_rows=lambda: list(setting_rows(settings, origins)),
        index_state=None if index is None else lambda: index.state,
        examine=examine,
        sources={source.source_name: source.type for source in settings.directory.sources},
        keep_runs=settings.worker.keep_runs,
        # Permission calls keep the other half of the threads.
        slots=settings.server.threads // 2,
        turns=None if index is None else index.turns,
    )


def _scim(settings: Settings, push: PushParts, new_id: Callable[[], str]) -> "ScimParts | None":
    """The endpoint for directories that push with SCIM. None without a source of SCIM. Its library is an extra."""
    if not any(isinstance(source, ScimSourceSettings) for source in settings.directory.sources):
        return None
    from app.service.scim.blueprint import scim_parts

    return scim_parts(push, settings.directory, new_id, public_url=settings.console.public_url)


def worker_metrics(settings: Settings) -> Flask:
    """The metrics server of a worker, at ``metrics.worker_port``."""
    return create_metrics_app(
        Metrics(),
        new_id=_random_id(SystemRandom()),
        tokens=TokenSet(settings.admin.tokens, FailedCredentials()) if settings.metrics.require_token else None,
    )


def _signer(settings: Settings) -> Sign | None:
    """Signs answers to browsers through the backend. None if it is disabled or the credentials are missing."""
    provider = settings.provider
    if not (provider.browser_origins and provider.signature_timeout and has_credentials(settings)):
        return None
    client = backend_client(settings, timeout=provider.signature_timeout)
    return BackendSigner(partial(client.call, operations.GENERATE_SIGNATURE), timeout=provider.signature_timeout)


def _decision_log(settings: Settings) -> DecisionLog | None:
    log = settings.provider.decision_log
    # A number of the operating system for each decision would take a tenth of the time of a call.
    return DecisionLog(log, random=Random().random) if log.path else None  # noqa: S311 - a sample, no secret


def _permission_getter(settings: Settings) -> GetPermissions | None:
    """Calls Get Permissions, for Explain. None without credentials."""
    if not has_credentials(settings):
        return None
    return partial(backend_client(settings, timeout=_BACKEND_TIMEOUT).call, operations.GET_PERMISSIONS)


def _random_id(random: Random) -> Callable[[], str]:
    return lambda: f"{random.getrandbits(64):016x}"
