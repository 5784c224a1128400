"""Bounded reads of files that settings name, and files and folders that only their owner can read."""

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 1024 * 1024

_OWNER_ONLY = 0o600


def read_small_file(path: Path) -> bytes:
    """The content of a regular file of at most 1 MB, or of ``/dev/null``.

    Raises ``OSError`` with the reason in ``strerror``. Pipes and devices are refused: a read could block or never end.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        if not stat.S_ISREG(status.st_mode) and status.st_rdev != os.stat(os.devnull).st_rdev:  # noqa: PTH116 - no path
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, "is larger than 1 MB", str(path))
    return content


def make_folder(path: Path) -> None:
    """Creates the folder and its missing parents, readable for their owner only. Existing folders stay unchanged."""
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    # Raises FileExistsError if the path is not a folder.
    path.mkdir(exist_ok=True)


def make_file(path: Path) -> None:
    """Creates an empty file unless the file exists."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY))
    except FileExistsError:
        return


def write_file(path: Path, text: str) -> None:
    """Replaces the file's content and restricts the file to its owner. Raises ``OSError`` if the path is a link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, _OWNER_ONLY)
        file.write(text)


def replace_file(path: Path, content: bytes) -> None:
    """Replaces a small file at once: other processes read the old or the new content."""
    written = path.with_suffix(".new")
    written.write_bytes(content)
    written.replace(path)


def restrict_to_owner(path: Path) -> None:
    """Removes the permissions of other users from the file if this user owns it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, _OWNER_ONLY)
    finally:
        os.close(descriptor)
