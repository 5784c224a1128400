"""Records crashes of processes: a damaged file of the index may crash every process that reads it, again and again."""

import faulthandler
import os
from contextlib import suppress
from pathlib import Path

import structlog

from app.foundation.files import make_folder

_IN_INDEX = b"/access/index/"
"""In a stack that contains a function of this package: each frame is logged with the path of its module."""

_log = structlog.stdlib.get_logger(__name__)


def record_crashes(folder: Path) -> None:
    """Lets a crash of this process append its stack to a file in the folder."""
    # Without a folder, there is no file that could crash it.
    with suppress(OSError):
        make_folder(folder)
        faulthandler.enable((folder / "crashes").open("ab"), all_threads=False)


def has_crashed(folder: Path) -> bool:
    """Whether a process has crashed in the index since the last call. Logs the stacks of all crashes."""
    path = folder / "crashes"
    with suppress(FileNotFoundError):
        if path.stat().st_size:
            stacks = path.read_bytes()
            os.truncate(path, 0)
            _log.error("process_crashed", stack=stacks.decode("utf-8", "replace"))
            return _IN_INDEX in stacks
    return False
