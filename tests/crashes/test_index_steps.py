"""A process that maintains the index is killed at each step, while another one answers calls."""

import shutil
import signal
import time

import pytest

from tests.choice import sampled
from tests.crashes.index_node import BUILDS, LOGGED, IndexNode
from tests.crashes.maintainer import die, maintain, question

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("max_logged", "every"), sampled([(LOGGED, 24), (BUILDS, 24), (LOGGED, 1), (BUILDS, 1)], sample=2)
)
def test_maintainer_killed_at_each_step_leaves_one_revision(node: IndexNode, max_logged: int, every: int) -> None:
    first = node.start(die, LOGGED)
    assert first.wait(30) == 0
    node.start(question)
    node.follow()
    node.read()
    complete = node.start(die, max_logged)
    assert complete.wait(30) == 0
    lines = node.lines(complete)
    steps = [(line, times) for line in dict.fromkeys(lines) for times in (1, 2) if lines.count(line) >= times]
    assert len(steps) > 30
    left: set[int] = set()
    for step, times in steps[::-every]:
        before, newest = node.stored()[0], node.read()
        victim = node.start(die, max_logged, step=step, times=times)
        assert victim.wait(30) == -signal.SIGKILL, (step, times, node.lines(victim))
        stamp, is_whole = node.stored()
        assert is_whole, (step, times)
        assert stamp in {before, newest}
        left.add(newest.revision - stamp.revision)
    # Some were killed before the commit, and some after it.
    assert left > {0}
    node.start(maintain, LOGGED)
    node.follow()
    assert node.check_answers() == []


@pytest.mark.parametrize("pages", sampled([20, 3], sample=1))
def test_maintainer_killed_while_it_writes_pages_leaves_one_revision(node: IndexNode, pages: int) -> None:
    assert node.start(die, LOGGED).wait(30) == 0
    node.start(question)
    node.follow()
    node.revisions.others = 4_000
    before, newest = node.newest, node.read()
    # The file of the newest revision has more bytes.
    for size in range(100_000, 200_000, pages * 4096):
        assert node.start(die, LOGGED, size=size).wait(30) == -signal.SIGXFSZ
        assert node.stored() == (before, True)
    node.start(maintain, LOGGED)
    node.follow()
    assert node.newest == newest
    assert node.check_answers() == []


@pytest.mark.parametrize("times", sampled([2, 20], sample=1))
def test_two_builders_while_their_folder_is_deleted(node: IndexNode, times: int) -> None:
    builders = [node.start(maintain, BUILDS) for _ in range(2)]
    node.start(question)
    node.follow()
    for number in range(times):
        node.read()
        if number % 3 == 2:
            time.sleep(0.003 * number)
        # A builder may be creating files in it.
        shutil.rmtree(node.folder, ignore_errors=True)
        node.read()
    for builder in builders:
        node.kill(builder)
    survivor = node.start(maintain, LOGGED)
    node.read()
    node.follow()
    node.kill(survivor)
    assert node.stored() == (node.newest, True)
    node.check_answers()
