"""Reads small files that settings name: tokens, keys, certificates, the settings themselves."""

import os
import stat
from pathlib import Path

MAX_BYTES = 1024 * 1024


def read_small_file(path: Path) -> bytes:
    """The content of a regular file of at most 1 MB, or of ``/dev/null``.

    Raises ``OSError`` whose ``strerror`` is the reason. A pipe or a device would never answer, or never end.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(21, "Is a directory", str(path))
        if not stat.S_ISREG(found.st_mode) and found.st_rdev != os.stat(os.devnull).st_rdev:  # noqa: PTH116 - no path
            raise OSError(22, "is not a regular file", str(path))
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(27, "is larger than 1 MB", str(path))
    return content
