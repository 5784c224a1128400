"""The check of sources: that each is read to its end, gives about what it gave before, and none is missing."""

from collections import Counter
from collections.abc import Mapping, Sequence

from app.access.contents import SourceState
from app.access.refresh.guard import Guard
from app.commands.doctor.finding import Finding, Findings, ok, problem, warning
from app.directory.guarded import SideBySide
from app.directory.settings import GuardSettings
from app.directory.source import SERVER_AWAY, End, Found, Remark, Source, Verdict
from app.foundation.clock import Clock, epoch_ms
from app.foundation.text import counted, printable
from app.sync.runs.refresh import guards_of
from app.sync.runs.source_checks import of_read, of_retained
from app.sync.runs.source_reads import policy_of

_NO_END = End(Verdict.FAILED, "the source ended without a verdict")


def look_at_sources(
    sources: Sequence[Source], kept: Mapping[str, SourceState], guard: GuardSettings, clock: Clock
) -> Findings:
    """Reads each to its end, side by side, into nothing; ``kept`` is what is in force of each, where that is known, and
    ``guard`` the guard of those that have none of their own."""
    guards = guards_of(sources, guard)
    read = [(Counter[str](), _NO_END) for _ in sources]
    with SideBySide() as side_by_side:
        for number, source in enumerate(sources):
            if not policy_of(source).only_pushed:
                side_by_side.begin(number, source)
        for number, steps in side_by_side.steps():
            kinds, end = read[number]
            for step in steps:
                if isinstance(step, Remark) and step.reason.startswith(SERVER_AWAY):
                    name = printable(sources[number].name, limit=80)
                    advice = "start it, or take it out of url; another server was read instead"
                    yield warning("directory", f"{name}: {printable(step.reason, limit=300)}", advice)
            kinds.update(step.record.kind for step in steps if isinstance(step, Found))
            read[number] = kinds, next((step for step in steps if isinstance(step, End)), end)
    for source, (kinds, end) in zip(sources, read, strict=True):
        if policy_of(source).only_pushed:
            yield _pushed(source.name, kept)
        else:
            yield _judged(source.name, kinds, end, kept, guards[source.name], clock)
    for odd in of_retained([source.name for source in sources], kept):
        yield warning("directory", f"{printable(odd.source, limit=80)}: {odd.says}", odd.advice)


def _pushed(source: str, kept: Mapping[str, SourceState]) -> Finding:
    name = printable(source, limit=80)
    state = kept.get(source)
    if state is None or state.last_good_at is None:
        advice = "let the application send all that it has: PUT /directory/NAME, as OPERATING.md shows"
        return warning("directory", f"{name}: nothing was ever pushed to it", advice)
    return ok("directory", f"{name}: {counted(state.records, 'record')}, pushed to it")


def _judged(  # noqa: PLR0917 - what is known of one source
    source: str, kinds: Mapping[str, int], end: End, kept: Mapping[str, SourceState], guard: Guard, clock: Clock
) -> Finding:
    name = printable(source, limit=80)
    records = sum(kinds.values())
    # The reasons of files name them by themselves.
    reason = printable(end.reason, limit=300).removeprefix(f"{name}: ")
    if end.verdict is Verdict.FAILED:
        advice = "mend it; its last good records stay in force meanwhile, and nothing is deleted because of it"
        return problem("directory", f"{name}: {reason}", advice)
    if end.verdict is Verdict.PARTIAL:
        advice = "usher directory check shows the places; what cannot be read is not taken as gone"
        return warning("directory", f"{name}: {counted(records, 'record')}, but {reason}", advice)
    odd = of_read(source, kinds, kept, guard)
    if odd is not None:
        return (problem if odd.is_refused else warning)("directory", f"{name}: {odd.says}", odd.advice)
    state = kept.get(source)
    known = "" if state is None else f"; {state.in_words(epoch_ms(clock()))}"
    return ok("directory", f"{name}: {counted(records, 'record')}{known}")
