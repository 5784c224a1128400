"""A group of processes that start and stop together.

A parent starts the others and watches them. If one ends, or on SIGTERM, it ends all of them: first with SIGTERM, then
with SIGKILL. Processes that it keeps alive are restarted instead, after growing pauses.
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

LAST_LINES = 20
_LAST_BYTES = 64 * 1024

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a process that is kept is started again; twice as long each time."""
_STEADY_AFTER = 300.0
"""Seconds after which a restarted process is considered stable, which resets the pauses."""
_AT_THE_START = 60.0
"""Seconds within which an exit code of the very first start is taken for a mistake of the operator's."""


def settle_garbage_collector() -> None:
    """What was loaded stays for good, and is not looked through again. For processes that live long.

    A worker that reads a directory spent up to a seventh of its time on that.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class Child:
    """One process. ``log``: the file with its output; None: it shares our standard error."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path | None
    log_from: int = 0
    """Where in the file it began: before that stand the words of an earlier process."""

    def last_lines(self) -> list[str]:
        """The end of its output."""
        if self.log is None or not self.log.is_file():
            return []
        with self.log.open("rb") as said:
            said.seek(max(self.log_from, self.log.stat().st_size - _LAST_BYTES))
            return said.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]


class ChildEndedError(Exception):
    """A child ended by itself."""

    def __init__(self, child: Child) -> None:
        super().__init__(f"{child.name} ended {_how(child.process.returncode)}")
        self.child = child


def _how(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"


@dataclass(slots=True)
class _Kept:
    """A child that is started again when it ends."""

    arguments: Sequence[str]
    child: Child
    began: float
    pause: float = FIRST_PAUSE
    due: float | None = None
    """When it is started again; None: it runs."""
    starts: int = 1


class Children:
    """The processes that one parent has started."""

    def __init__(self, *, patience: float = 30.0) -> None:
        self._children: list[Child] = []
        self._kept: list[_Kept] = []
        self._patience = patience

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Child:
        """Runs ``usher`` with the arguments as a process of its own; without ``environment`` it has ours."""
        output: IO[bytes] | None = log.open("ab") if log is not None else None
        log_from = output.tell() if output is not None else 0
        try:
            # -P: an app/ in the working directory is somebody else's.
            process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-P", "-m", "app", *arguments],
                env=None if environment is None else dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # The terminal's Ctrl-C is for the parent, which then ends its children in order.
                start_new_session=True,
            )
        finally:
            if output is not None:
                output.close()
        child = Child(name, process, log, log_from)
        self._children.append(child)
        return child

    def keep(self, name: str, arguments: Sequence[str]) -> None:
        """As ``start``, and starts it again whenever it has ended, however it did: after a second, and up to a minute
        when it ends again and again. A first one that ends at once with an exit code was set up wrongly, though."""
        self._kept.append(_Kept(arguments, self.start(name, arguments), time.monotonic()))

    def check(self) -> None:
        """Raises ``ChildEndedError`` when one of them is gone that is not kept; starts those again that are."""
        now = time.monotonic()
        kept_children = [kept.child for kept in self._kept]
        for child in self._children:
            if child not in kept_children and child.process.poll() is not None:
                raise ChildEndedError(child)
        for kept in self._kept:
            self._look_after(kept, now)

    def _look_after(self, kept: _Kept, now: float) -> None:
        child = kept.child
        if kept.due is None:
            code = child.process.poll()
            if code is None:
                return
            if kept.starts == 1 and code > 0 and now - kept.began < _AT_THE_START:
                raise ChildEndedError(child)
            if now - kept.began >= _STEADY_AFTER:
                kept.pause = FIRST_PAUSE
            kept.due = now + kept.pause
            log = structlog.stdlib.get_logger(__name__)
            log.error("process_ended", process=child.name, how=_how(code), again_in=kept.pause)
            kept.pause = min(kept.pause * 2, LONGEST_PAUSE)
        elif now >= kept.due:
            self._children.remove(child)
            kept.child = self.start(child.name, kept.arguments)
            kept.began, kept.due = now, None
            kept.starts += 1
            log = structlog.stdlib.get_logger(__name__)
            log.info("process_started_again", process=child.name, starts=kept.starts)

    def pass_on(self, number: int, name: str) -> None:
        """Sends a signal to the one of that name."""
        for child in self._children:
            if child.name == name and child.process.poll() is None:
                child.process.send_signal(number)

    def watch(self, stop: Event) -> None:
        """Returns when ``stop`` is set; raises ``ChildEndedError`` when one of them ends before."""
        while not stop.wait(0.2):
            self.check()

    def end(self, *, quickly: bool = False) -> None:
        """Ends all of them, the one that started last first; ``quickly``: without waiting for open connections."""
        for child in reversed(self._children):
            if child.process.poll() is None:
                # Gunicorn stops in peace on SIGTERM, and at once on SIGINT.
                child.process.send_signal(signal.SIGINT if quickly else signal.SIGTERM)
        deadline = time.monotonic() + self._patience
        for child in reversed(self._children):
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                # Its own children, gunicorn's workers, are in the same group.
                os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()
        self._children.clear()
        self._kept.clear()


class StopFlag(Event):
    """An event that is set when the process has to end."""

    number: int | None = None
    """The signal that set it."""
    cancels: bool = False
    """Whether an operator cancelled the command with Ctrl-C."""


@contextmanager
def stop_signals(*, interrupt_cancels: bool = False) -> Iterator[StopFlag]:
    """An event that SIGINT and SIGTERM set; a second one of them ends the process as it would have without this.

    ``interrupt_cancels``: SIGINT is an operator's Ctrl-C, who does not want the rest done later either.
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


def end_with(parent: int) -> None:
    """Sends this process SIGTERM when its parent dies."""

    def _watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=_watch, name="end-with-parent", daemon=True).start()
