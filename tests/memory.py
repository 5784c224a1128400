"""A folder for files that need no disk: no test takes the machine's power away, so none of them has to reach one."""

import os
import shutil
from pathlib import Path

_SHARED = Path("/dev/shm")

_ROOM_FOR_ALL = 2 << 30
"""What the folders of tests that run side by side may need; a container often has much less."""


def memory_folder() -> Path | None:
    """Where files need no disk; None where there is no such place."""
    return _SHARED if _SHARED.is_dir() else None


def keep_temporary_folders_in_memory() -> None:
    """The folders of tests (``tmp_path``) lie there, where there is room and nobody has chosen another place."""
    folder = memory_folder()
    if folder is not None and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= _ROOM_FOR_ALL:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))
