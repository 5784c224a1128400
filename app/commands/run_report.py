"""The report of a run in words: its items page by page, its findings as sentences, its summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from app.screen import coloured, note, say
from app.text import printable

if TYPE_CHECKING:
    from app.bootstrap.application import Application
    from app.plan.listing import PlannedChange
    from app.runs.run import Run

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
    # Sources were told while they were read; unknown ids are the line that the command ends with.
    for line in report_lines({topic: run.report[topic] for topic in run.report if topic not in _TOLD_ELSEWHERE}):
        note(line)


def report_lines(report: Any) -> Iterator[str]:
    """A run's report as sentences; its shape is the engine's, so lists and mappings are taken as they come."""
    from app.plan.unknown import unknown_sentence
    from app.runs.reading import source_sentence

    for topic, value in report.items():
        if topic == "sources":
            yield from (source_sentence(one["name"], one["verdict"], one["reason"]) for one in value)
        elif topic == "losses":
            yield from value
        elif topic == "unknown":
            yield unknown_sentence(report) or ""
        elif topic == "held":
            yield from (_hold_sentence(hold) for hold in value)
        elif topic == "verify":
            yield from _verify_lines(value)
        elif isinstance(value, list):
            for entry in value:
                yield f"{_TITLES.get(topic, topic)}: {_flat(entry)}"
        elif value is True:
            yield _TITLES.get(topic, topic)
        elif value not in (None, "", {}, 0, False):
            yield f"{_TITLES.get(topic, topic)}: {_flat(value)}"


_TITLES = {
    "interruptedCalls": "calls that an earlier run left unanswered",
    "leftBehind": "left behind in the backend",
    "problemCounts": "wrong in the directory",
    "problems": "wrong in the directory",
    "rolesAndAccessTypesUnsupported": "roles and access types are left out: this backend does not take them",
    "unsupported": "items that this backend does not support, by operation",
    "unsupportedOperations": "operations that this backend does not have",
}
_NAMED = 10
"""So many of what a verify names are shown."""


def _hold_sentence(hold: Any) -> str:
    where = f" of {hold['organizationId']}" if hold.get("organizationId") else ""
    return f"held back: {hold.get('deletes')} deletes of {hold.get('kind')}{where}: {hold.get('reason')}"


def _verify_lines(found: Any) -> Iterator[str]:
    """What a look at the backend found, a line for each sort of thing."""
    yield f"verify: {found.get('seen', 0):,} items seen in the backend"
    for key, words in (
        ("missing", "of ours not there any more"),
        ("changed", "of ours changed there"),
        ("adopted", "there already and wanted: ours now"),
        ("undeleted", "there although the backend had said that they are deleted"),
    ):
        if found.get(key):
            yield f"verify: {found[key]:,} {words}"
    foreign = found.get("foreign") or {}
    if foreign:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in foreign.items())
        yield f"verify: {sum(foreign.values()):,} of somebody else's, which are left alone ({kinds})"
        named = found.get("foreignNamed") or []
        for name in named[:_NAMED]:
            yield f"verify:   {name}"
        if sum(foreign.values()) > len(named[:_NAMED]):
            yield f"verify:   … and {sum(foreign.values()) - len(named[:_NAMED]):,} more"
    if found.get("notRead"):
        yield f"verify: the backend does not tell about {', '.join(found['notRead'])}"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(inner)}" for key, inner in value.items() if inner not in (None, "", [], {}))
    if isinstance(value, list):
        return ", ".join(_flat(inner) for inner in value)
    return str(value)


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
    kept_back = {"held": "held back by the limits", "discarded": "left alone, as was decided"}
    later = ", ".join(
        f"{run.total(outcome)} {kept_back.get(outcome, outcome)}"
        for outcome in ("held", "discarded", "waiting", "parked", "skipped")
        if run.total(outcome)
    )
    return f"{now or 'nothing to do now'}; {later}" if later else now or "nothing to do"


def show_summary(run: Run) -> None:
    """How a run ended, in one or two lines."""
    from app.runs.run import RunStatus

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
