"""A run that dies at any of its steps is made good by the next one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crashes.points import SCENARIOS

STEP = 16
"""Each test tries every so manieth point; the soak tries all of them."""

ONCE = [(name, None) for name in SCENARIOS]
TWICE = [("edits", 7), ("side by side", 8)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "second"), [*ONCE, *TWICE])
def test_run_killed_at_its_steps_is_made_good(name: str, second: int | None, memory: Path) -> None:
    first = 1 if second is None else 4
    arguments = [str(memory), name, str(first), str(STEP), *([] if second is None else [str(second)])]
    program = subprocess.run(
        [sys.executable, "-m", "tests.crashes.points", *arguments], capture_output=True, text=True, check=False
    )
    assert program.returncode == 0, program.stderr
    found = json.loads(program.stdout)
    assert found["problems"] == []
    assert found["killed"] > found["points"] / STEP * 0.6
    assert found["interrupted"]
