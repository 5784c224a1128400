"""A node: a database with numbered revisions, the index's folder, and processes that maintain and ask the index."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine

from app.access.index.file import IndexFile, Stamp
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine
from tests.crashes.maintainer import question
from tests.forking import Forked
from tests.tables import make_tables
from tests.worlds.numbered_revisions import Revisions, answers

LOGGED = 50_000
"""``max_logged`` of a maintainer that updates its file."""
BUILDS = 0
"""``max_logged`` of one that builds a new file for each revision."""


class Process(NamedTuple):
    """A process, and what it runs."""

    forked: Forked
    output: Path
    run: Callable[..., object]
    arguments: tuple[object, ...]

    def lines(self) -> list[str]:
        return self.output.read_text("utf-8", "replace").splitlines()


class IndexNode:
    """The node, and what its processes answered."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.engine: Engine = open_engine(database_url)
        make_tables(self.engine, METADATA)
        self.revisions = Revisions(self.engine)
        self.newest = self.revisions.read()
        self.folder = folder / "index"
        self._outputs = folder
        self._processes: list[Process] = []
        self._ended: list[Process] = []

    def start(self, run: Callable[..., object], *arguments: object, **options: object) -> Forked:
        """Starts a process of ``maintainer.py``. It ends with the test."""
        output = self._outputs / f"output{len(self._processes) + len(self._ended)}"
        url = self.engine.url.render_as_string(hide_password=False)
        forked = Forked(
            partial(run, **options), url, str(self.folder), *arguments, folder=self._outputs, out=output, err=output
        )
        self._processes.append(Process(forked, output, run, arguments))
        return forked

    def restart_crashed(self) -> bool:
        """Starts the processes again that have crashed, as gunicorn does. True."""
        for process in list(self._processes):
            if process.forked.poll() in {-signal.SIGBUS, -signal.SIGABRT, -signal.SIGSEGV}:
                self._processes.remove(process)
                self._ended.append(process)
                self.start(process.run, *process.arguments)
        return True

    def lines(self, forked: Forked) -> list[str]:
        """The lines that a process printed."""
        return next(process.lines() for process in self._processes if process.forked is forked)

    @staticmethod
    def kill(process: Forked) -> None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def read(self) -> Stamp:
        """Reads the directory of the next revision."""
        self.newest = self.revisions.read()
        return self.newest

    def current(self) -> Path:
        """The file in use."""
        return self.folder / (self.folder / "current").read_text()

    def stored(self) -> tuple[Stamp, bool]:
        """The revision of the file, and whether the file contains exactly its entries. No process may write to it."""
        file = IndexFile(self.current())
        stamp = file.stamp
        assert stamp is not None
        with file._environment.begin() as transaction, transaction.cursor() as cursor:
            entries = {bytes(key): bytes(value) for key, value in cursor if bytes(key) != b"\0"}
        file.close()
        return stamp, entries == self.revisions.entries[stamp]

    def answers_now(self, view: str = "IndexView") -> bool:
        """Whether the processes that ask answer by the newest revision."""
        revision = self.newest.revision
        newest = f"answer {revision} {answers(revision)} {view}"
        return all(process.lines()[-1:] == [newest] for process in self._asking(self._processes))

    def follow(self, view: str = "IndexView") -> None:
        """Waits until ``answers_now``."""
        wait_until(lambda: self.answers_now(view))

    def check_answers(self) -> list[str]:
        """Fails if an answer is not that of its revision, or is an error other than 503. Returns the errors."""
        errors = []
        for process in self._asking(self._processes + self._ended):
            for line in process.lines():
                match line.split(" "):
                    case ["answer", revision, answer, _]:
                        assert answer == answers(int(revision)), line
                    case ["503", error]:
                        errors.append(error)
                    case _:
                        # Other lines are logs, and what LMDB writes before it aborts.
                        assert not line.startswith("500"), line
        return errors

    @staticmethod
    def _asking(processes: Iterable[Process]) -> list[Process]:
        return [process for process in processes if process.run is question]

    def close(self) -> None:
        for process in self._processes:
            process.forked.kill()
            process.forked.wait()
        self.engine.dispose()


@contextmanager
def index_node(database_url: str, folder: Path) -> Iterator[IndexNode]:
    """A node for a test."""
    node = IndexNode(database_url, folder)
    try:
        yield node
    finally:
        node.close()


def wait_until(true: Callable[[], Any], within: float = 30) -> None:
    """Waits until the condition is true."""
    until = time.monotonic() + within
    while True:
        try:
            if true():
                return
        except FileNotFoundError:
            pass
        assert time.monotonic() < until
        time.sleep(0.01)
