"""Fixtures of the tests of directory sources."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.directory.source import End, Gone, Step
from tests.directory.databases import Database, opened
from tests.worlds.files import file_source

collect_ignore = ["plugin_example"]
"""A package of its own, whose tests run where it is installed."""

ReadFile = Callable[[str, bytes | str], list[Step]]


@pytest.fixture
def read_file(tmp_path: Path) -> ReadFile:
    """Writes a file and reads it as a source; places begin with ``file:``."""

    def read(name: str, content: bytes | str) -> list[Step]:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        steps = list(file_source(path).read())
        assert [isinstance(step, End) for step in steps] == [False] * (len(steps) - 1) + [True]
        return [
            step if isinstance(step, End | Gone) else step._replace(place=step.place.replace(str(path), "file"))
            for step in steps
        ]

    return read


@pytest.fixture(scope="session")
def standing_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Database]]:
    """A database of a sort; on a server it is one for all tests of the process: to make it takes longer than they."""
    made: dict[str, Database] = {}
    with ExitStack() as stack:

        def one(sort: str) -> Database:
            if sort not in made or sort == "sqlite":
                made[sort] = stack.enter_context(opened(sort, tmp_path_factory.mktemp("app")))
            return made[sort]

        yield one
