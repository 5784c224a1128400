"""Forked processes behave like others."""

import atexit
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped] # it ships no types

from tests.forking import LOADED, Forked, command

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("servers")]


def say(*words: str) -> None:
    print(*words, Path.cwd(), os.environ["TOLD"], len(os.environ))
    print("error", file=sys.stderr)
    print("not loaded:", [name for name in LOADED if name not in sys.modules], file=sys.stderr)
    print("prometheus:", "prometheus_client" in sys.modules, file=sys.stderr)
    atexit.register(print, "the end")
    sys.exit(3)


def wait() -> None:
    signal.pause()


def forked(folder: Path, run: object, *given: object, **environment: str) -> Forked:
    return Forked(run, *given, folder=folder, out=folder / "out", err=folder / "err", environment=environment)  # type: ignore[arg-type]


def test_fork_has_its_own_environment(tmp_path: Path) -> None:
    process = forked(tmp_path, say, "a", "word", TOLD="so")
    assert process.wait(60) == process.poll() == 3
    assert process.pid != os.getpid()
    assert (tmp_path / "out").read_text() == f"a word {tmp_path} so 1\nthe end\n"
    assert (tmp_path / "err").read_text() == "error\nnot loaded: []\nprometheus: False\n"


def say_where_servers_work() -> None:
    print(Config().chdir)


def test_fork_serves_from_its_own_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        assert forked(tmp_path / name, say_where_servers_work).wait(60) == 0
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
