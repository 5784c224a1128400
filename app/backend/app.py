"""Creates the backend's Flask application."""

import random
import time
from functools import lru_cache
from threading import Semaphore

import requests
from flask import Flask, Response
from sqlalchemy import Engine
from werkzeug.middleware.proxy_fix import ProxyFix

from app.backend.collaboration.activities import record_activities
from app.backend.collaboration.deletion import delete_of_documents, delete_of_users
from app.backend.collaboration.notifications import notify
from app.backend.embedders import open_embedder
from app.backend.handlers import all_handlers
from app.backend.http.call import Backend
from app.backend.http.dispatch import install_operations
from app.backend.ids import new_id
from app.backend.judgments.index import JudgmentIndexes
from app.backend.judgments.judgment_handlers import JudgmentSearcher
from app.backend.judgments.store import delete_judgments_of_documents, delete_judgments_of_organizations
from app.backend.security.vault import open_vault
from app.backend.settings import SelfHostedBackendSettings
from app.backend.tokens.signing_keys import key_set
from app.backend.webhooks.outbox import delete_messages_of_organizations, send_webhooks
from app.contract.openapi import document as openapi_document
from app.foundation.clock import Clock, Sleep
from app.http.app import new_app
from app.http.json import json_response

_KEYS_CACHED = "public, max-age=300"
"""Clients reload the keys if a token has an unknown one."""

_openapi = lru_cache(maxsize=1)(openapi_document)
"""Building the document takes some tenths of a second, and anybody may request it."""


def create_backend(
    settings: SelfHostedBackendSettings,
    engine: Engine,
    clock: Clock,
    entropy: random.Random,
    session: requests.Session,
    *,
    sleep: Sleep = time.sleep,
    threads: int = 8,
) -> Flask:
    """The application, for a process with ``threads`` threads.

    ``entropy`` creates ids and secrets. Outside of tests it must be a ``random.SystemRandom``. ``session`` calls
    permission providers (see ``outgoing.open_session``). The database is not used before the first request.

    Raises ``vault.SecretKeyError`` without a usable secret key, and ``EmbedderUnavailableError`` if the configured
    embedder is not installed.
    """
    vault = open_vault(settings, entropy)
    embedder = open_embedder(settings.embedder)
    backend = Backend(
        settings=settings,
        engine=engine,
        clock=clock,
        entropy=entropy,
        session=session,
        sleep=sleep,
        vault=vault,
        provider_calls=Semaphore(max(1, threads // 2)),
        sinks=(record_activities, notify, send_webhooks),
        on_documents_deleted=(delete_judgments_of_documents, delete_of_documents),
        on_organizations_deleted=(delete_judgments_of_organizations, delete_messages_of_organizations),
        on_users_removed=(delete_of_users,),
        embedder=embedder,
    )
    handlers = all_handlers(JudgmentSearcher(embedder, JudgmentIndexes(settings.judgments_memory_mb * 1024 * 1024)))
    app = new_app(__name__, lambda: new_id(entropy, 22))
    install_operations(app, backend, handlers)
    _install_further_routes(app, backend)
    if settings.trusted_proxies:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=settings.trusted_proxies)  # type: ignore[method-assign]  # Flask's own way
    return app


def _install_further_routes(app: Flask, backend: Backend) -> None:
    """Adds the OpenAPI document, the public keys of tokens and the health check."""

    @app.get("/openapi.json")
    def openapi() -> Response:
        return json_response(dict(_openapi(backend.settings.public_url, backend.settings.header_prefixes[0])))

    @app.get("/.well-known/jwks/<api_key_id>.json")
    def jwks(api_key_id: str) -> Response:
        return json_response(key_set(backend, api_key_id), headers={"Cache-Control": _KEYS_CACHED})

    @app.get("/healthz")
    def healthz() -> Response:
        return json_response({"status": "ok"})
