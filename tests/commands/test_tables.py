"""Tables on terminals of several widths are complete."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from app.commands.screen import on_terminal, show_table
from app.foundation.database.engine import open_engine
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import RunRequest, RunStatus
from tests.commands.conftest import Usher

WIDTHS = (60, 80, 120, 160)

ERROR = (
    "the process that ran it (usher-worker-7f9c6d5b8-x2k4q:1), or its connection to the database, ended unexpectedly;"
    " the next run continues from there"
)
REASON = "3 objects of the set people have no value for mail, which the rule for users needs, and are left out: " * 3


def _plain(text: str) -> str:
    """The text without bold and dim, which ``NO_COLOR`` does not remove."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The lines of a table on a terminal with this number of columns."""

    def show(columns: int, headings: tuple[str, ...], rows: list[tuple[str, ...]], **keywords: bool) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        terminal = _Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            show_table(headings, rows, **keywords)
        return _plain(terminal.getvalue()).splitlines()

    return show


TABLES: dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]] = {
    "sources": (
        ("source", "verdict", "records", "malformed", "reason"),
        [
            ("people-of-the-headquarters", "partial", "1203344", "12", REASON),
            ("acme.jsonl", "complete", "17", "0", ""),
        ],
    ),
    "changes": (
        ("action", "kind", "what", "status", "why"),
        [
            (
                "update",
                "organization_user",
                "6f1c1c2e-7d0e-4c59-9a83-f5a0f2b3c001 / 0b7e-ada.lovelace@headquarters.example.com",
                "failed",
                REASON,
            ),
            ("add", "document", "acme / handbook", "done", "new in the directory"),
        ],
    ),
    "answers": (
        ("who", "what", "answer", "role", "until", "reason"),
        [("ada", "document annual-report-of-the-board", "allowed", "editor", "2030-01-01", REASON)],
    ),
    "settings": (
        ("key", "value", "from"),
        [("self_hosted_backend.webhooks.connect_timeout", "https://" + "a" * 200, "/srv/usher/config/usher.yaml")],
    ),
    "rules": (
        ("rule", "objects", "matched", "skipped", "malformed", "records"),
        [("12 people, each member: organization_user", "1,203,344", "1", "2", "3", "1,203,344")],
    ),
    "sums": (
        ("organization", "kind", "add", "update", "delete", "of them held", "of them skipped", "of them waiting"),
        [("6f1c1c2e-7d0e-4c59-9a83-f5a0f2b3c001", "organization_user", "1", "2", "3", "4", "5", "6")],
    ),
}


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_every_cell_is_complete(name: str, columns: int, shown: Callable[..., list[str]]) -> None:
    headings, rows = TABLES[name]
    lines = shown(columns, headings, rows)
    assert max(map(len, lines)) <= columns, lines
    text = "\n".join(lines)
    for heading in headings:
        assert heading in text
    for row in rows:
        # Long texts may be folded into several lines. The first cell can be copied.
        assert any(line.startswith(f" {row[0]}") for line in lines), lines
        for cell in row:
            assert len(cell) > 24 or cell in text, (cell, text)
    assert "…" not in text, "something was cut"
    for letter in "aeiotr":
        assert text.count(letter) >= sum(cell.count(letter) for row in rows for cell in row), "something was cut"


@pytest.mark.parametrize("columns", WIDTHS)
def test_wide_characters_take_two_columns(columns: int, shown: Callable[..., list[str]]) -> None:
    lines = shown(columns, ("who", "what", "why"), [("名前" * 6, "部署" * 9, "理由" * 40), ("ada", "docs", "new")])
    assert any("名前" * 6 in line for line in lines)
    assert sum(line.count("理由") for line in lines) == 40


def _on_terminal(folder: Path, columns: int, *arguments: str) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "app", *arguments],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment | {"TERM": "xterm", "NO_COLOR": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        output += part
    process.wait()
    os.close(ours)
    return _plain(output.decode()).splitlines()


@pytest.mark.extended
@pytest.mark.parametrize("columns", WIDTHS)
def test_runs_shows_complete_ids_statuses_and_times(usher_read: Usher, folder: Path, columns: int) -> None:
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    times = (datetime(2026, 11, 2, 9, minute, tzinfo=UTC) for minute in range(60))
    runs = Runs(engine, lambda: next(times), Random(7))
    counts = {"user": {"add": {"planned": 9375, "done": 2600, "failed": 3, "held": 44, "waiting": 100, "parked": 7}}}
    failed, _ = runs.enqueue(RunRequest(trigger="verify_schedule"))
    runs.move(failed.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=datetime(2026, 11, 2, 9, 1, tzinfo=UTC))
    runs.move(
        failed.run_id,
        RunStatus.READING,
        RunStatus.FAILED,
        error=ERROR,
        finished_at=datetime(2026, 11, 2, 9, 3, tzinfo=UTC),
        counts=counts,
    )
    cancelled, _ = runs.enqueue(RunRequest(trigger="resync"))
    runs.cancel(cancelled.run_id)
    engine.dispose()

    lines = [line.rstrip() for line in _on_terminal(folder, columns, "runs", "--config", "usher.yaml")]
    for run, status in ((failed, "failed"), (cancelled, "cancelled")):
        [line] = [line for line in lines if line.startswith(f" {run.run_id[:15]}")]
        assert status in line.split()
        assert re.search(r"2026-11-02 09:\d\d:00", line)
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    assert "2600 done, 3 failed, 44 held, 7 parked" in text
    assert "the process that ran it (usher-worker-7f9c6d5b8" in text


def test_runs_shows_every_outcome(usher_read: Usher, folder: Path) -> None:
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    runs = Runs(engine, lambda: datetime(2026, 11, 2, tzinfo=UTC), Random(7))
    run, _ = runs.enqueue(RunRequest(trigger="resync"))
    counts = {"user": {"add": {"planned": 11, "skipped": 5, "cancelled": 6}}}
    runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING)
    runs.move(run.run_id, RunStatus.READING, RunStatus.FAILED, counts=counts)
    engine.dispose()
    assert "\t5 skipped, 6 cancelled" in usher_read("runs").stdout


def test_closed_output_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert not on_terminal()
