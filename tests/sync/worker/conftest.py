"""Runs in a real database, with a simulated clock."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import Engine

from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine
from app.sync.runs.lifecycle import Runs
from tests.tables import make_tables
from tests.worlds.clock import SimulatedTime


@pytest.fixture
def time() -> SimulatedTime:
    return SimulatedTime()


@pytest.fixture
def engine(database_url: str, tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


@pytest.fixture
def runs(engine: Engine, time: SimulatedTime) -> Runs:
    return Runs(engine, time, Random(3))
