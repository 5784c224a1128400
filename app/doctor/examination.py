"""What is looked at, and in which order? From the inside out: settings, database, directory, runs, backend."""

from collections.abc import Callable
from datetime import datetime
from random import Random, SystemRandom

from requests.adapters import BaseAdapter
from sqlalchemy import Engine

from app.bootstrap import STORE_MIGRATIONS, look_for_concerns
from app.configuration.loading import Configuration
from app.database.engine import reading
from app.directory.configured import sources_from_settings
from app.doctor.backend import look_at_backend
from app.doctor.channels import try_channels
from app.doctor.database import kept_records, look_at_directory, look_at_runs, look_at_schema, open_database
from app.doctor.finding import Findings, State
from app.doctor.given import look_at_settings
from app.doctor.sources import look_at_sources
from app.notify.configured import channels_from_settings
from app.settings import Settings
from app.store.access_model import SourceState

Clock = Callable[[], datetime]


def examine(
    found: Configuration[Settings],
    *,
    clock: Clock,
    notify: bool = False,
    random: Random | None = None,
    transport: BaseAdapter | None = None,
) -> Findings:
    """Everything, one after the other, each as soon as it is known. Changes nothing; where one thing is missing, what
    builds on it is left out. ``notify``: send a test message along each channel. ``transport`` replaces the network to
    the backend."""
    settings = found.settings
    yield from look_at_settings(found)
    engine, finding = open_database(settings.database_url)
    yield finding
    kept: dict[str, SourceState] = {}
    if engine is not None:
        try:
            schema = look_at_schema(engine, STORE_MIGRATIONS)
            yield schema
            if schema.state is State.OK:
                kept = _kept(engine)
                yield from _look_inside(engine, settings, clock)
        finally:
            engine.dispose()
    yield from look_at_sources(sources_from_settings(settings.directory), kept)
    yield from look_at_backend(settings, clock=clock, transport=transport)
    if notify:
        numbers = random or SystemRandom()
        channels = channels_from_settings(settings.notifications, clock=clock)
        yield from try_channels(channels, clock=clock, new_id=lambda: f"msg_{numbers.getrandbits(96):024x}")


def _kept(engine: Engine) -> dict[str, SourceState]:
    with reading(engine) as connection:
        return kept_records(connection)


def _look_inside(engine: Engine, settings: Settings, clock: Clock) -> Findings:
    now = clock()
    with reading(engine) as connection:
        found = look_for_concerns(settings)(connection, now)
        directory = list(look_at_directory(connection, now, settings.directory.max_age))
        runs = list(look_at_runs(connection, found))
    yield from directory
    yield from runs
