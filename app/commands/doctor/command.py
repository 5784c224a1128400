"""``usher doctor``: looks at everything that has to be well, and says what to do about what is not."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from app import __version__
from app.commands.doctor.finding import State
from app.commands.frame import Invocation, UsherCommand, pass_invocation
from app.commands.screen import on_terminal, say, show_json
from app.foundation.clock import utc_now
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.commands.doctor.finding import Finding


_MARKS = {State.OK: ("✓", "green"), State.WARNING: ("!", "yellow"), State.PROBLEM: ("✗", "red")}
_NAME_WIDTH = 14
_LEAST_WIDTH = 24
"""Columns; on a narrower terminal lines are cut by it."""


@click.command(cls=UsherCommand)
@click.option("--notify", is_flag=True, help="Also send a test message to everybody that notifications names.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_invocation
@click.pass_context
def doctor(context: click.Context, invocation: Invocation, notify: bool, as_json: bool) -> None:
    """Check the whole installation, and say what to do.

    At the settings, the database, the sources, the runs, the backend, and whether the backend asks the service. Reads
    every source, changes nothing.

    Exit code 0: nothing is in the way, 1: there is a problem.
    """
    findings = []
    if not as_json and on_terminal():
        say(click.style(f"Usher {__version__}", bold=True) + "\n")
    for finding in _findings(invocation, notify=notify):
        findings.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        show_json({"healthy": not _count(findings, State.PROBLEM), "findings": [_to_wire(one) for one in findings]})
    elif on_terminal():
        say("\n" + _summary(findings))
    context.exit(1 if _count(findings, State.PROBLEM) else 0)


def _findings(invocation: Invocation, *, notify: bool) -> Iterator[Finding]:
    from app.commands.doctor.checks import run_checks
    from app.commands.doctor.finding import problem
    from app.foundation.configuration.problems import ConfigurationError

    try:
        found = invocation.configuration()
    except ConfigurationError as error:
        for line in error.problems:
            yield problem("settings", printable(line), "mend this line first; nothing else was looked at")
        return
    yield from run_checks(found, clock=utc_now, notify=notify, environment=os.environ)


def _show(finding: Finding) -> None:
    """Marks and colours for people; state, name, finding and advice between tabs for programs."""
    says, advice = printable(finding.says), printable(finding.advice)
    if not on_terminal():
        say(f"{finding.state.value}\t{finding.name}\t{says}\t{advice}".rstrip("\t"))
        return
    mark, colour = _MARKS[finding.state]
    name = f"{finding.name:<{_NAME_WIDTH}}"
    beside = " " * (4 + _NAME_WIDTH + 2)
    first, *rest = _wrapped(says, len(beside))
    say(f"  {click.style(mark, fg=colour, bold=True)} {click.style(name, bold=True)}  {first}")
    for line in rest:
        say(beside + line)
    for number, line in enumerate(_wrapped(advice, len(beside) + 2) if advice else []):
        say(beside + click.style(("→ " if number == 0 else "  ") + line, dim=True))


def _wrapped(text: str, taken: int) -> list[str]:
    """The text in lines that end between words; ``taken`` columns of each are used already."""
    width = max(shutil.get_terminal_size().columns - taken, _LEAST_WIDTH)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _summary(findings: Sequence[Finding]) -> str:
    problems, warnings = _count(findings, State.PROBLEM), _count(findings, State.WARNING)
    if not problems and not warnings:
        return click.style("All is well.", fg="green")
    words = [
        click.style(f"{number} {word}" + ("s" if number > 1 else ""), fg=colour)
        for number, word, colour in ((problems, "problem", "red"), (warnings, "warning", "yellow"))
        if number
    ]
    return " and ".join(words)


def _count(findings: Sequence[Finding], state: State) -> int:
    return sum(finding.state is state for finding in findings)


def _to_wire(finding: Finding) -> dict[str, str]:
    wire = {"name": finding.name, "state": finding.state.value, "says": finding.says}
    return wire | {"advice": finding.advice} if finding.advice else wire
