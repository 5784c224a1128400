"""Checks that each source can be read completely, and compares its records with those in force."""

from collections import Counter
from collections.abc import Mapping, Sequence

from app.access.contents import SourceState
from app.commands.doctor.finding import Finding, Findings, ok, problem, warning
from app.directory.bounded import ParallelReads
from app.directory.source import End, Found, Remark, Source, Verdict
from app.directory.source_settings import GuardSettings
from app.foundation.clock import Clock, epoch_ms
from app.foundation.text import counted, printable
from app.sync.runs.directory_reads import guards_of
from app.sync.runs.source_checks import check_read, check_retained
from app.sync.runs.source_reads import policy_of

_NO_END = End(Verdict.FAILED, "the source ended without a verdict")


def check_sources(
    sources: Sequence[Source], known: Mapping[str, SourceState], guard: GuardSettings, clock: Clock
) -> Findings:
    """Reads all sources in parallel, and discards the records.

    ``known``: the records in force of each source. ``guard``: the default guard.
    """
    guards = guards_of(sources, guard)
    reads = [(Counter[str](), _NO_END) for _ in sources]
    with ParallelReads() as parallel:
        for number, source in enumerate(sources):
            if not policy_of(source).only_pushed:
                parallel.begin(number, source)
        for number, steps in parallel.steps():
            kinds, end = reads[number]
            for step in steps:
                if isinstance(step, Remark) and step.server_away:
                    name = printable(sources[number].name, limit=80)
                    advice = "start it, or remove it from url; another server was read instead"
                    yield warning("directory", f"{name}: {printable(step.reason, limit=300)}", advice)
            kinds.update(step.record.kind for step in steps if isinstance(step, Found))
            reads[number] = kinds, next((step for step in steps if isinstance(step, End)), end)
    for source, (kinds, end) in zip(sources, reads, strict=True):
        state = known.get(source.name)
        if policy_of(source).only_pushed:
            yield _check_pushed(source.name, state)
        elif (finding := _check_end(source.name, kinds, end)) is not None:
            yield finding
        elif end.known_empty and (state is None or not state.records):
            advice = "set up its provisioning: app/directory/connectors/scim/README.md"
            yield warning("directory", f"{printable(source.name, limit=80)}: it has never received a push", advice)
        elif (odd := check_read(source.name, kinds, known, guards[source.name])) is not None:
            severity = problem if odd.is_refused else warning
            yield severity("directory", f"{printable(source.name, limit=80)}: {odd.message}", odd.advice)
        else:
            in_force = "" if state is None else f"; {state.in_words(epoch_ms(clock()))}"
            yield ok(
                "directory", f"{printable(source.name, limit=80)}: {counted(sum(kinds.values()), 'record')}{in_force}"
            )
    for odd in check_retained([source.name for source in sources], known):
        yield warning("directory", f"{printable(odd.source, limit=80)}: {odd.message}", odd.advice)


def _check_pushed(source: str, state: SourceState | None) -> Finding:
    name = printable(source, limit=80)
    if state is None or state.last_good_at is None:
        advice = "let the application send everything: PUT /directory/NAME, as OPERATING.md shows"
        return warning("directory", f"{name}: it has never received a push", advice)
    return ok("directory", f"{name}: {counted(state.records, 'record')}, pushed to it")


def _check_end(source: str, kinds: Mapping[str, int], end: End) -> Finding | None:
    """The finding about an incomplete read."""
    name = printable(source, limit=80)
    # The reasons of file sources may begin with the name.
    reason = printable(end.reason, limit=300).removeprefix(f"{name}: ")
    if end.verdict is Verdict.FAILED:
        advice = "fix it; until then its last good records stay in force, and nothing is deleted because of it"
        return problem("directory", f"{name}: {reason}", advice)
    if end.verdict is Verdict.PARTIAL:
        advice = "usher directory check shows the locations; unreadable records are not treated as removed"
        return warning("directory", f"{name}: {counted(sum(kinds.values()), 'record')}, but {reason}", advice)
    return None
