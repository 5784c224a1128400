"""The reading of the directory into the access model, and its check, which touches nothing.

``refresh`` is the first step of every run and a command of its own: it reads every source, and decisions follow at
once. ``check`` does the same to a database of its own that goes away with it.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine

from app.access.candidate import DatabaseState
from app.access.contents import SourceState, export_records, model_counts, source_states
from app.access.pending import CoveredByRun
from app.access.problems import PROBLEMS_KEPT, Problem, ProblemGroup, ProblemList
from app.access.refresh.guard import Guard, losses_in_words
from app.access.refresh.pushes import confirm_pushed
from app.access.refresh.refresh import Refresh, RefreshResult, Witness
from app.access.refresh.revision import ModelChange
from app.access.refresh.sources import Losses, SourceError, StagedRead
from app.access.refresh.tables import ChangeCounts
from app.access.stored_problems import COUNT_EVERY_MS, count_problems
from app.directory.casting import object_from_record
from app.directory.settings import GuardSettings
from app.directory.source import Source, Verdict
from app.foundation.clock import Clock, from_epoch_ms, utc_text
from app.foundation.database.engine import open_engine, reading
from app.foundation.database.tables import METADATA
from app.foundation.text import quoted
from app.sync.plan.selection import Selection
from app.sync.runs.record_checks import Examined, odd_pairs
from app.sync.runs.source_reads import GatheredRead, Gathering, ReadingProgress, policy_of


class UnknownSourceError(ValueError):
    """A source was named that is not there, or not as is needed; the text names those that are."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """How one source was read."""

    name: str
    verdict: Verdict
    """The verdict that counted: an empty source that nobody confirmed is failed."""
    reason: str
    """Why it is not complete; empty otherwise."""
    records: int
    """How many records it gave."""
    malformed: int
    """How many more could not be understood."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """kind → how many records of it it gave, for kinds of which it gave any."""
    seconds: float = 0
    """How long that took."""
    answered: str = ""
    """``changes`` or ``part``, where it was not about everything."""
    gone: int = 0
    """How many objects were told to be gone."""
    losses: Losses = field(default_factory=dict)
    """What it takes away of what is in force of it, or would, were it not refused."""
    guard: Guard = field(default_factory=Guard)
    """How much it may take away at once."""
    refused: str = ""
    """Why what it would take away waits for somebody to confirm it; empty: it does not."""


def losses_sentences(sources: Sequence[SourceReport], verb: str = "takes away") -> list[str]:
    """What sources take away, for people; of one that was refused that is the reason, and told as such."""
    return [
        f"source {one.name} {verb} {losses_in_words(one.losses)}; {refused_would_be(one.guard)}"
        for one in sources
        if one.losses and not one.refused and one.verdict is not Verdict.FAILED
    ]


def refused_would_be(guard: Guard) -> str:
    """The bounds of a guard, for people."""
    return f"a read is refused above {guard.count:,} records and {guard.percent:g} percent"


def source_sentence(name: str, verdict: str, reason: str) -> str:
    """How a source was read that was not read well, for people."""
    how = "could not be read" if verdict == Verdict.FAILED else "was read in part"
    # A file's reasons begin with its path, which is its name unless it was given one.
    why = reason.removeprefix(f"{name}: ")
    return f"source {name} {how}{f': {why}' if why else ''}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What is wrong with the directory."""

    sources: tuple[SourceReport, ...]
    counts: Mapping[str, int]
    """kind → how many records would count, from these sources alone."""
    problems: tuple[Problem, ...]
    """The first hundred, and of those that say the same the first three."""
    problem_groups: tuple[ProblemGroup, ...]
    """The same, those that say the same together."""
    problem_count: int
    problem_counts: Mapping[str, int]
    """Sort of problem → how many."""


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh came to."""

    revision: int
    """The revision in force now; 0 when no source could ever be read."""
    changed: bool
    """Whether the access model was changed."""
    changes: Mapping[str, ChangeCounts]
    """kind → records added, updated, removed; every kind is there."""
    sources: tuple[SourceReport, ...]
    retained_sources: tuple[str, ...]
    """Sources that are no longer configured; their records count until ``forget``."""
    problems: tuple[Problem, ...]
    """The first hundred, and of those that say the same the first three."""
    problem_groups: tuple[ProblemGroup, ...]
    """The same, those that say the same together."""
    problem_count: int
    problem_counts: Mapping[str, int]
    """Sort of problem → how many."""
    seconds: float
    rests_on: DatabaseState | None = None
    """Of a candidate: what the database must still be for it to be whole; None: whatever becomes of that."""


def refresh(
    engine: Engine,
    sources: Sequence[Source],
    *,
    clock: Clock,
    guard: GuardSettings | None = None,
    accept_empty: Collection[str] = (),
    accept_shrink: Collection[str] = (),
    asked: Selection | None = None,
    only: Collection[str] | None = None,
    anew: Collection[str] = (),
    note_touched: bool = False,
    progress: ReadingProgress | None = None,
    on_candidate: bool = False,
    is_planned_from: bool = False,
    problems: ProblemList | None = None,
    witness: Witness | None = None,
) -> RefreshReport:
    """Reads every source into the access model, or ``on_candidate`` into that of a candidate
    (``app.access.candidate``), from which a plan is made afterwards where it ``is_planned_from``.

    The sources are read side by side; one that hangs or fails does not stop the others, and its last good records stay
    in force. Those that hold what is pushed to them stay as they are, and are not in the report. ``guard`` says how
    much may go at once (None: the default), where a source has none of its own. ``accept_empty`` names sources that
    are meant to be empty now, ``accept_shrink`` those that are meant to give less than the guard lets go. ``asked``:
    somebody wants to know about these organizations and users at once, and each source is asked for no more, if it can
    be. ``only``: the names of the sources that are read; the others stay as they are. ``anew`` names those
    that are asked for everything although they could tell what changed. ``note_touched``: no run follows
    by itself; what changes is noted for one, and so is what changes besides what is ``asked`` for. ``witness`` writes
    down who did it, with what that changed. Raises ``UnknownSourceError`` for a name that is not among the sources.
    """
    guard = guard or GuardSettings()
    _require_sources(sources, (*accept_empty, *accept_shrink), anew)
    guards = guards_of(sources, guard)
    began = clock()
    problems = ProblemList() if problems is None else problems
    with Refresh(
        engine,
        clock=clock,
        problems=problems,
        on_candidate=on_candidate,
        is_planned_from=is_planned_from,
        store_pending=note_touched or asked is not None,
        covered=None if asked is None else CoveredByRun(asked.organization_ids, asked.user_ids),
        witness=witness,
    ) as refreshing:
        pushed = {source.name for source in sources if policy_of(source).only_pushed}
        names = [source.name for source in sources]
        read_now = {name for name in names if name not in pushed and (only is None or name in only)}
        refreshing.begin(
            names,
            guard=guard_from_settings(guard),
            guards={source.name: guard_from_settings(own) for source in sources if (own := policy_of(source).guard)},
            only=read_now,
        )
        reads = Gathering(refreshing, clock, progress, asked, anew).read(
            {position: source for position, source in enumerate(sources) if source.name in read_now}
        )
        for read in reads:
            problems.add_all(read.problems)
        outcome = refreshing.finish(accept_empty, accept_shrink)
        is_complete = any(not read.answered for read in outcome.reads)
        problems.add_found(refreshing.staged_problems(cycles=is_complete))
    if not on_candidate and asked is None:
        count_problems(engine, clock, every_ms=0 if is_complete else COUNT_EVERY_MS)
    if pushed and not on_candidate:
        confirm_pushed(engine, pushed, clock=clock)
    return _report_of(outcome, reads, guards, problems, seconds=(clock() - began).total_seconds())


def _require_sources(sources: Sequence[Source], accepted: Collection[str], anew: Collection[str]) -> None:
    """Raises ``UnknownSourceError`` for a name that is not among the sources, or of one that cannot be read anew."""
    names = [source.name for source in sources]
    unknown = [name for name in (*accepted, *anew) if name not in names]
    if unknown:
        raise UnknownSourceError(f"no source is called {quoted(unknown[0])}; there are: {', '.join(names) or 'none'}")
    for source in sources:
        if source.name in anew and policy_of(source).only_pushed:
            raise UnknownSourceError(f"source {source.name} is not read: what was pushed to it stays in force")


def _report_of(
    outcome: RefreshResult,
    reads: Sequence[GatheredRead],
    guards: Mapping[str, Guard],
    problems: ProblemList,
    seconds: float,
) -> RefreshReport:
    return RefreshReport(
        revision=outcome.change.revision,
        changed=outcome.change.changed,
        changes=outcome.change.changes,
        sources=tuple(_reported(staged, read, guards) for staged, read in zip(outcome.reads, reads, strict=True)),
        retained_sources=outcome.retained,
        problems=problems.kept,
        problem_groups=problems.groups,
        problem_count=problems.total,
        problem_counts=problems.counts,
        seconds=seconds,
        rests_on=outcome.depends_on,
    )


def _reported(staged: StagedRead, read: GatheredRead, guards: Mapping[str, Guard]) -> SourceReport:
    return SourceReport(
        name=staged.name,
        verdict=Verdict(staged.verdict),
        reason=staged.reason,
        records=staged.records,
        malformed=staged.malformed,
        kinds=dict(read.kinds),
        seconds=staged.seconds,
        answered=staged.answered,
        gone=read.gone,
        losses=staged.losses,
        guard=guards[staged.name],
        refused=staged.refused,
    )


def guard_from_settings(settings: GuardSettings) -> Guard:
    """The guard that settings ask for."""
    return Guard(count=settings.count, percent=settings.percent)


def guards_of(sources: Sequence[Source], guard: GuardSettings) -> dict[str, Guard]:
    """Source → the guard that it goes by: its own, or the one of all."""
    return {source.name: guard_from_settings(policy_of(source).guard or guard) for source in sources}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was taken away of a source that is read no more."""

    records: Mapping[str, int]
    """kind → how many records were kept of it, for kinds of which there were any."""
    replaced: ModelChange
    """What that changed: records that other sources give as well are still there."""


def forget(
    engine: Engine,
    name: str,
    sources: Sequence[Source],
    *,
    clock: Clock,
    witness_of: Callable[[Mapping[str, int]], Witness] | None = None,
) -> Forgotten:
    """Takes away what a source gave that is no longer configured, and says what that changed. ``witness_of``: who
    writes down, with what that changes, that so many records (kind → number) of it were forgotten.

    Raises ``UnknownSourceError`` for one of ``sources``, and for a name of which nothing is in force.
    """
    if any(source.name == name for source in sources):
        raise UnknownSourceError(f"the source {name!r} is configured: take it out of directory.sources first")
    with reading(engine) as connection:
        kept = {state.name: state.kinds for state in source_states(connection, by_kind=True)}
    records = kept.get(name, {})
    witness = None if witness_of is None else witness_of(records)
    with Refresh(engine, clock=clock, problems=ProblemList(), witness=witness) as refreshing:
        try:
            return Forgotten(records=records, replaced=refreshing.forget(name))
        except SourceError as error:
            raise UnknownSourceError(str(error)) from error


def check(sources: Sequence[Source], *, clock: Clock, progress: ReadingProgress | None = None) -> CheckReport:
    """Reads every source and says what is wrong, from these sources alone; changes nothing. What was pushed is not
    looked at: it is in force, and no source can be asked for it."""
    sources = [source for source in sources if not policy_of(source).only_pushed]
    with tempfile.TemporaryDirectory(prefix="usher-check-") as folder:
        engine = open_engine(f"sqlite:///{Path(folder) / 'check.db'}")
        try:
            METADATA.create_all(engine)
            problems = ProblemList()
            report = refresh(engine, list(map(Examined, sources)), clock=clock, progress=progress, problems=problems)
            with reading(engine) as connection:
                counts = model_counts(connection)
                for problem in odd_pairs(connection, PROBLEMS_KEPT):
                    problems.add(problem)
        finally:
            engine.dispose()
    return CheckReport(
        sources=report.sources,
        counts=counts,
        problems=problems.kept,
        problem_groups=problems.groups,
        problem_count=problems.total,
        problem_counts=problems.counts,
    )


def object_from_report(report: RefreshReport | CheckReport) -> dict[str, object]:
    """A report as a JSON object, for ``--json`` and for what a run remembers."""
    fields: dict[str, object] = {
        "sources": [
            {
                "name": source.name,
                "verdict": source.verdict.value,
                "reason": source.reason,
                "records": source.records,
                "malformed": source.malformed,
                "seconds": round(source.seconds, 3),
                "answered": source.answered or "everything",
                "refused": source.refused,
                "losses": objects_from_losses(source.losses),
                "guard": {"count": source.guard.count, "percent": source.guard.percent},
            }
            for source in report.sources
        ],
        "problemCount": report.problem_count,
        "problemCounts": dict(report.problem_counts),
        "problems": [
            {"sort": problem.sort.value, "source": problem.source, "place": problem.place, "reason": problem.reason}
            for problem in report.problems
        ],
        "problemGroups": [
            {
                "sort": group.sort.value,
                "source": group.source,
                "reason": group.reason,
                "places": list(group.places),
                "count": group.count,
            }
            for group in report.problem_groups
        ],
    }
    if isinstance(report, CheckReport):
        return fields | {"counts": dict(report.counts)}
    return fields | {
        "revision": report.revision,
        "changed": report.changed,
        "changes": {
            kind: {"added": one.added, "updated": one.updated, "removed": one.removed}
            for kind, one in report.changes.items()
            if one.any
        },
        "retainedSources": list(report.retained_sources),
        "seconds": round(report.seconds, 3),
    }


def objects_from_losses(losses: Losses) -> list[dict[str, object]]:
    """What is taken away, as JSON objects; ``kept`` is null where it was not counted."""
    return [{"kind": kind, "gone": gone, "kept": kept} for kind, (gone, kept) in losses.items()]


def object_from_state(state: SourceState) -> dict[str, object]:
    """What is in force of a source as a JSON object; times are ISO 8601."""

    def moment(ms: int | None) -> str | None:
        return None if ms is None else utc_text(from_epoch_ms(ms))

    return {
        "name": state.name,
        "configured": state.is_configured,
        "records": state.records,
        "verdict": state.last_verdict,
        "reason": state.last_reason,
        "answered": state.last_answered or "everything",
        "seconds": state.last_read_seconds,
        "readAt": moment(state.last_read_at),
        "readWellAt": moment(state.last_good_at),
        "readAsAWholeAt": moment(state.last_full_at),
        "tellsChanges": state.tells_changes,
        "refused": state.refused,
        "lastRefusal": state.last_refusal,
        "lastRefusedAt": moment(state.last_refused_at),
    }


def export(engine: Engine) -> Iterator[dict[str, object]]:
    """The access model as JSON objects, one per record, as a ``file`` source reads them back."""
    with reading(engine) as connection:
        yield from map(object_from_record, export_records(connection))
