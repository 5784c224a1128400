"""The same as ``python -m tests.soak sources``, with fewer records."""

import subprocess
import sys

import pytest


@pytest.mark.extended
def test_many_records_are_read_in_bounded_memory() -> None:
    arguments = ["-m", "tests.soak.sources", "--records", "60000", "--megabytes", "250"]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cut off half-way" in done.stdout
