"""Chooses the tests of ``make unit``, ``make test`` and the two parts of CI.

=========================  =====================================================================================
``--unit``                 tests that start no process and open no port, on SQLite; a test that does so fails
``-m "not (extended …)"``  what ``make test`` runs: neither the long suites in full nor what needs other software
``--record-passed=FILE``   writes the ids of the tests that passed
``--skip-passed=FILE``     leaves those tests out, except property tests, of which ``make test`` runs a quarter
=========================  =====================================================================================
"""

import sys
import time
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from hypothesis import settings

MARKERS = ("e2e", "extended", "external", "postgres", "process", "slow")
"""The markers of tests that ``--unit`` leaves out."""

FOLDERS = (
    "access/test_disabling_fills.py",
    "access/test_effective.py",
    "attack",
    "backend",
    "backup",
    "commands/doctor",
    "commands/test_audit.py",
    "commands/test_health.py",
    "commands/test_no_sources.py",
    "commands/test_preview.py",
    "commands/test_two_programs.py",
    "contract/test_openapi.py",
    "crashes",
    "directory/test_contract.py",
    "directory/test_mapped.py",
    "e2e",
    "faults",
    "foundation/database/test_earlier_databases.py",
    "foundation/outbound",
    "ldap",
    "misbehaving",
    "monitoring/notify",
    "monitoring/test_rules.py",
    "service/admin",
    "service/console",
    "service/push",
    "service/test_web.py",
    "sources",
    "sync/runs",
    "test_documents.py",
    "test_writing.py",
)
"""What ``--unit`` leaves out as a whole: tests of processes, servers and peers, and suites of more than ten seconds."""

_HERE = Path(__file__).parent
_EVENTS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "socket.bind": "opens a port",
}


def add_options(parser: pytest.Parser) -> None:
    """Declares the options of this module."""
    parser.addoption("--unit", action="store_true", help="only tests that start no process and open no port")
    parser.addoption("--record-passed", metavar="FILE", type=Path, help="write the ids of the tests that passed")
    parser.addoption("--skip-passed", metavar="FILE", type=Path, help="leave out the tests that FILE names")


def configure(config: pytest.Config) -> None:
    """Registers what the options ask for."""
    if config.getoption("--unit") or "not (extended" in config.getoption("-m"):
        settings.register_profile("sample", settings.default, max_examples=25)
        settings.load_profile("sample")
    if config.getoption("--unit"):
        config.pluginmanager.register(UnitRun())
    if config.getoption("--record-passed") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(PassedTests(config.getoption("--record-passed")))


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes the tests that the options and markers leave out."""
    passed: set[str] = set()
    if (file := config.getoption("--skip-passed")) is not None:
        passed = set(file.read_text(encoding="utf-8").splitlines())
    is_unit = config.getoption("--unit")
    chosen = []
    for item in items:
        other_database = item.get_closest_marker("one_database") and item.get_closest_marker("postgres")
        has_passed = _without_group(item.nodeid) in passed and not _has_examples(item)
        if not (has_passed or other_database or (is_unit and _is_no_unit_test(item))):
            chosen.append(item)
    left_out = set(items).difference(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = chosen


def is_left_out(config: pytest.Config, path: Path) -> bool:
    """Whether ``--unit`` does not even collect a file or folder, which would take as long as its tests."""
    return bool(config.getoption("--unit")) and any(path == _HERE / folder for folder in FOLDERS)


def sampled(values: Iterable[object], *, sample: int) -> list[object]:
    """Parameters of which ``make test`` runs the first ``sample`` only."""
    return [
        value
        if number < sample
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.extended)
        for number, value in enumerate(values)
    ]


def examples(number: int) -> int:
    """Hypothesis's ``max_examples``, of which ``make unit`` and ``make test`` run a quarter."""
    return number * settings().max_examples // 100


def _has_examples(item: pytest.Item) -> bool:
    """Whether Hypothesis generates examples for it. A test that passed with a quarter of them runs again."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def _is_no_unit_test(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in MARKERS)


class PassedTests:
    """Writes the ids of the tests that passed, when the run ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(_without_group(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        self._file.write_text("".join(f"{nodeid}\n" for nodeid in sorted(self._passed)), encoding="utf-8")


def _without_group(nodeid: str) -> str:
    """The id without the group that pytest-xdist appends to it."""
    plain, _, group = nodeid.rpartition("@")
    return plain if plain and group.isidentifier() else nodeid


class UnitRun:
    """Fails a test that starts a process or opens a port, although it is not marked ``process``."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._test = ""
        self._event = ""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, _: tuple[object, ...]) -> None:
        if event in _EVENTS and self._test and not self._event:
            self._event = f"{_EVENTS[event]} ({event})"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = self._event = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._event and report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} {self._event}: mark it, or its module, with pytest.mark.process"
            self._event = ""
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the number of tests and the seconds."""
        ran = sum(len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "skipped"))
        terminalreporter.write_line(f"--unit: {ran} tests in {time.monotonic() - self._started:.0f} s")
