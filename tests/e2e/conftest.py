"""Runs the installed command in processes that end with the test."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.forking import Forked, command, without_settings


def wait_for(what: str, there: Callable[[], Any], within: float = 40.0) -> Any:
    """The first true result of ``there``."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            found = there()
        except (requests.RequestException, OSError):
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {within} seconds")


def serving(usher: "Usher", url: str) -> None:
    """Returns when the server answers. Fails with its output if it ends before."""

    def look() -> bool:
        assert usher.process.poll() is None, usher.stderr()
        return requests.get(f"{url}/healthz", timeout=5).ok

    wait_for(f"{url} to answer", look)


class Usher:
    """A running ``usher`` with its output in files: the installed command, or a fork (``tests/forking.py``)."""

    process: subprocess.Popen[bytes] | Forked

    def __init__(self, folder: Path, *arguments: str, forked: bool = False, version: Path | None = None) -> None:
        """``version``: the folder of another version's ``app``."""
        self.out, self.err = folder / f"{arguments[0]}.out", folder / f"{arguments[0]}.err"
        if forked:
            self.process = Forked(command, *arguments, folder=folder, out=self.out, err=self.err)
            return
        environment = without_settings() | ({"PYTHONPATH": str(version)} if version else {})
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "app", *arguments],
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=err,
            )

    def end(self, signal_number: int = signal.SIGTERM, within: float = 40.0) -> int:
        """Sends a signal, and returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        return self.process.wait(within)

    def stdout(self) -> str:
        return self.out.read_text("utf-8", "replace")

    def stderr(self) -> str:
        return self.err.read_text("utf-8", "replace")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Usher]]:
    """Starts ``usher`` in the test's folder; ``forked`` if its start is not the subject of the test."""
    started: list[Usher] = []

    def _start(*arguments: str, forked: bool = False) -> Usher:
        started.append(Usher(tmp_path, *arguments, forked=forked))
        return started[-1]

    yield _start
    for usher in started:
        if usher.process.poll() is None:
            usher.process.terminate()
            try:
                usher.process.wait(20)
            except subprocess.TimeoutExpired:
                usher.process.kill()
                usher.process.wait()


def children_of(pid: int) -> list[int]:
    """The child processes, and their children."""
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def alive(pids: list[int]) -> list[int]:
    """The processes that still run."""
    import psutil

    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
