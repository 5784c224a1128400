"""Starts, watches and ends the processes of one parent, and handles the signals and the memory of long-lived ones.

If one of them ends, or on SIGTERM, the parent ends all: first with SIGTERM, then with SIGKILL. It restarts processes
that it keeps alive instead, after growing pauses.
"""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import IO

import structlog

_log = structlog.stdlib.get_logger(__name__)

LAST_LINES = 20
_LAST_BYTES = 64 * 1024

FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0
"""Seconds before a restart. The pause doubles with each restart."""
_STABLE_AFTER = 300.0
"""Seconds after which a restarted process is considered stable, which resets the pause."""
_STARTUP = 60.0
"""Seconds within which an error exit of the first start counts as wrong settings, and is not retried."""


def freeze_garbage_collector() -> None:
    """Excludes the objects that exist now from garbage collection, for long-lived processes.

    A worker that reads a directory spent up to a seventh of its time on collecting them.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class Child:
    """One process. ``log`` is the file with its output. None: it shares the parent's output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path | None
    log_start: int = 0
    """The offset in the file at which its output begins. An earlier process wrote the output before it."""

    def last_lines(self) -> list[str]:
        if self.log is None or not self.log.is_file():
            return []
        with self.log.open("rb") as output:
            output.seek(max(self.log_start, self.log.stat().st_size - _LAST_BYTES))
            return output.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]


class ChildEndedError(Exception):
    """A child ended on its own."""

    def __init__(self, child: Child) -> None:
        super().__init__(f"{child.name} ended {_exit_text(child.process.returncode)}")
        self.child = child


def _exit_text(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"


@dataclass(slots=True)
class _Restarted:
    """A child that is restarted when it ends."""

    arguments: Sequence[str]
    child: Child
    started_at: float
    pause: float = FIRST_PAUSE
    restart_at: float | None = None
    """None: it runs."""
    starts: int = 1


class Children:
    """The processes that one parent has started. ``patience``: seconds to wait before SIGKILL."""

    def __init__(self, *, patience: float = 30.0) -> None:
        self._children: list[Child] = []
        self._restarted: list[_Restarted] = []
        self._patience = patience

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Child:
        """Runs ``usher`` with the arguments as a process. Without ``environment`` it inherits this process's."""
        output: IO[bytes] | None = log.open("ab") if log is not None else None
        log_start = output.tell() if output is not None else 0
        try:
            # -P: do not import an unrelated app/ from the working directory.
            process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-P", "-m", "app", *arguments],
                env=None if environment is None else dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C reaches only the parent, which then ends its children in order.
                start_new_session=True,
            )
        finally:
            if output is not None:
                output.close()
        child = Child(name, process, log, log_start)
        self._children.append(child)
        return child

    def keep(self, name: str, arguments: Sequence[str]) -> None:
        """Starts ``usher``, and restarts it after growing pauses, unless its first start fails early."""
        self._restarted.append(_Restarted(arguments, self.start(name, arguments), time.monotonic()))

    def check(self) -> None:
        """Restarts the children that are due. Raises ``ChildEndedError`` if one ended that is not restarted."""
        now = time.monotonic()
        restarted = [entry.child for entry in self._restarted]
        for child in self._children:
            if child not in restarted and child.process.poll() is not None:
                raise ChildEndedError(child)
        for entry in self._restarted:
            self._restart(entry, now)

    def _restart(self, entry: _Restarted, now: float) -> None:
        child = entry.child
        if entry.restart_at is None:
            code = child.process.poll()
            if code is None:
                return
            if entry.starts == 1 and code > 0 and now - entry.started_at < _STARTUP:
                raise ChildEndedError(child)
            if now - entry.started_at >= _STABLE_AFTER:
                entry.pause = FIRST_PAUSE
            entry.restart_at = now + entry.pause
            _log.error("process_ended", process=child.name, how=_exit_text(code), again_in=entry.pause)
            entry.pause = min(entry.pause * 2, MAX_PAUSE)
        elif now >= entry.restart_at:
            self._children.remove(child)
            entry.child = self.start(child.name, entry.arguments)
            entry.started_at, entry.restart_at = now, None
            entry.starts += 1
            _log.info("process_started_again", process=child.name, starts=entry.starts)

    def forward_signal(self, number: int, name: str) -> None:
        """Sends a signal to the child of that name."""
        for child in self._children:
            if child.name == name and child.process.poll() is None:
                child.process.send_signal(number)

    def watch(self, stop: Event) -> None:
        """Returns when ``stop`` is set. Raises ``ChildEndedError`` if a child ends before."""
        while not stop.wait(0.2):
            self.check()

    def forget(self, child: Child) -> None:
        """Stops watching a child that has ended."""
        self._children.remove(child)

    def end(self, *, quickly: bool = False) -> None:
        """Ends all children, the last one started first. ``quickly``: without waiting for open connections."""
        for child in reversed(self._children):
            if child.process.poll() is None:
                # Gunicorn completes open requests on SIGTERM, and drops them on SIGINT.
                child.process.send_signal(signal.SIGINT if quickly else signal.SIGTERM)
        deadline = time.monotonic() + self._patience
        for child in reversed(self._children):
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                # The group includes the child's own children, such as gunicorn's workers.
                os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()
        self._children.clear()
        self._restarted.clear()


class StopFlag(Event):
    """An event that is set when the process must end."""

    number: int | None = None
    cancels: bool = False
    """Whether an operator cancelled the command with Ctrl-C."""


@contextmanager
def stop_signals(*, interrupt_cancels: bool = False) -> Iterator[StopFlag]:
    """An event that SIGINT and SIGTERM set. A second signal has its previous effect.

    ``interrupt_cancels``: SIGINT cancels the rest of the work, which is otherwise done later.
    """
    stop = StopFlag()

    def _stop(number: int, _frame: FrameType | None) -> None:
        stop.number = number
        stop.cancels = interrupt_cancels and number == signal.SIGINT
        stop.set()
        signal.signal(number, previous[number])

    previous = {int(number): signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_with_parent(parent: int) -> None:
    """Sends this process SIGTERM when its parent dies."""

    def _watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=_watch, name="end-with-parent", daemon=True).start()
