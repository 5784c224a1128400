"""The report of a run as sentences, for whoever shows one."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from app.directory.source import Verdict
from app.foundation.text import enumerated
from app.sync.plan.unknown import unknown_sentence
from app.sync.runs.refresh import source_sentence


def report_lines(report: Any) -> Iterator[str]:
    """A run's report as sentences; its shape is the engine's, so lists and mappings are taken as they come."""
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


def incomplete_sentence(verdicts: Mapping[str, str], retained: Collection[str], sources: int) -> str | None:
    """Which sources were not read completely, and what is in force of them; None: all of them were.

    ``verdicts``: name → verdict of those that were read. ``retained``: those that are no longer configured.
    ``sources``: how many are configured.
    """
    failed = [name for name, verdict in verdicts.items() if verdict == Verdict.FAILED.value]
    if failed and len(failed) >= sources:
        parts = ["no source could be read"]
        if not retained:
            return f"not complete: {parts[0]}; the last good data stays in force"
    else:
        how = {Verdict.FAILED.value: "could not be read", Verdict.PARTIAL.value: "was read in part"}
        parts = [f"source {name} {how[verdict]}" for name, verdict in verdicts.items() if verdict in how]
    parts += [f"source {name} is no longer configured" for name in retained]
    if not parts:
        return None
    whose = "its" if len(parts) == 1 else "their"
    return f"not complete: {enumerated(parts)}; {whose} last good data stays in force"


def incomplete_run(report: Any, sources: int) -> str | None:
    """The same of a run's report."""
    verdicts = {one["name"]: one["verdict"] for one in report.get("sources", ())}
    return incomplete_sentence(verdicts, report.get("retainedSources", ()), sources)


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
    where = f" in {hold['organizationId']}" if hold.get("organizationId") else ""
    return f"held back{where}: {hold.get('reason')}"


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
