"""Files and folders that nobody but their owner reads: databases, tokens, keys."""

import os
import stat
from pathlib import Path

_NOBODY_ELSE = 0o600


def make_folder(path: Path) -> None:
    """Makes the folder, and those above it, where they are missing; what stands already stays as it is."""
    missing = [path, *path.parents]
    missing = missing[: next((index for index, one in enumerate(missing) if one.exists()), len(missing))]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    # Says what is wrong with one that is no folder.
    path.mkdir(exist_ok=True)


def make_file(path: Path) -> None:
    """An empty file, where there is none."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _NOBODY_ELSE))
    except FileExistsError:
        return


def write_file(path: Path, text: str) -> None:
    """Puts the text into the file, in place of what it held, and takes it from everybody else. A link is not followed:
    `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _NOBODY_ELSE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, _NOBODY_ELSE)
        file.write(text)


def close_to_others(path: Path) -> None:
    """Takes the file from everybody else, if it is ours."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, _NOBODY_ELSE)
    finally:
        os.close(descriptor)
