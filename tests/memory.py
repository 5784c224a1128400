"""Puts the folders of tests into memory: no test needs a disk."""

import os
import shutil
from pathlib import Path

_SHARED = Path("/dev/shm")

_ROOM_FOR_ALL = 2 << 30
"""Space for the folders of parallel tests. A container may have less."""


def memory_folder() -> Path | None:
    """The folder in memory. None if there is none."""
    return _SHARED if _SHARED.is_dir() else None


def keep_temporary_folders_in_memory() -> None:
    """Moves ``tmp_path`` to memory, if there is space and no other folder was chosen."""
    folder = memory_folder()
    if folder is not None and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= _ROOM_FOR_ALL:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))
