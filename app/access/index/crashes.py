"""Records crashes of processes in the index: a damaged file may crash every process that reads it, again and again."""

import faulthandler
import os
from contextlib import suppress
from pathlib import Path

from app.foundation.files import make_folder

_PACKAGE = str(Path(__file__).parent).encode()


def record_crashes(folder: Path) -> None:
    """Lets a crash of this process append its stack to a file in the folder."""
    # Without a folder, there is no file that could crash it.
    with suppress(OSError):
        make_folder(folder)
        faulthandler.enable((folder / "crashes").open("ab"), all_threads=False)


def has_crashed(folder: Path) -> bool:
    """Whether a process has crashed in this package since the last call."""
    path = folder / "crashes"
    with suppress(FileNotFoundError):
        if path.stat().st_size:
            stacks = path.read_bytes()
            os.truncate(path, 0)
            return _PACKAGE in stacks
    return False
