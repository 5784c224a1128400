"""Checks that each source can be read completely, and compares its records with those in force.

Also warns of sources that are no longer configured.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.access.refresh.guard import Guard
from app.access.source_states import SourceState
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


@dataclass(slots=True)
class _CheckedRead:
    kinds: Counter[str] = field(default_factory=Counter)
    end: End = _NO_END


def check_sources(
    sources: Sequence[Source], in_force: Mapping[str, SourceState], guard: GuardSettings, clock: Clock
) -> Findings:
    """Reads all sources in parallel. ``in_force``: the records of each source. ``guard``: the default guard."""
    guards = guards_of(sources, guard)
    reads = [_CheckedRead() for _ in sources]
    with ParallelReads() as parallel:
        for number, source in enumerate(sources):
            if not policy_of(source).only_pushed:
                parallel.begin(number, source)
        for number, steps in parallel.steps():
            for step in steps:
                if isinstance(step, Found):
                    reads[number].kinds[step.record.kind] += 1
                elif isinstance(step, End):
                    reads[number].end = step
                elif isinstance(step, Remark) and step.server_away:
                    message = _about(sources[number].name, printable(step.reason, limit=300))
                    advice = "start it, or remove it from url; another server was read instead"
                    yield warning("directory", message, advice)
    for source, read in zip(sources, reads, strict=True):
        if policy_of(source).only_pushed:
            yield _pushed(source.name, in_force.get(source.name))
        elif read.end.verdict is Verdict.COMPLETE:
            yield _complete(source.name, read, in_force, guards[source.name], clock)
        else:
            yield _incomplete(source.name, read)
    for retained in check_retained([source.name for source in sources], in_force):
        yield warning("directory", _about(retained.source, retained.message), retained.advice)


def _about(source: str, message: str) -> str:
    return f"{printable(source, limit=80)}: {message}"


def _pushed(source: str, state: SourceState | None) -> Finding:
    if state is None or state.last_good_at is None:
        advice = "let the application send everything: PUT /directory/NAME, as OPERATING.md shows"
        return warning("directory", _about(source, "it has never received a push"), advice)
    return ok("directory", _about(source, f"{counted(state.records, 'record')}, pushed to it"))


def _complete(
    source: str, read: _CheckedRead, in_force: Mapping[str, SourceState], guard: Guard, clock: Clock
) -> Finding:
    state = in_force.get(source)
    if read.end.known_empty and (state is None or not state.records):
        advice = "set up its provisioning: app/directory/connectors/scim/README.md"
        return warning("directory", _about(source, "it has never received a push"), advice)
    if (suspicion := check_read(source, read.kinds, in_force, guard)) is not None:
        severity = problem if suspicion.is_refused else warning
        return severity("directory", _about(source, suspicion.message), suspicion.advice)
    age = "" if state is None else f"; {state.in_words(epoch_ms(clock()))}"
    return ok("directory", _about(source, f"{counted(read.kinds.total(), 'record')}{age}"))


def _incomplete(source: str, read: _CheckedRead) -> Finding:
    # The reasons of file sources may begin with the name.
    reason = printable(read.end.reason, limit=300).removeprefix(_about(source, ""))
    if read.end.verdict is Verdict.FAILED:
        advice = "fix it; until then its last good records stay in force, and none of them is deleted"
        return problem("directory", _about(source, f"cannot be read: {reason}"), advice)
    advice = "usher directory check shows the locations; unreadable records are not treated as removed"
    message = f"was read partially: {counted(read.kinds.total(), 'record')}, but {reason}"
    return warning("directory", _about(source, message), advice)
