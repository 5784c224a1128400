"""Starts and stops the measured processes, each in its own folder."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from app.http.listening import wait_until_ready

USHER = [str(Path(sys.executable).with_name("usher"))]


def write_settings(folder: Path, settings: Mapping[str, object]) -> Path:
    """A configuration file in ``folder``."""
    path = folder / "usher.yaml"
    path.write_text(yaml.safe_dump(dict(settings), sort_keys=False))
    return path


@contextmanager
def running(command: Sequence[str], folder: Path, ready: str, name: str) -> Iterator[psutil.Process]:
    """Runs a server process; the block begins when it responds at ``ready``."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
    try:
        if not wait_until_ready(ready, 60, time.sleep):
            raise RuntimeError(f"{name} did not start:\n{log.read_text()[-2000:]}")
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


_WATCH = """
import os, subprocess, sys
from pathlib import Path
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
Path(sys.argv[1]).write_text(str(usage.ru_maxrss))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs a command and records its peak memory. It is a separate process, because the kernel's value for a child starts
at the memory of its parent, and the benchmark's own may be large."""


def command(arguments: Sequence[str], folder: Path, *, accept: Sequence[int] = (0,)) -> tuple[str, float, float]:
    """Run ``usher`` to its end: its output, the seconds it took and the most memory it held, in MB."""
    start = time.perf_counter()
    memory = folder / "memory"
    with (folder / "output").open("w+") as output, (folder / "errors").open("w+") as errors:
        watched = [sys.executable, "-S", "-c", _WATCH, str(memory), *USHER, *arguments]
        process = subprocess.run(watched, cwd=folder, stdout=output, stderr=errors, check=False)
        seconds = time.perf_counter() - start
        output.seek(0)
        errors.seek(0)
        if process.returncode not in accept:
            raise RuntimeError(f"usher {' '.join(arguments)} ended with {process.returncode}:\n{errors.read()[-2000:]}")
        return output.read(), seconds, int(memory.read_text()) / 1024
