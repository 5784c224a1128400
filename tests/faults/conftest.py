"""A world with files in memory, one for all tests of a process."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.faults.world import FaultyWorld
from tests.memory import memory_folder
from tests.soak.faults import quiet


@pytest.fixture(scope="module")
def any_world() -> Iterator[FaultyWorld]:
    folder = Path(tempfile.mkdtemp(prefix="usher-faults-", dir=memory_folder()))
    quiet()
    world = FaultyWorld(folder)
    yield world
    world.close()
    structlog.reset_defaults()
    shutil.rmtree(folder)
