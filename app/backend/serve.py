"""Runs the backend's server, with workers that send webhooks in each of its processes."""

import atexit
import random
import time
from dataclasses import replace
from typing import NoReturn

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
from app.backend.security.vault import Vault, check_secret_key, open_vault
from app.backend.settings import SelfHostedBackendSettings
from app.backend.storage.sqlite_statistics import ensure_statistics
from app.backend.webhooks.delivery import DeliveryWorker, start_workers
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
    """Serves until SIGTERM or SIGINT. Each process sends webhooks. The tables must exist. Raises one of
    ``STARTUP_ERRORS`` for problems that are detectable before the server listens."""
    open_vault(settings, random.SystemRandom())
    open_embedder(settings.embedder)
    options = replace(options, startup_errors=(*options.startup_errors, *STARTUP_ERRORS))
    serve(lambda: _create_app(settings, options.threads), options)


def _create_app(settings: SelfHostedBackendSettings, threads: int) -> Flask:
    """The application. Call it after the fork, because it opens the database. Raises one of ``STARTUP_ERRORS``."""
    entropy = random.SystemRandom()
    # One connection for each thread.
    engine = open_engine(settings.database_url, pool_size=threads + settings.webhook_threads)
    vault = open_vault(settings, entropy)
    _prepare_database(engine, vault)
    session = open_session(allow_private=settings.allow_private_urls)
    app = create_backend(settings, engine, utc_now, entropy, session, threads=threads)

    def make_worker() -> DeliveryWorker:
        return DeliveryWorker(
            engine=engine,
            vault=vault,
            clock=utc_now,
            sleep=time.sleep,
            entropy=entropy,
            send=open_sender(allow_private=settings.allow_private_urls, timeout=settings.webhook_timeout),
        )

    atexit.register(start_workers(make_worker, settings.webhook_threads))
    return app


def _prepare_database(engine: Engine, vault: Vault) -> None:
    """Checks the secret key, and writes the statistics of SQLite. Raises ``SecretKeyError``."""
    try:
        check_secret_key(engine, vault)
        ensure_statistics(engine, METADATA)
    except DBAPIError as error:
        # The server starts without a database. Requests get a 503 until it is available.
        _log.warning("secret_key_unchecked", problem=type(error.orig).__name__, reason=cause_of(error))
