"""``usher doctor``: prints the findings of all checks."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from app import __version__
from app.commands.doctor.finding import State
from app.commands.frame import Invocation, UsherCommand, json_option, pass_invocation
from app.commands.screen import on_terminal, print_result, show_json
from app.foundation.clock import utc_now
from app.foundation.text import counted, printable

if TYPE_CHECKING:
    from app.commands.doctor.finding import Finding

_MARKS = {State.OK: ("✓", "green"), State.WARNING: ("!", "yellow"), State.PROBLEM: ("✗", "red")}
_NAME_WIDTH = 14
_MIN_WIDTH = 24
"""Minimum width of the texts. On a narrower terminal, lines are longer than the terminal."""


@click.command(cls=UsherCommand)
@click.option("--notify", is_flag=True, help="Also send a test message to every receiver in notifications.")
@json_option
@pass_invocation
@click.pass_context
def doctor(context: click.Context, invocation: Invocation, notify: bool, as_json: bool) -> None:
    """Check the whole installation, and print advice.

    Checks the settings, the database, the sources, the runs and the backend, and whether the backend reaches the
    service. Reads every source, changes nothing.

    Exit code 0: no problems, 1: a problem.
    """
    findings = []
    if not as_json and on_terminal():
        print_result(click.style(f"Usher {__version__}", bold=True) + "\n")
    for finding in _findings(invocation, notify=notify):
        findings.append(finding)
        if not as_json:
            _show(finding)
    states = Counter(finding.state for finding in findings)
    if as_json:
        show_json({"healthy": not states[State.PROBLEM], "findings": [_to_wire(finding) for finding in findings]})
    elif on_terminal():
        print_result("\n" + _summary(states))
    context.exit(1 if states[State.PROBLEM] else 0)


def _findings(invocation: Invocation, *, notify: bool) -> Iterator[Finding]:
    from app.commands.doctor.checks import run_checks
    from app.commands.doctor.finding import problem
    from app.foundation.configuration.problems import ConfigurationError

    try:
        configuration = invocation.configuration()
    except ConfigurationError as error:
        for line in error.problems:
            yield problem("settings", printable(line), "fix this line first; nothing else was checked")
        return
    yield from run_checks(configuration, clock=utc_now, notify=notify, environment=os.environ)


def _show(finding: Finding) -> None:
    """Prints marks and colours on a terminal, and tab-separated fields elsewhere."""
    message, advice = printable(finding.message), printable(finding.advice)
    if not on_terminal():
        print_result(f"{finding.state.value}\t{finding.name}\t{message}\t{advice}".rstrip("\t"))
        return
    mark, colour = _MARKS[finding.state]
    indent = " " * (4 + _NAME_WIDTH + 2)
    first, *further = _wrapped(message, len(indent))
    name = click.style(f"{finding.name:<{_NAME_WIDTH}}", bold=True)
    print_result(f"  {click.style(mark, fg=colour, bold=True)} {name}  {first}")
    for line in further:
        print_result(indent + line)
    for number, line in enumerate(_wrapped(advice, len(indent) + 2) if advice else []):
        print_result(indent + click.style(("→ " if number == 0 else "  ") + line, dim=True))


def _wrapped(text: str, indent: int) -> list[str]:
    """The text in lines that fit on the terminal after ``indent`` columns. Words are not broken."""
    width = max(shutil.get_terminal_size().columns - indent, _MIN_WIDTH)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _summary(states: Counter[State]) -> str:
    words = [
        click.style(counted(states[state], state.value), fg=_MARKS[state][1])
        for state in (State.PROBLEM, State.WARNING)
        if states[state]
    ]
    return " and ".join(words) or click.style("No problems.", fg="green")


def _to_wire(finding: Finding) -> dict[str, str]:
    wire = {"name": finding.name, "state": finding.state.value, "says": finding.message}
    return wire | {"advice": finding.advice} if finding.advice else wire
