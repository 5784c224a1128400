"""Records when the index of a node last had the database's current revision.

The process that maintains the index writes the confirmation into a file; the other processes of the node read it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from app.foundation.clock import Clock
from app.foundation.files import replace_file

WRITE_INTERVAL = 0.5
"""Seconds between two writes of the file."""


class Moment(NamedTuple):
    """A time by two clocks."""

    uptime: float
    """Seconds since the machine started. A change of the clock does not affect it."""
    at: float
    """Epoch seconds."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A moment at which the index had the database's current revision."""

    file: str
    """The name of the file of the index."""
    boot_id: str
    uptime: float
    at: float
    """As in ``Moment``."""


class Confirmations:
    """The last confirmation, in one process."""

    def __init__(self, path: Path, *, clock: Clock, uptime: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._uptime = uptime
        self._boot_id = boot_id()
        self._last: Confirmation | None = None
        self._written_at = -WRITE_INTERVAL

    def read(self, file: str) -> None:
        """Reads the confirmation of the file of this name that another process wrote."""
        # A damaged file is no confirmation. The maintainer writes it again.
        with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            stored = orjson.loads(self._path.read_bytes())
            if stored["file"] == file:
                self._last = Confirmation(file, str(stored["boot_id"]), float(stored["uptime"]), float(stored["at"]))

    def now(self) -> Moment:
        """The current moment."""
        return Moment(self._uptime(), self._clock().timestamp())

    def confirm(self, file: str, moment: Moment, *, write: bool) -> None:
        """Records that the file had the current revision at a moment. ``write``: also for the other processes."""
        uptime, before = self._uptime(), self._last
        self._last = Confirmation(file, self._boot_id, *moment)
        if write and (uptime - self._written_at >= WRITE_INTERVAL or before is None or before.file != file):
            replace_file(self._path, orjson.dumps(self._last))
            self._written_at = uptime

    def staleness(self, file: str) -> float | None:
        """Seconds since the file had the current revision. None: no confirmation of it is known."""
        last = self._last
        if last is None or last.file != file:
            return None
        has_same_boot = last.boot_id == self._boot_id
        age = self._uptime() - last.uptime if has_same_boot else self._clock().timestamp() - last.at
        return age if age >= 0 else None


def boot_id() -> str:
    """Identifies the start of this machine. Empty if that is unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
