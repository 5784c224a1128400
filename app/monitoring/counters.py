"""The folder in which the processes of one machine share their counters.

``PROMETHEUS_MULTIPROC_DIR`` names it. prometheus-client reads that variable when it is imported, so this module must
not import it, and a process that serves calls ``share_counters`` first.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.foundation.files import make_folder

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def counters_are_shared() -> bool:
    """Whether this process puts its counters where others see them."""
    return bool(os.environ.get(VARIABLE))


def _remove_what_the_dead_left(path: Path) -> None:
    """Removes the counters of processes that are no more; a worker may be counting there already."""
    for file in path.glob("*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not _lives(int(pid)):
            file.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@contextmanager
def share_counters(directory: str) -> Iterator[Path]:
    """A fresh folder for this process and its children; without a name a temporary one, which is removed at the end.

    A process whose parent has made such a folder uses that one.
    """
    inherited = os.environ.get(VARIABLE)
    if inherited:
        yield Path(inherited)
        return
    if "prometheus_client" in sys.modules:
        raise RuntimeError("prometheus_client was imported before its counters could be shared")
    path = Path(directory) if directory else Path(tempfile.mkdtemp(prefix="usher-metrics-"))
    make_folder(path)
    _remove_what_the_dead_left(path)
    os.environ[VARIABLE] = str(path)
    owner = os.getpid()
    try:
        yield path
    finally:
        # A forked child leaves through here as well.
        if os.getpid() == owner:
            os.environ.pop(VARIABLE, None)
            if not directory:
                shutil.rmtree(path, ignore_errors=True)
