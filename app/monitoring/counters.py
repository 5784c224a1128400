"""The folder in which the processes of one machine share their metric counters.

prometheus-client reads the environment variable ``PROMETHEUS_MULTIPROC_DIR`` on import. So a process that serves
requests calls ``share_counters`` before it imports ``app.monitoring.metrics``, and this module does not import it.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.foundation.files import make_folder

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def counters_are_shared() -> bool:
    """Whether this process shares its counters with others."""
    return bool(os.environ.get(VARIABLE))


@contextmanager
def share_counters(directory: str) -> Iterator[Path]:
    """Shares the counters of this process and its children in ``directory``. Empty: in a temporary folder."""
    inherited = os.environ.get(VARIABLE)
    if inherited:
        yield Path(inherited)
        return
    if "prometheus_client" in sys.modules:
        raise RuntimeError("prometheus_client was imported before its counters could be shared")
    path = Path(directory) if directory else Path(tempfile.mkdtemp(prefix="usher-metrics-"))
    make_folder(path)
    _remove_stale_files(path)
    os.environ[VARIABLE] = str(path)
    owner = os.getpid()
    try:
        yield path
    finally:
        # Forked children run this as well.
        if os.getpid() == owner:
            os.environ.pop(VARIABLE, None)
            if not directory:
                shutil.rmtree(path, ignore_errors=True)


def _remove_stale_files(path: Path) -> None:
    """Removes the counters of dead processes. A worker may share the folder already, so live ones are kept."""
    for file in path.glob("*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not _is_alive(int(pid)):
            file.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        with suppress(PermissionError, OverflowError):
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
