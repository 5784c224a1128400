"""The table of an index's readers, and the size of its file, while processes that read it are killed."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from app.access.index.file import _MAX_READERS, IndexFile, Stamp, create_file
from tests.choice import sampled
from tests.crashes.index_node import LOGGED, IndexNode, wait_until
from tests.crashes.maintainer import hold, maintain, question
from tests.forking import Forked

pytestmark = [pytest.mark.slow, pytest.mark.process]

ENTRIES = 2_000


@pytest.fixture
def file(memory: Path) -> Iterator[IndexFile]:
    path = memory / "index.mdb"
    create_file(path, Stamp(0, 0), [(b"%06d" % number, bytes(50)) for number in range(ENTRIES)])
    file = IndexFile(path)
    yield file
    file.close()


@pytest.fixture
def start(memory: Path) -> Iterator[Callable[..., Forked]]:
    """Starts a process that holds read transactions of a file, and waits until it has them."""
    started: list[Forked] = []

    def start(path: Path, transactions: int) -> Forked:
        output = memory / f"reader{len(started)}"
        started.append(Forked(hold, str(path), transactions, folder=memory, out=output, err=memory / "errors"))
        wait_until(output.read_text)
        return started[-1]

    yield start
    for process in started:
        kill(process)


def kill(process: Forked) -> None:
    process.kill()
    process.wait()


def test_slots_of_killed_readers_are_freed_by_calls(file: IndexFile, start: Callable[..., Forked]) -> None:
    reader = start(file.path, _MAX_READERS)
    # The slot of the check when it was opened remains, and answers calls.
    with file.reading() as (_, stamp):
        assert stamp == Stamp(0, 0)
        with pytest.raises(lmdb.ReadersFullError), file.reading():
            pass
    kill(reader)
    with file.reading(), file.reading(), file.reading() as (_, stamp):
        assert stamp == Stamp(0, 0)


def test_slots_of_killed_readers_are_freed_by_checks(node: IndexNode, start: Callable[..., Forked]) -> None:
    maintainer = node.start(maintain, LOGGED)
    asking = node.start(question)
    node.follow()
    os.kill(maintainer.pid, signal.SIGSTOP)
    os.kill(asking.pid, signal.SIGSTOP)
    kill(start(node.current(), _MAX_READERS))
    # LMDB needs a slot to open a file.
    with pytest.raises(lmdb.ReadersFullError):
        IndexFile(node.current())
    os.kill(maintainer.pid, signal.SIGCONT)
    wait_until(lambda: can_be_opened(node.current()))
    os.kill(asking.pid, signal.SIGCONT)
    node.read()
    node.follow()
    assert node.check_answers() == []


def can_be_opened(path: Path) -> bool:
    try:
        IndexFile(path).close()
    except lmdb.ReadersFullError:
        return False
    return True


@pytest.mark.parametrize("rounds", sampled([12, 150], sample=1))
def test_file_does_not_grow_while_readers_are_killed(
    file: IndexFile, start: Callable[..., Forked], rounds: int
) -> None:
    size = file.path.stat().st_size
    revisions = itertools.count()
    stamp = Stamp(0, 0)
    for _ in range(rounds):
        reader = start(file.path, 3)
        for update in range(20):
            if update == 4:
                kill(reader)
            file.free_slots()
            before, stamp = stamp, Stamp(next(revisions), 0)
            with file.writing(before, stamp) as writer:
                for number in range(0, ENTRIES, 20):
                    writer.store(b"%06d" % number, b"%50d" % stamp.revision)
    # Each update writes half of the pages. Those of the revisions while a reader lived are kept until it is killed.
    assert file.path.stat().st_size < 8 * size
