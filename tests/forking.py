"""Forks processes from one that has already imported Usher.

Importing Usher takes two CPU seconds. Tests of processes save them: each process of the suite has a fork server that
has imported Usher. A forked process has its own arguments, environment, folder and output, and accepts signals like
the command. ``e2e`` tests the start of the installed command.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Lock

from gunicorn.config import Chdir  # type: ignore[import-untyped] # it ships no types

LOADED = (
    "app.service.admin.openapi",
    "app.backend.app",
    "app.backend.serve",
    "app.commands.bootstrap.requirements",
    "app.commands.backend",
    "app.commands.check",
    "app.commands.database",
    "app.commands.directory",
    "app.commands.doctor.command",
    "app.commands.runs",
    "app.commands.serve",
    "app.commands.worker",
    "app.commands.settings",
    "app.commands.sync",
    "app.service.console.blueprint",
    "app.commands.doctor.checks",
    "app.http.gunicorn",
    "app.monitoring.notify.watch",
    "app.service.provider.blueprint",
    "app.sync.runs.engine",
    "app.sync.worker",
    "gunicorn.app.base",
    "psycopg",
    "tests.forking",
)
"""Most of Usher, except for importers of ``prometheus_client``, which reads the environment on import."""


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LOADED))
    return context


def without_settings() -> dict[str, str]:
    """The environment without Usher's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("USHER_")}


class Forked:
    """Runs a function in a forked process. Similar to ``subprocess.Popen``."""

    def __init__(
        self,
        run: Callable[..., object],
        *given: object,
        folder: Path,
        out: Path,
        err: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        for file in (out, err):
            file.write_bytes(b"")
        kept = without_settings() if environment is None else dict(environment)
        self._process = _context().Process(target=_begin, args=(run, given, folder, (out, err), kept), daemon=True)
        self._process.start()
        self._lock = Lock()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        with self._lock:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code."""
        with self._lock:
            self._process.join(timeout)
            code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def command(*arguments: str) -> None:
    """Runs the command ``usher``, for ``Forked``."""
    from app.cli import main

    sys.argv = ["usher", *arguments]
    main()


def _begin(
    run: Callable[..., object],
    given: tuple[object, ...],
    folder: Path,
    output_files: tuple[Path, Path],
    environment: Mapping[str, str],
) -> None:
    os.chdir(folder)
    # Noted when it was loaded: servers would go back to the folder of the test that was the first to start one.
    Chdir.default = str(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(output_files, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    # As the interpreter makes them for a process that writes to files.
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    try:
        run(*given)
    finally:
        # What the interpreter does at the end of a process, and ``multiprocessing`` leaves out: Usher's servers, which
        # fork themselves further, end what they send there.
        atexit._run_exitfuncs()
