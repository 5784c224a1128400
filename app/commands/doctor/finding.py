"""Findings: what one look at something came to."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How it is."""

    OK = "ok"
    WARNING = "warning"
    """It works, but somebody should know."""
    PROBLEM = "problem"
    """It does not work, or will not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    """What was looked at, in one or two words."""
    state: State
    says: str
    """One line, without secrets."""
    advice: str = ""
    """What to do; empty when there is nothing to do."""


Findings = Iterator[Finding]


def ok(name: str, says: str) -> Finding:
    return Finding(name, State.OK, says)


def warning(name: str, says: str, advice: str) -> Finding:
    return Finding(name, State.WARNING, says, advice)


def problem(name: str, says: str, advice: str) -> Finding:
    return Finding(name, State.PROBLEM, says, advice)
