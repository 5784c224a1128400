"""The report of a run in words: its items page by page, its findings as sentences, its summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.commands.screen import coloured, note, say
from app.foundation.text import counted, printable

if TYPE_CHECKING:
    from app.commands.bootstrap.application import Application
    from app.sync.plan.listing import PlannedChange
    from app.sync.runs.run import Run

PAGE = 1000

_TOLD_ELSEWHERE = frozenset({"sources", "losses", "retainedSources", "unknown", "retried"})


def changes_of(parts: Application, run_id: str, status: str | None = None) -> Iterator[PlannedChange]:
    """The items of a run's plan, page by page, in order."""
    after = None
    while page := parts.runs.changes(run_id, status=status, after=after, limit=PAGE):
        yield from page
        after = page[-1].ordinal


def show_unfinished(parts: Application, run: Run) -> None:
    from app.commands.changes import show_changes

    for status in ("failed", "parked", "held", "skipped", "waiting"):
        if run.total(status):
            show_changes(changes_of(parts, run.run_id, status), run.total(status))


def show_report(run: Run) -> None:
    from app.sync.runs.report import report_lines

    # Sources were told while they were read; unknown ids are the line that the command ends with.
    for line in report_lines({topic: run.report[topic] for topic in run.report if topic not in _TOLD_ELSEWHERE}):
        note(line)


def show_incomplete(run: Run, sources: int, *, beside: bool) -> bool:
    """Prints which sources were not read completely, as the last line, and returns whether any was not.

    ``beside``: on standard error, beside a result for programs.
    """
    from app.sync.runs.report import incomplete_run

    sentence = incomplete_run(run.report, sources)
    if sentence is not None:
        (note if beside else say)(printable(sentence))
    return sentence is not None


def show_plan_summary(run: Run) -> None:
    say(planned_in_words(run, coloured))
    if run.plan_id:
        say(f"plan {printable(run.plan_id)}")


def planned_in_words(run: Run, painted: Callable[[str, str], str]) -> str:
    """What a plan would do now and what it keeps back; ``painted`` colours a number by what it is of."""
    to_send = run.still_to_send()
    now = ", ".join(
        f"{painted(str(to_send[action]), action)} to {action}"
        for action in ("add", "update", "delete")
        if action in to_send
    )
    later = ", ".join(_kept_back(outcome, run.total(outcome)) for outcome in _KEPT_BACK if run.total(outcome))
    return "; ".join(part for part in (now or "nothing to do", later) if part)


_KEPT_BACK = {
    "held": ("delete", "is held back by the limits", "are held back by the limits"),
    "discarded": ("delete", "was discarded earlier", "were discarded earlier"),
    "waiting": ("item", "waits", "wait"),
    "parked": ("item", "is parked", "are parked"),
    "skipped": ("item", "is skipped", "are skipped"),
}


def _kept_back(outcome: str, number: int) -> str:
    noun, one, many = _KEPT_BACK[outcome]
    return f"{counted(number, noun)} {one if number == 1 else many}"


def show_summary(run: Run) -> None:
    """How a run ended, in one or two lines."""
    from app.sync.runs.run import RunStatus

    if run.dry_run and run.status is RunStatus.DONE:
        say(f"planned only: {planned_in_words(run, coloured)}")
        say(f"run {run.run_id}")
        if run.plan_id and run.still_to_send():
            say(f"usher sync --plan {printable(run.plan_id)} applies it, while nothing else has moved on")
        return
    outcomes = ("done", "failed", "held", "discarded", "parked", "waiting", "skipped", "cancelled")
    words = [f"{run.total(outcome)} {outcome}" for outcome in outcomes if run.total(outcome)]
    say(
        f"{coloured(run.status.value, run.status.value)}: {', '.join(words) or 'nothing to do'}"
        f" ({run.calls} {'call' if run.calls == 1 else 'calls'})"
    )
    say(f"run {run.run_id}")
    if run.status is RunStatus.HELD:
        until = f" until {run.held_until:%Y-%m-%d %H:%M} UTC" if run.held_until else ""
        say(f"held deletes wait{until}: usher approve {run.run_id}, or usher discard {run.run_id}")
    elif run.held_at is not None and run.decided:
        say(f"held on {run.held_at:%Y-%m-%d %H:%M} UTC, {printable(run.decided)}")
    elif run.decided:
        say(printable(run.decided))
    if run.continued_by:
        say(f"continued by run {run.continued_by}")
    if run.error:
        print(f"error: {printable(run.error)}", file=sys.stderr)  # noqa: T201 - beside the result
