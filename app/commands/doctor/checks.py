"""Runs all checks: settings, database, index, sources, runs, backend, sign-in, notifications."""

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from random import SystemRandom
from types import MappingProxyType

from requests.adapters import BaseAdapter
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.access.revisions import instance_stamp
from app.commands.bootstrap.databases import existing_store, known_sources
from app.commands.bootstrap.outgoing import configured_sources, notification_channels
from app.commands.bootstrap.requirements import NAME_A_SOURCE, NO_SOURCES
from app.commands.doctor.backend import check_backend
from app.commands.doctor.channels import check_channels
from app.commands.doctor.database import check_permissions, check_store
from app.commands.doctor.files import check_files
from app.commands.doctor.finding import Findings, problem
from app.commands.doctor.issuer import check_issuer
from app.commands.doctor.settings import check_settings
from app.commands.doctor.sources import check_sources
from app.foundation.clock import Clock
from app.foundation.configuration.loading import Configuration
from app.foundation.database.engine import reading
from app.foundation.database.url import DatabaseUrlError
from app.settings import Settings


def run_checks(
    configuration: Configuration[Settings],
    *,
    clock: Clock,
    notify: bool = False,
    transport: BaseAdapter | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Findings:
    """Yields the finding of each check as soon as it is known. Checks whose requirements are missing are skipped.

    Changes nothing, except that ``notify`` sends a test message through each channel. ``transport`` replaces the
    network to the backend. ``environment`` may contain proxies and certificates that Usher ignores.
    """
    settings = configuration.settings
    yield from check_settings(configuration, environment)
    yield from check_store(settings, clock)
    yield from check_permissions(settings.self_hosted_backend.database_url, "self-hosted backend")
    yield from check_files(settings)
    with ExitStack() as stack:
        engine: Engine | None = None
        with suppress(DatabaseUrlError):
            engine = stack.enter_context(existing_store(settings))
        if settings.directory.sources:
            sources = configured_sources(settings, spool=False)
            yield from check_sources(sources, known_sources(engine), settings.directory.guard, clock)
        else:
            yield problem("directory", f"{NO_SOURCES}: nobody would have access", NAME_A_SOURCE)
        yield from check_backend(
            settings, clock=clock, transport=transport, instance=lambda: _instance(engine), environment=environment
        )
    yield from check_issuer(settings, clock=clock)
    if notify:
        random = SystemRandom()
        channels = notification_channels(settings, clock=clock)
        yield from check_channels(channels, clock=clock, new_id=lambda: f"msg_{random.getrandbits(96):024x}")


def _instance(engine: Engine | None) -> str | None:
    """The instance stamp of Usher's own access model. None if it cannot be read."""
    if engine is not None:
        with suppress(SQLAlchemyError), reading(engine) as connection:
            return instance_stamp(connection)
    return None
