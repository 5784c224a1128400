"""Runs in a real database, with a clock that is set by hand."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import Engine

from app.database.engine import open_engine
from app.runs.lifecycle import Runs
from app.store.schema import METADATA
from tests.tables import make_tables


@dataclass
class Time:
    """A clock that goes when it is told to."""

    now: datetime = datetime(2026, 11, 20, 12, 0, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def go_on(self, **how_long: float) -> None:
        self.now += timedelta(**how_long)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def engine(database_url: str, tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


@pytest.fixture
def runs(engine: Engine, time: Time) -> Runs:
    return Runs(engine, time, Random(3))
