"""Tests of ``tests.forking.Forked``."""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped] # it ships no types

from tests.forking import LOADED, Forked, command

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("servers")]


def print_state(*arguments: str) -> None:
    state = {
        "arguments": arguments,
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "missing modules": [name for name in LOADED if name not in sys.modules],
        "has prometheus": "prometheus_client" in sys.modules,
    }
    print(json.dumps(state))
    print("error", file=sys.stderr)
    atexit.register(print, "the end")
    sys.exit(3)


def wait() -> None:
    signal.pause()


def forked(folder: Path, run: Callable[..., object], *given: object, **environment: str) -> Forked:
    return Forked(run, *given, folder=folder, out=folder / "out", err=folder / "err", environment=environment)


def test_fork_has_its_own_environment(tmp_path: Path) -> None:
    process = forked(tmp_path, print_state, "a", "word", COLOUR="red")
    assert process.wait(60) == process.poll() == 3
    assert process.pid != os.getpid()
    state, last = (tmp_path / "out").read_text().splitlines()
    assert json.loads(state) == {
        "arguments": ["a", "word"],
        "folder": str(tmp_path),
        "environment": {"COLOUR": "red"},
        "missing modules": [],
        "has prometheus": False,
    }
    assert last == "the end"
    assert (tmp_path / "err").read_text() == "error\n"


def print_folder_of_servers() -> None:
    print(Config().chdir)


def test_fork_serves_from_its_own_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        assert forked(tmp_path / name, print_folder_of_servers).wait(60) == 0
        assert (tmp_path / name / "out").read_text() == f"{tmp_path / name}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_fork_can_be_stopped(tmp_path: Path, number: signal.Signals) -> None:
    process = forked(tmp_path, wait)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.1)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(60) == -number
    process.send_signal(number)


def test_fork_can_run_the_command(tmp_path: Path) -> None:
    process = forked(tmp_path, command, "config", "show", "--config", "nowhere.yaml")
    assert process.wait(60) == 1
    assert "nowhere.yaml" in (tmp_path / "err").read_text()
    assert (tmp_path / "out").read_text() == ""
