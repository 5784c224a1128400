"""Prints a run: its unfinished items, its report, and its summary."""

from collections.abc import Callable, Collection, Iterator

from app.commands.bootstrap.application import Application
from app.commands.changes import show_changes
from app.commands.screen import coloured, print_note, print_result
from app.foundation.text import counted, printable
from app.sync.plan.listing import PlannedChange
from app.sync.runs.report import incomplete_run, report_lines
from app.sync.runs.run import Run, RunStatus

PAGE = 1000
"""Items that are loaded at once."""

_OUTCOMES = ("done", "failed", "held", "discarded", "parked", "waiting", "skipped", "cancelled")
"""The outcomes of items, in the order in which they are printed."""

_SHOWN_ELSEWHERE = frozenset({"sources", "losses", "retainedSources", "unknown", "retried"})
"""Topics of a report that are printed during the read, or as the last line of the command."""


def changes_of(parts: Application, run_id: str, status: str | None = None) -> Iterator[PlannedChange]:
    """The items of a run's plan in order, loaded page by page."""
    after = None
    while page := parts.runs.changes(run_id, status=status, after=after, limit=PAGE):
        yield from page
        after = page[-1].ordinal


def show_unfinished(parts: Application, run: Run) -> None:
    for status in ("failed", "parked", "held", "skipped", "waiting"):
        if run.total(status):
            show_changes(changes_of(parts, run.run_id, status), run.total(status))


def show_report(run: Run, *, without: Collection[str] = ()) -> None:
    """Prints the report, ``without`` topics that are printed elsewhere."""
    for line in report_lines(run.report, without={*_SHOWN_ELSEWHERE, *without}):
        print_note(line)


def show_incomplete(run: Run, sources: int, *, to_stderr: bool) -> bool:
    """Prints which sources were not read completely. Returns whether there were any."""
    sentence = incomplete_run(run.report, sources)
    if sentence is not None:
        (print_note if to_stderr else print_result)(printable(sentence))
    return sentence is not None


def show_plan_summary(run: Run) -> None:
    print_result(plan_in_words(run, coloured))
    if run.plan_id:
        print_result(f"plan {printable(run.plan_id)}")


def plan_in_words(run: Run, paint: Callable[[str, str], str] = lambda number, _: number) -> str:
    """The numbers of operations that a plan would send now, and of those that wait. ``paint`` colours a number."""
    to_send = run.pending()
    now = ", ".join(
        f"{paint(str(to_send[action]), action)} to {action}"
        for action in ("add", "update", "delete")
        if action in to_send
    )
    later = ", ".join(_kept_back(outcome, run.total(outcome)) for outcome in _KEPT_BACK if run.total(outcome))
    return "; ".join(part for part in (now or "nothing to do", later) if part)


_KEPT_BACK = {
    "held": ("delete", "is held", "are held"),
    "discarded": ("delete", "was discarded earlier", "were discarded earlier"),
    "waiting": ("item", "waits", "wait"),
    "parked": ("item", "is parked", "are parked"),
    "skipped": ("item", "is skipped", "are skipped"),
}
"""outcome → noun, verb in the singular and in the plural."""


def _kept_back(outcome: str, number: int) -> str:
    noun, singular, plural = _KEPT_BACK[outcome]
    return f"{counted(number, noun)} {singular if number == 1 else plural}"


def outcomes_in_words(run: Run) -> str:
    """The number of items with each outcome. Empty if the run has no items."""
    return ", ".join(f"{run.total(outcome)} {outcome}" for outcome in _OUTCOMES if run.total(outcome))


def show_summary(run: Run) -> None:
    """Prints how a run ended, and what the operator can do next."""
    if run.dry_run and run.status is RunStatus.DONE:
        print_result(f"planned only: {plan_in_words(run, coloured)}")
        print_result(f"run {run.run_id}")
        if run.plan_id and run.pending():
            print_result(f"usher sync --plan {printable(run.plan_id)} applies it, until it becomes outdated")
        return
    status = coloured(run.status.value, run.status.value)
    print_result(f"{status}: {outcomes_in_words(run) or 'nothing to do'} ({counted(run.calls, 'call')})")
    print_result(f"run {run.run_id}")
    if run.status is RunStatus.HELD:
        until = f" until {run.held_until:%Y-%m-%d %H:%M} UTC" if run.held_until else ""
        print_result(f"held deletes wait{until}: usher approve {run.run_id}, or usher discard {run.run_id}")
    elif run.held_at is not None and run.decided:
        print_result(f"held on {run.held_at:%Y-%m-%d %H:%M} UTC, {printable(run.decided)}")
    elif run.decided:
        print_result(printable(run.decided))
    if run.continued_by:
        print_result(f"continued by run {run.continued_by}")
    if run.error:
        print_note(f"error: {run.error}")
