"""Runs the backend's server, and its webhook workers."""

import atexit
import fcntl
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread
from typing import IO, NoReturn

import structlog
from flask import Flask
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from app.backend.app import create_backend
from app.backend.embedders import open_embedder
from app.backend.embedders.embedder import EmbedderUnavailableError
from app.backend.schema import METADATA
from app.backend.security.outgoing import open_session
from app.backend.security.secret_key import SecretKeyError
from app.backend.security.vault import check_secret_key, open_vault
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage.sqlite_statistics import ensure_statistics
from app.backend.webhooks.delivery import DeliveryWorker, join, run_workers
from app.backend.webhooks.sender import open_sender
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.foundation.database.errors import cause_of
from app.foundation.database.url import DatabaseUrlError
from app.http.gunicorn import ServerOptions, serve

_log = structlog.stdlib.get_logger(__name__)

STARTUP_ERRORS: tuple[type[Exception], ...] = (SecretKeyError, DatabaseUrlError, EmbedderUnavailableError)
"""Errors that the operator can fix. Their texts are one line."""


def serve_backend(settings: SelfHostedBackendSettings, options: ServerOptions) -> NoReturn:
    """Serves until SIGTERM or SIGINT. One of its processes sends webhooks. The tables must exist. Raises one of
    ``STARTUP_ERRORS`` for problems that are detectable before the server listens."""
    open_vault(settings, random.SystemRandom())
    open_embedder(settings.embedder)
    # Opened before the fork, so that the processes share it.
    lock = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the processes run

    def make() -> Flask:
        app = _create_app(settings, options.threads)
        if settings.webhook_threads:
            _deliver_as_leader(lock, webhook_workers(settings), settings.webhook_threads)
        return app

    serve(make, replace(options, startup_errors=(*options.startup_errors, *STARTUP_ERRORS)))


def _create_app(settings: SelfHostedBackendSettings, threads: int) -> Flask:
    """The application. Call it after the fork, because it opens the database. Raises one of ``STARTUP_ERRORS``."""
    entropy = random.SystemRandom()
    engine = open_engine(settings.database_url, pool_size=16)
    _check_key(settings, engine, entropy)
    session = open_session(allow_private=settings.allow_private_urls)
    return create_backend(settings, engine, utc_now, entropy, session, threads=threads)


def _deliver_as_leader(lock: IO[bytes], make: Callable[[], DeliveryWorker], threads: int) -> None:
    """Sends webhooks in a thread while this process has the lock. When it ends, the system releases the lock to
    another."""
    leads, stop = Event(), Event()

    def run() -> None:
        # A lock of this kind belongs to one process, although all of them share the open file.
        fcntl.lockf(lock, fcntl.LOCK_EX)
        leads.set()
        run_workers(make, threads, stop)

    def end() -> None:
        stop.set()
        if leads.is_set():
            join(thread)

    thread = Thread(target=run, name="webhooks", daemon=True)
    thread.start()
    atexit.register(end)


def deliver_webhooks(settings: SelfHostedBackendSettings, threads: int, stop: Event) -> None:
    """Sends webhooks until ``stop`` is set. Raises one of ``STARTUP_ERRORS``."""
    run_workers(webhook_workers(settings), threads, stop)


def webhook_workers(settings: SelfHostedBackendSettings) -> Callable[[], DeliveryWorker]:
    """A function that creates webhook workers. Opens the database, so call it after the fork. Raises
    ``STARTUP_ERRORS``."""
    entropy = random.SystemRandom()
    engine = open_engine(settings.database_url, pool_size=4)
    _check_key(settings, engine, entropy)
    vault = open_vault(settings, entropy)

    def make() -> DeliveryWorker:
        return DeliveryWorker(
            engine=engine,
            vault=vault,
            clock=utc_now,
            sleep=time.sleep,
            entropy=entropy,
            send=open_sender(allow_private=settings.allow_private_urls, timeout=settings.webhook_timeout),
        )

    return make


def _check_key(settings: SelfHostedBackendSettings, engine: Engine, entropy: random.Random) -> None:
    try:
        check_secret_key(engine, open_vault(settings, entropy))
        ensure_statistics(engine, METADATA)
    except DBAPIError as error:
        # The server starts without a database. Requests get a 503 until it is available.
        _log.warning("secret_key_unchecked", problem=type(error.orig).__name__, reason=cause_of(error))
