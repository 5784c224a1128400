"""The file of the index is damaged, or its disk full, while processes maintain and read it."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from app.access.index.crashes import has_crashed
from tests.choice import sampled
from tests.crashes.index_node import BUILDS, LOGGED, IndexNode, wait_until
from tests.crashes.maintainer import abort, maintain, question
from tests.forking import Forked

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(180)]

PAGE = 4096
META = 2 * PAGE
"""The pages that name the current tree. LMDB reads them at the begin of each transaction."""


def truncate(pages: float) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        os.truncate(file, int(pages * PAGE) if pages >= 1 else file.stat().st_size // 2)

    return damage


def overwrite(content: Callable[[int], bytes], start: int = 0) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        with file.open("r+b") as opened:
            opened.seek(start)
            opened.write(content(file.stat().st_size - start))

    return damage


def sevens(size: int) -> bytes:
    return b"\7" * size


DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    ("first pages are left", truncate(2)),
    ("LMDB aborts", overwrite(sevens, META)),
    ("empty", truncate(0)),
    ("one page is left", truncate(1)),
    ("half", truncate(0.5)),
    ("zeros", overwrite(bytes)),
    ("sevens", overwrite(sevens)),
    ("random bytes", overwrite(os.urandom)),
    ("zeros after the first pages", overwrite(bytes, META)),
    ("random bytes after the first pages", overwrite(os.urandom, META)),
]


@pytest.mark.parametrize(
    "damage", sampled([damage for _, damage in DAMAGES], sample=2), ids=[name for name, _ in DAMAGES]
)
def test_damage_under_running_processes_is_repaired(node: IndexNode, damage: Callable[[Path], None]) -> None:
    for _ in range(2):
        # Calls find the damage before a check does.
        node.start(question, True, 0.1)
    node.follow()
    node.read()
    node.follow()
    damaged = node.current()
    damage(damaged)
    wait_until(lambda: node.restart_crashed() and node.current() != damaged)
    node.read()
    wait_until(lambda: node.restart_crashed() and node.answers_now())
    node.check_answers()


@pytest.mark.one_database
def test_a_crash_elsewhere_is_logged_and_keeps_the_file(node: IndexNode) -> None:
    output = node.folder.parent / "aborted"
    aborted = Forked(abort, str(node.folder), folder=node.folder.parent, out=output, err=output)
    assert aborted.wait(30) == -signal.SIGABRT
    with structlog.testing.capture_logs() as lines:
        assert not has_crashed(node.folder)
        assert not has_crashed(node.folder)
    assert [line["event"] for line in lines] == ["process_crashed"]
    assert "Fatal Python error: Aborted" in lines[0]["stack"]
    assert "tests/crashes/maintainer.py" in lines[0]["stack"]


class Disk:
    """A disk that can be filled. It is a small file system, or a limit of the size of files."""

    def __init__(self, node: IndexNode) -> None:
        self._folder = node.folder
        node.folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(node.folder)]
        self.is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0

    def fill(self, maintainer: Forked) -> None:
        if not self.is_mounted:
            resource.prlimit(maintainer.pid, resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
            return
        with (self._folder / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(PAGE)):
                pass

    def free(self, maintainer: Forked) -> None:
        if self.is_mounted:
            (self._folder / "ballast").unlink()
        else:
            resource.prlimit(maintainer.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

    def remove(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self._folder)], check=True)


@pytest.fixture
def disk(node: IndexNode) -> Iterator[Disk]:
    disk = Disk(node)
    yield disk
    disk.remove()


@pytest.mark.parametrize("max_logged", [LOGGED, BUILDS], ids=["update", "rebuild"])
def test_full_disk_leads_to_the_database(node: IndexNode, disk: Disk, max_logged: int) -> None:
    maintainer = node.start(maintain, max_logged)
    node.start(question)
    node.follow()
    before = node.current()
    disk.fill(maintainer)
    node.revisions.others = 2_000
    newest = node.read()
    node.follow("SqlView")
    assert node.current() == before
    # A build that fails leaves no file behind.
    wait_until(lambda: list(node.folder.glob("*.mdb")) == [before])
    assert maintainer.poll() is None
    disk.free(maintainer)
    node.follow()
    node.kill(maintainer)
    assert node.stored() == (newest, True)
    assert (node.current() == before) is (max_logged == LOGGED)
    assert node.check_answers() == []
