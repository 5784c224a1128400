"""The options that choose tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.choice import MARKERS

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.process

CONFTEST = """
from tests.choice import add_options as pytest_addoption
from tests.choice import choose as pytest_collection_modifyitems
from tests.choice import configure as pytest_configure
"""
INI = "[pytest]\nmarkers =\n" + "".join(f"    {name}: x\n" for name in (*MARKERS, "one_database"))


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


GROUPED = """
import pytest

pytestmark = pytest.mark.xdist_group("servers")

@pytest.mark.parametrize("name", ["a", "b@c"])
def test_passes(name):
    pass

def test_fails():
    raise AssertionError

@pytest.mark.extended
def test_extended():
    pass
"""


@pytest.mark.extended
def test_a_second_run_leaves_out_what_passed_in_the_first(tmp_path: Path) -> None:
    options = ("-n", "2", "--dist", "loadgroup")
    first = run(tmp_path, GROUPED, *options, "-m", "not (extended)", "--record-passed=passed")
    assert "1 failed, 2 passed" in first, first
    second = run(tmp_path, GROUPED, *options, "--skip-passed=passed")
    assert "1 failed, 1 passed" in second, second


PROPERTY = """
from hypothesis import given, settings, strategies
from tests.choice import examples

ran = []

@settings(max_examples=examples(40), database=None)
@given(strategies.integers())
def test_property(number):
    ran.append(number)

def test_count():
    print(f"{len(ran)} examples")
"""


@pytest.mark.extended
def test_a_property_runs_in_full_after_a_sample(tmp_path: Path) -> None:
    first = run(tmp_path, PROPERTY, "-s", "-m", "not (extended)", "--record-passed=passed")
    assert "10 examples" in first, first
    (tmp_path / "passed").write_text("test_it.py::test_property\n")
    second = run(tmp_path, PROPERTY, "-s", "--skip-passed=passed")
    assert "40 examples" in second, second
