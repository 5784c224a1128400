"""All checks in their order, from the inside out: settings, database, directory, runs, backend, sign-in."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random, SystemRandom
from types import MappingProxyType

from requests.adapters import BaseAdapter
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.access.contents import SourceState, instance_stamp
from app.commands.bootstrap.application import look_for_concerns
from app.commands.bootstrap.databases import STORE_MIGRATIONS, store_as_it_is
from app.commands.bootstrap.outside import configured_sources, notification_channels
from app.commands.bootstrap.requirements import NO_SOURCES
from app.commands.doctor.backend import look_at_backend
from app.commands.doctor.channels import try_channels
from app.commands.doctor.database import (
    kept_records,
    look_at_directory,
    look_at_ledger,
    look_at_permissions,
    look_at_runs,
    look_at_schema,
    open_database,
    unusable,
)
from app.commands.doctor.finding import Findings, State, problem
from app.commands.doctor.issuer import look_at_issuer
from app.commands.doctor.settings_check import look_at_settings
from app.commands.doctor.sources import look_at_sources
from app.foundation.clock import Clock
from app.foundation.configuration.loading import Configuration
from app.foundation.database.engine import DatabaseUrlError, reading
from app.settings import Settings


def run_checks(
    found: Configuration[Settings],
    *,
    clock: Clock,
    notify: bool = False,
    random: Random | None = None,
    transport: BaseAdapter | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Findings:
    """Everything, one after the other, each as soon as it is known. Changes nothing; where one thing is missing, what
    builds on it is left out. ``notify``: send a test message along each channel. ``transport`` replaces the network to
    the backend. ``environment`` is looked at for proxies."""
    settings = found.settings
    yield from look_at_settings(found, environment)
    engine, finding = open_database(settings.database_url)
    yield finding
    yield from look_at_permissions(settings.database_url, "database")
    kept: dict[str, SourceState] = {}
    if engine is not None:
        try:
            schema = look_at_schema(engine, STORE_MIGRATIONS)
            yield schema
            if schema.state is not State.PROBLEM:
                kept = _kept(engine)
                yield from _look_inside(engine, settings, clock)
        except SQLAlchemyError as error:
            yield unusable(error)
        finally:
            engine.dispose()
    yield from look_at_permissions(settings.self_hosted_backend.database_url, "self-hosted backend")
    if settings.directory.sources:
        yield from look_at_sources(configured_sources(settings, spool=False), kept, settings.directory.guard, clock)
    else:
        wrong, _, advice = NO_SOURCES.partition(": ")
        yield problem("directory", f"{wrong}: nobody would be let in", advice)
    yield from look_at_backend(
        settings, clock=clock, transport=transport, instance=lambda: _instance(settings), environment=environment
    )
    yield from look_at_issuer(settings, clock=clock)
    if notify:
        numbers = random or SystemRandom()
        channels = notification_channels(settings, clock=clock)
        yield from try_channels(channels, clock=clock, new_id=lambda: f"msg_{numbers.getrandbits(96):024x}")


def _instance(settings: Settings) -> str | None:
    with suppress(SQLAlchemyError, DatabaseUrlError), store_as_it_is(settings) as engine:
        if engine is not None:
            with reading(engine) as connection:
                return instance_stamp(connection)
    return None


def _kept(engine: Engine) -> dict[str, SourceState]:
    with reading(engine) as connection:
        return kept_records(connection)


def _look_inside(engine: Engine, settings: Settings, clock: Clock) -> Findings:
    now = clock()
    with reading(engine) as connection:
        found = look_for_concerns(settings)(connection, now)
        ledger = list(look_at_ledger(connection, settings))
        directory = list(look_at_directory(connection, now, settings.directory.max_age))
        runs = list(look_at_runs(connection, found, now))
    yield from ledger
    yield from directory
    yield from runs
