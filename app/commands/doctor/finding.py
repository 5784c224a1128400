"""Findings: the results of the doctor's checks."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """It works, but needs attention."""
    PROBLEM = "problem"
    """It does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    """What was checked, in one or two words."""
    state: State
    message: str
    """One line, without secrets."""
    advice: str = ""
    """What to do. Empty if there is nothing to do."""


Findings = Iterator[Finding]


def ok(name: str, message: str) -> Finding:
    return Finding(name, State.OK, message)


def warning(name: str, message: str, advice: str) -> Finding:
    return Finding(name, State.WARNING, message, advice)


def problem(name: str, message: str, advice: str) -> Finding:
    return Finding(name, State.PROBLEM, message, advice)
