"""What the tests of directory sources share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.directory.file import FileSource
from app.directory.source import End, Found, Gone, Malformed, Remark

Step = Found | Gone | Malformed | Remark | End
ReadFile = Callable[[str, bytes | str], list[Step]]


@pytest.fixture
def read_file(tmp_path: Path) -> ReadFile:
    """Writes a file and reads it as a source; places begin with ``file:``."""

    def read(name: str, content: bytes | str) -> list[Step]:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        steps = list(FileSource(path).read())
        assert [isinstance(step, End) for step in steps] == [False] * (len(steps) - 1) + [True]
        return [
            step if isinstance(step, End | Gone) else step._replace(place=step.place.replace(str(path), "file"))
            for step in steps
        ]

    return read
