"""The suite's own ground: tests of one group (``xdist_group``) run in one process, so that they share their servers."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

GROUPED = """
import os, pathlib, pytest

pytestmark = pytest.mark.xdist_group("servers")

@pytest.mark.parametrize("number", range(12))
def test_one(number):
    (pathlib.Path(__file__).parent / f"ran-{os.getpid()}-{number}").touch()
"""


def test_a_group_stays_in_one_process(tmp_path: Path) -> None:
    """pytest-xdist and pytest have to fit for that; where they do not, servers start once for each process."""
    (tmp_path / "test_first.py").write_text(GROUPED)
    (tmp_path / "test_second.py").write_text(GROUPED)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]
    ended = subprocess.run(
        [*command, str(tmp_path)], check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    processes = {path.name.split("-")[1] for path in tmp_path.glob("ran-*")}
    assert len(processes) == 1, f"{len(processes)} processes ran one group"
