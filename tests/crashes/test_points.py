"""The run after a crash at any step completes the work."""

import json
from pathlib import Path

import pytest

from tests.choice import sampled
from tests.crashes.points import SCENARIOS, main
from tests.forking import Forked

STEP = 16
"""Each test tries every nth point; the soak tries all of them."""

SAMPLE = ("first", None, 6 * STEP)
ONCE = [(name, None, STEP) for name in SCENARIOS]
TWICE = [("edits", 7, STEP), ("side by side", 8, STEP)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "second", "step"), sampled([SAMPLE, *ONCE, *TWICE], sample=1))
def test_run_killed_at_its_steps_is_made_good(name: str, second: int | None, step: int, memory: Path) -> None:
    first = 1 if second is None else 4
    arguments = [str(memory), name, str(first), str(step), *([] if second is None else [str(second)])]
    out, err = memory / "out", memory / "err"
    program = Forked(main, *arguments, folder=memory, out=out, err=err)
    assert program.wait() == 0, err.read_text()
    found = json.loads(out.read_text())
    assert found["problems"] == []
    assert found["killed"] > found["points"] / step * 0.6
    assert found["interrupted"]
