"""Can each source of the directory be read to its end, and does it give about what it gave before?"""

from collections.abc import Mapping, Sequence

from app.directory.source import End, Found, Malformed, Source, Verdict
from app.doctor.finding import Finding, Findings, ok, problem, warning
from app.store.access_model import SourceState
from app.text import printable

_HALF_AT_LEAST = 100
"""From so many records on, less than half of them is worth a word."""


def look_at_sources(sources: Sequence[Source], kept: Mapping[str, SourceState]) -> Findings:
    """Reads each to its end, into nothing; ``kept`` is what is in force of each, where that is known."""
    for source in sources:
        state = kept.get(source.name)
        yield _look(source, 0 if state is None else state.records)


def _look(source: Source, kept: int) -> Finding:
    name = printable(source.name, limit=80)
    records = malformed = 0
    end = End(Verdict.FAILED, "the source ended without a verdict")
    for step in source.read():
        if isinstance(step, Found):
            records += 1
        elif isinstance(step, Malformed):
            malformed += 1
        elif isinstance(step, End):
            end = step
    # The reasons of files name them by themselves.
    reason = printable(end.reason, limit=300).removeprefix(f"{name}: ")
    if end.verdict is Verdict.FAILED:
        advice = "mend it; its last good records stay in force meanwhile, and nothing is deleted because of it"
        return problem("directory", f"{name}: {reason}", advice)
    if end.verdict is Verdict.PARTIAL:
        advice = (
            "usher directory check shows the places; until it is whole, nothing that is gone from it counts as gone"
        )
        return warning("directory", f"{name}: {records:,} records, but {reason}", advice)
    if kept and not records:
        advice = f"if that is meant: usher directory refresh --accept-empty '{name}'"
        return problem("directory", f"{name}: is empty, but gave {kept:,} records before", advice)
    if kept >= _HALF_AT_LEAST and records * 2 < kept:
        advice = "see whether it is whole: access ends with the next read, and the deletes are held by the limits"
        return warning("directory", f"{name}: {records:,} records, where {kept:,} are in force", advice)
    return ok("directory", f"{name}: {records:,} records")
