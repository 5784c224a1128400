"""The choice that ``--unit`` makes: tests that start no process and no server, held to it by a guard.

A test that does start one fails in this mode, and is told to say so with ``@pytest.mark.process``.
"""

import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

MARKERS = ("e2e", "postgres", "process", "slow")
"""The markers of what ``--unit`` leaves out."""

FOLDERS = (
    "attack",
    "backend",
    "backup",
    "commands/doctor",
    "crashes",
    "e2e",
    "faults",
    "foundation/outbound",
    "ldap",
    "misbehaving",
    "monitoring/notify",
    "monitoring/test_rules.py",
    "service/console",
    "service/push",
    "sources",
)
"""Folders that ``--unit`` leaves out as a whole: they are about processes, servers and peers, or take minutes alone."""

_HERE = Path(__file__).parent
_EVENTS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "socket.bind": "opens a port",
}


class UnitRun:
    """The plugin that deselects what starts processes and servers, and fails what does it all the same."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._test = ""
        self._seen = ""
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _EVENTS and self._test and not self._seen:
            self._seen = f"{_EVENTS[event]} ({event})"

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if _is_left_out(item)]
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = self._seen = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._seen and report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} {self._seen}: mark it, or its module, with pytest.mark.process,"
                " so that --unit leaves it out"
            )
            self._seen = ""
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says how many tests that were, in how many seconds."""
        ran = sum(len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "skipped"))
        seconds = time.monotonic() - self._started
        terminalreporter.write_line(f"--unit: {ran} tests that start nothing, in {seconds:.0f} s")


def _is_left_out(item: pytest.Item) -> bool:
    if any(item.get_closest_marker(name) for name in MARKERS):
        return True
    return any(item.path.is_relative_to(_HERE / folder) for folder in FOLDERS)
