"""The file of a spool: its path, permissions, lock and replacement.

A spool is a SQLite file with the members of groups between two reads. A new spool replaces the one before atomically.
A lock keeps two processes from changing a spool at the same time.
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

_PREFIX, _SUFFIX = "usher-", ".spool.part"
"""Of the names of unfinished spools."""

_ABANDONED_AFTER = 7 * 24 * 3600
"""Seconds after which an unfinished spool is deleted, because its process was killed. No read may take longer."""

_LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that uses the file."""


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """The path of a source's spool between reads. None: it is not kept, so that every read is a full one."""

    path: Path | None = None

    @classmethod
    def of(cls, folder: Path | None, source: str) -> "SpoolFile":
        """The file of a source in a folder, with a name for any file system."""
        if folder is None:
            return cls()
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", source)[:40].strip("-")
        return cls(folder / f"{readable}-{sha256(source.encode(errors='replace')).hexdigest()[:12]}.spool")

    def create(self) -> Spool:
        """A new, empty spool. Raises ``SpoolError``."""
        folder = None if self.path is None else self.path.parent
        try:
            if folder is not None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_folder(folder)
            # ``mkstemp`` makes it readable for its owner only: it contains names and addresses.
            handle, created = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=folder)
            os.close(handle)
            if folder is not None:
                _remove_abandoned(folder, Path(created).stat().st_mtime - _ABANDONED_AFTER)
        except OSError as error:
            raise SpoolError(f"{folder or tempfile.gettempdir()}: {error.strerror or error}") from error
        return Spool(Path(created), is_new=True, replace=None if self.path is None else self._replace)

    def open_kept(self, cursor: str, digest: str) -> Spool | None:
        """The spool of a cursor ("": of any) and of these rules, locked until it is closed. Raises ``SpoolError``."""
        if self.path is None or not _is_own_file(self.path):
            return None
        try:
            _check_folder(self.path.parent)
        except OSError as error:
            raise SpoolError(f"{self.path.parent}: {error.strerror or error}") from error
        spool = Spool(self.path, is_new=False, lock=self._locked())
        # A damaged spool is ignored; a full read replaces it.
        with suppress(sqlite3.DatabaseError):
            if spool.begin_changes(cursor, digest):
                return spool
        spool.close()
        return None

    def _replace(self, created: Path) -> None:
        """Moves a new spool to ``path``. Raises ``SpoolError``, ``OSError``."""
        if self.path is None:
            return
        lock = self._locked()
        try:
            # A journal that a killed process left would be applied to the new file.
            self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
            created.replace(self.path)
        finally:
            lock.release()

    def _locked(self) -> FileLock:
        # Another thread may close the spool.
        lock = FileLock(f"{self.path}.lock", mode=0o600, thread_local=False)
        try:
            lock.acquire(timeout=_LOCK_TIMEOUT)
        except Timeout:
            raise SpoolError("another process reads the changes of this source at the moment") from None
        except OSError as error:
            raise SpoolError(f"{self.path}.lock: {error.strerror or error}") from error
        return lock


def _check_folder(folder: Path) -> None:
    """Raises ``PermissionError`` if the folder is a link, if another user owns it, or if others may write to it."""
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise PermissionError(1, "is a link; name a folder with directory.spool")
    if status.st_uid not in (os.getuid(), 0):
        raise PermissionError(1, "belongs to another user; name another folder with directory.spool")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise PermissionError(1, f"is writable for others: chmod 700 {folder}")


def _remove_abandoned(folder: Path, before: float) -> None:
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()


def _is_own_file(path: Path) -> bool:
    """Whether it is a regular file of this user."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode)
