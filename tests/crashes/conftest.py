"""A backend on loopback, and workers as real processes."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.crashes.index_node import IndexNode, index_node
from tests.faults.live import LiveWorld, live_world
from tests.memory import memory_folder
from tests.soak.faults import quiet


@pytest.fixture
def memory() -> Iterator[Path]:
    """An empty folder that needs no disk."""
    folder = Path(tempfile.mkdtemp(prefix="usher-crashes-", dir=memory_folder()))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def world(memory: Path) -> Iterator[LiveWorld]:
    quiet()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    yield from live_world(memory)
    structlog.reset_defaults()


@pytest.fixture
def node(database_url: str, memory: Path) -> Iterator[IndexNode]:
    with index_node(database_url, memory) as node:
        yield node
