"""The list of flaky tests at the end of a run: those that failed and, run again, did not."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names each test that pytest-rerunfailures ran again, once, and what came of it."""
    stats = terminalreporter.stats
    again = [report.nodeid for report in stats.get("rerun", ())]
    if not again:
        return
    failed = {report.nodeid for outcome in ("failed", "error") for report in stats.get(outcome, ())}
    terminalreporter.section("flaky tests", yellow=True)
    for nodeid in dict.fromkeys(again):
        end = "failed in the end" if nodeid in failed else "then passed"
        terminalreporter.write_line(f"{nodeid}: failed {again.count(nodeid)}x, {end}")
