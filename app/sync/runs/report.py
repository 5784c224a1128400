"""Renders the report of a run as sentences."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.directory.source import Verdict
from app.foundation.text import counted, enumerated
from app.sync.runs.directory_reads import source_sentence

if TYPE_CHECKING:  # usher directory refresh needs no tables of runs
    from app.sync.runs.run import RunReport, UnknownIds

_EFFECTS = {"lose": "lost", "gain": "gained", "change": "with another role"}
_TITLES = {
    "contentsNotRead": "the contents of folders and groups to delete were not read; a sync may hold these deletes",
    "interruptedCalls": "calls without an answer in an earlier run",
    "leftBehind": "left behind in the backend",
    "planOfChangesDiffers": "an error of the program: a plan of changes differs from one of everything, which is used",
    "problemCounts": "problems of the directory, by sort",
    "problems": "first problems of the directory",
    "rolesAndAccessTypesUnsupported": "roles and access types are not sent, because the backend does not support them",
    "unsupported": "items that this backend does not support, by operation",
    "unsupportedOperations": "operations that this backend does not have",
}
_FINDINGS = (
    ("missing", "is missing in the backend", "are missing in the backend"),
    ("changed", "was changed there", "were changed there"),
    ("adopted", "exists already and was added to the ledger", "exist already and were added to the ledger"),
    (
        "undeleted",
        "still exists, although the backend had reported it as deleted",
        "still exist, although the backend had reported them as deleted",
    ),
)
"""The number in the findings of a verify, and the words about one item and about several."""
_MAX_NAMES = 10
"""The maximum of foreign items that are named."""


def report_lines(report: "RunReport", *, without: Collection[str] = ()) -> Iterator[str]:
    """The sentences of a run's report, ``without`` some topics. Topics of later versions are shown as they are."""
    for topic, value in report.items():
        if topic in without:
            continue
        if topic in _RENDERERS:
            yield from _RENDERERS[topic](value)
        else:
            yield from _plain_lines(_TITLES.get(topic, topic), value)


def _plain_lines(title: str, value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (f"{title}: {_flat(entry)}" for entry in value)
    elif value is True:
        yield title
    elif value not in (None, "", {}, 0, False):
        yield f"{title}: {_flat(value)}"


def incomplete_sentence(verdicts: Mapping[str, str], retained: Collection[str], sources: int) -> str | None:
    """The sentence about sources that were not read completely. None if all were.

    ``verdicts``: name → verdict. ``retained``: sources that are no longer configured. ``sources``: the number of
    configured sources.
    """
    failed = [name for name, verdict in verdicts.items() if verdict == Verdict.FAILED.value]
    if failed and len(failed) >= sources:
        parts = ["no source could be read"]
        if not retained:
            return f"not complete: {parts[0]}; the last good data stays in force"
    else:
        parts = [
            source_sentence(name, verdict)
            for name, verdict in verdicts.items()
            if verdict in {Verdict.FAILED, Verdict.PARTIAL}
        ]
    parts += [f"source {name} is no longer configured" for name in retained]
    if not parts:
        return None
    return f"not complete: {enumerated(parts)}; records that were not read are not removed"


def incomplete_run(report: "RunReport", sources: int) -> str | None:
    """The sentence about sources that a run did not read completely. None if it read all."""
    verdicts = {read["name"]: read["verdict"] for read in report.get("sources", ())}
    return incomplete_sentence(verdicts, report.get("retainedSources", ()), sources)


def unknown_sentence(report: "RunReport") -> str | None:
    """The sentence about unknown ids in a run's report. None if it has none."""
    return _unknown_sentence(report["unknown"]) if "unknown" in report else None


def _unknown_sentence(unknown: "UnknownIds") -> str:
    ids = [f"organization {organization_id}" for organization_id in unknown["organizationIds"]]
    ids += [f"user {user_id}" for user_id in unknown["userIds"]]
    further = unknown["count"] - len(ids)
    return f"in neither the directory nor the ledger: {', '.join(ids)}{f' and {further} more' if further else ''}"


def impact_sentence(impact: Mapping[str, Any]) -> str:
    """The sentence about the access impact of a dry run: the numbers of pairs of user and resource."""
    if "notCompared" in impact:
        return f"access impact: not compared, because {impact['notCompared']}"
    parts = [f"{impact[effect]:,} {words}" for effect, words in _EFFECTS.items() if impact.get(effect)]
    return f"access impact: {', '.join(parts) or 'none'}"


def _hold_sentence(hold: Mapping[str, object]) -> str:
    where = f" in {hold['organizationId']}" if hold.get("organizationId") else ""
    return f"held back{where}: {hold.get('reason')}"


def _verify_lines(findings: Mapping[str, Any]) -> Iterator[str]:
    """The findings of a verify, one line each."""
    yield f"verify: {findings.get('seen', 0):,} items in the backend"
    for key, one, several in _FINDINGS:
        if number := findings.get(key):
            yield f"verify: {counted(number, 'item')} {one if number == 1 else several}"
    foreign = findings.get("foreign") or {}
    if foreign:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in foreign.items())
        number = sum(foreign.values())
        names: Sequence[str] = (findings.get("foreignNamed") or [])[:_MAX_NAMES]
        yield f"verify: {number:,} foreign, left alone ({kinds})"
        yield from (f"verify:   {name}" for name in names)
        if number > len(names):
            yield f"verify:   … and {number - len(names):,} more"
    if findings.get("notRead"):
        yield f"verify: the backend does not return {', '.join(findings['notRead'])}"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(inner)}" for key, inner in value.items() if inner not in (None, "", [], {}))
    if isinstance(value, list):
        return ", ".join(_flat(inner) for inner in value)
    return str(value)


_RENDERERS: Mapping[str, Callable[[Any], Iterable[str]]] = {
    "sources": lambda sources: (source_sentence(read["name"], read["verdict"], read["reason"]) for read in sources),
    "losses": iter,
    "unknown": lambda unknown: [_unknown_sentence(unknown)],
    "impact": lambda impact: [impact_sentence(impact)] if any(map(impact.get, (*_EFFECTS, "notCompared"))) else [],
    "held": lambda holds: map(_hold_sentence, holds),
    "verify": _verify_lines,
}
"""Topic → its lines. All other topics are shown by ``_plain_lines``."""
