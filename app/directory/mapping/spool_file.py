"""The files of spools: where one is kept between reads, who may read it, and what takes its place.

A spool that is made anew takes the place of the one before as a whole, or not at all. Two processes never change one at
a time.
"""

import os
import re
import sqlite3
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from app.directory.mapping.spool import Spool, SpoolError

_UNFINISHED = ("usher-", ".spool.part")
"""How the names of spools begin and end that are being made."""
_LEFT_BEHIND = 7 * 24 * 3600
"""Seconds after which one of those is taken for what a killed process left behind; no read may take longer."""

_PATIENCE = 5.0
"""Seconds to wait for another process that uses the file."""


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """Where the spool of a source is kept between reads; None: nowhere, so that it can only be read as a whole."""

    path: Path | None = None

    @classmethod
    def of(cls, folder: Path | None, source: str) -> "SpoolFile":
        """The file of a source in a folder; its name is fit for any file system."""
        if folder is None:
            return cls()
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", source)[:40].strip("-")
        return cls(folder / f"{readable}-{sha256(source.encode(errors='replace')).hexdigest()[:12]}.spool")

    def fresh(self) -> Spool:
        """An empty spool, which takes the place of the one that is kept when it is told to. Raises ``SpoolError``."""
        folder = None if self.path is None else self.path.parent
        try:
            if folder is not None:
                _make_folder(folder)
            # Only the owner may read it: it holds people's names and addresses.
            handle, made = tempfile.mkstemp(prefix=_UNFINISHED[0], suffix=_UNFINISHED[1], dir=folder)
            os.close(handle)
            if folder is not None:
                _remove_left_behind(folder, Path(made).stat().st_mtime - _LEFT_BEHIND)
        except OSError as error:
            raise SpoolError(f"{folder or tempfile.gettempdir()}: {error.strerror or error}") from error
        return Spool(Path(made), fresh=True, replace=None if self.path is None else self.replace)

    def kept(self, cursor: str, digest: str) -> Spool | None:
        """The spool that belongs to a cursor ("": to whichever), for changes; None: there is none.

        Nobody else uses it until it is closed. Raises ``SpoolError``.
        """
        if self.path is None or not _is_our_own(self.path):
            return None
        try:
            _check_folder(self.path.parent)
        except OSError as error:
            raise SpoolError(f"{self.path.parent}: {error.strerror or error}") from error
        spool = Spool(self.path, fresh=False, lock=self._locked())
        # Whatever is no spool is as good as none: everything is read anew.
        with suppress(sqlite3.DatabaseError):
            if spool.begin_changes(cursor, digest):
                return spool
        spool.close()
        return None

    def replace(self, made: Path) -> None:
        """Keeps a spool that was made anew instead of the one before. Raises ``SpoolError``, ``OSError``."""
        if self.path is None:
            return
        lock = self._locked()
        try:
            # What a process that was killed left behind is about the file before, and would be played into this one.
            self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
            made.replace(self.path)
        finally:
            lock.release()

    def _locked(self) -> FileLock:
        # A read may be given up by another thread than the one that began it.
        lock = FileLock(f"{self.path}.lock", mode=0o600, thread_local=False)
        try:
            lock.acquire(timeout=_PATIENCE)
        except Timeout:
            raise SpoolError("another process reads this source's changes right now") from None
        except OSError as error:
            raise SpoolError(f"{self.path}.lock: {error.strerror or error}") from error
        return lock


def _make_folder(folder: Path) -> None:
    """Makes a folder for the owner alone. Raises ``OSError``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(folder)


def _check_folder(folder: Path) -> None:
    """Raises ``PermissionError`` if the folder is a link, if somebody else owns it, or if others may write to it."""
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise PermissionError(1, "is a link; name a folder with directory.spool")
    if not hasattr(os, "getuid"):
        return
    if found.st_uid not in (os.getuid(), 0):
        raise PermissionError(1, "belongs to somebody else; name another folder with directory.spool")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise PermissionError(1, f"may be written to by others: chmod 700 {folder}")


def _remove_left_behind(folder: Path, before: float) -> None:
    for path in folder.glob("*".join(_UNFINISHED)):
        with suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()


def _is_our_own(path: Path) -> bool:
    """Whether it is a file that nobody else can have put there."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return (not hasattr(os, "getuid") or found.st_uid == os.getuid()) and not path.is_symlink() and path.is_file()
