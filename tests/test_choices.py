"""What ``--unit`` leaves out and refuses, and what a run says at its end of tests that were run again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.process

CONFTEST = "from tests.conftest import pytest_addoption, pytest_configure\n"
INI = "[pytest]\nmarkers =\n    process: x\n    slow: x\n    e2e: x\n    postgres: x\n"


def run(folder: Path, tests: str, *options: str) -> str:
    """The output of pytest over these tests, without the settings of this suite."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_it.py").write_text(tests)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini", *options, "test_it.py"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


UNMARKED = """
import socket, subprocess, sys
import pytest

def test_process():
    subprocess.run([sys.executable, "-c", ""])

def test_server():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))

@pytest.fixture
def served():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        yield

def test_server_of_a_fixture(served):
    pass

def test_after_them():
    pass

@pytest.mark.process
def test_marked():
    subprocess.run([sys.executable, "-c", ""])

@pytest.mark.slow
def test_slow():
    raise AssertionError
"""


def test_unit_leaves_out_what_is_marked_and_fails_what_is_not(tmp_path: Path) -> None:
    output = run(tmp_path, UNMARKED, "--unit")
    assert "test_it.py::test_process starts a process (subprocess.Popen)" in output, output
    assert "test_it.py::test_server opens a port (socket.bind)" in output, output
    assert "test_it.py::test_server_of_a_fixture opens a port (socket.bind)" in output, output
    assert "mark it, or its module, with pytest.mark.process" in output
    assert "2 failed, 1 passed" in output or "2 failed, 2 passed" in output, output
    assert "1 error" in output, output
    assert "test_marked" not in output
    assert "test_slow" not in output
    assert "--unit: " in output


FLAKY = """
from pathlib import Path

def test_second_time():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError

def test_never():
    raise AssertionError

def test_well():
    pass
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_what_was_run_again_is_listed_at_the_end(tmp_path: Path, processes: tuple[str, ...]) -> None:
    output = run(tmp_path, FLAKY, "--reruns", "2", *processes)
    assert "flaky tests" in output, output
    assert "test_it.py::test_second_time: failed 1x, then passed" in output, output
    assert "test_it.py::test_never: failed 2x, failed in the end" in output, output
    assert "test_well:" not in output
