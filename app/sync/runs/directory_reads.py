"""Reads the directory into the access model, checks it without a change, forgets a source, or exports the access model.

``read_directory`` is the first step of every run, and a command: decisions use the result at once. ``check`` reads into
a temporary database.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from sqlalchemy import Connection, Engine

from app.access.candidate import DatabaseState
from app.access.change_counts import ChangeCounts
from app.access.export import export_records, model_counts
from app.access.pending import EVERYTHING, CoveredByRun
from app.access.problem_list import PROBLEMS_KEPT, ProblemList
from app.access.refresh.guard import Guard
from app.access.refresh.losses import losses_in_words
from app.access.refresh.reads import StagedRead
from app.access.refresh.refresh import ChangeHook, Refresh, RefreshResult
from app.access.refresh.sources import SourceError, confirm_pushed
from app.access.revisions import ModelChange
from app.access.source_states import source_states
from app.access.stored_problems import count_problems
from app.directory.casting import object_from_record
from app.directory.source import Source, Verdict
from app.directory.source_settings import GuardSettings
from app.foundation.clock import Clock
from app.foundation.database.engine import open_engine, reading
from app.foundation.database.tables import METADATA
from app.foundation.text import quoted
from app.sync.plan.selection import Selection
from app.sync.runs.record_checks import CheckedSource, similar_records
from app.sync.runs.source_reads import ReadingProgress, SourceRead, SourceReads, policy_of


class UnknownSourceError(ValueError):
    """A source with this name does not exist, or cannot be used in this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport(StagedRead):
    """The read of one source, as the refresh used it: an unexpectedly empty source has failed."""

    verdict: Verdict
    kinds: Mapping[str, int]
    """Kind → number of records, for kinds with records."""
    gone: int
    """The number of objects that were reported as gone."""
    guard: Guard
    """The maximum of losses."""

    @property
    def refused(self) -> str:
        """Why the guard refused it. Empty if it did not."""
        return str(self.refusal or "")


def losses_sentences(sources: Sequence[SourceReport], verb: str = "takes away") -> list[str]:
    """Sentences about the losses of sources that were not refused."""
    return [
        f"source {source.name} {verb} {losses_in_words(source.losses)}; {guard_sentence(source.guard)}"
        for source in sources
        if source.losses and not source.refused and source.verdict is not Verdict.FAILED
    ]


def guard_sentence(guard: Guard) -> str:
    """A sentence about the limits of a guard."""
    return f"a read is refused above {guard.count:,} records and {guard.percent:g} percent"


def source_sentence(name: str, verdict: str, reason: str = "") -> str:
    """A sentence about a source that was not read completely."""
    how = "could not be read" if verdict == Verdict.FAILED else "was read partially"
    # The reasons of a file begin with its path, which is its default name.
    why = reason.removeprefix(f"{name}: ")
    return f"source {name} {how}{f': {why}' if why else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """The reads of sources, and the problems of the directory."""

    sources: tuple[SourceReport, ...]
    problems: ProblemList


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(ReadReport):
    """The result of a check."""

    counts: Mapping[str, int]
    """Kind → number of records of the access model, from these sources alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshReport(ReadReport):
    """The result of a refresh."""

    revision: int
    """The current revision. 0 if no source was ever read."""
    changed: bool
    """Whether the access model was changed."""
    changes: Mapping[str, ChangeCounts]
    """Kind → records added, updated and removed, for all kinds."""
    retained_sources: tuple[str, ...]
    """Sources that are no longer configured. Their records stay in force until ``forget``."""
    seconds: float
    depends_on: DatabaseState | None = None
    """The state of the database that must not change if a candidate was read. None if it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read, by the names of sources, and which losses are accepted. By default everything is read."""

    only: Collection[str] | None = None
    """The sources to read. None means all."""
    full: Collection[str] = ()
    """Sources that are read completely even if they support changes."""
    selection: Selection | None = None
    """Reads only these organizations and users, from sources that support it."""
    store_pending: bool = False
    """Stores changed ids for later runs, because no run follows. With a selection, the other ids are always stored."""
    accept_empty: Collection[str] = ()
    """Sources that may be empty now."""
    accept_shrink: Collection[str] = ()
    """Sources that may lose more than the guard allows."""


def read_directory(
    engine: Engine,
    sources: Sequence[Source],
    options: ReadOptions = ReadOptions(),
    *,
    clock: Clock,
    guard: GuardSettings | None = None,
    progress: ReadingProgress | None = None,
    on_candidate: bool = False,
    is_planned_from: bool = False,
    problems: ProblemList | None = None,
    change_hook: ChangeHook | None = None,
) -> RefreshReport:
    """Reads sources into the access model, or ``on_candidate`` into a candidate (``app.access.candidate``).

    Sources are read concurrently. The last good records of a failed source stay in force. Sources that only receive
    pushes stay as they are, and are not in the report.

    - ``guard``: the maximum of losses for sources without a guard of their own. None for the default.
    - ``is_planned_from``: a plan is made from the candidate.
    - ``change_hook``: is called in the transaction, with the changes.

    Raises ``UnknownSourceError``.
    """
    guard, selection = guard or GuardSettings(), options.selection
    _require_sources(sources, (*options.accept_empty, *options.accept_shrink), options.full)
    guards = guards_of(sources, guard)
    began = clock()
    problems = ProblemList() if problems is None else problems
    with Refresh(
        engine,
        clock=clock,
        problems=problems,
        on_candidate=on_candidate,
        is_planned_from=is_planned_from,
        covered=_covered_by_run(options),
        change_hook=change_hook,
    ) as refreshing:
        pushed = {source.name for source in sources if policy_of(source).only_pushed}
        names = [source.name for source in sources]
        only = names if options.only is None else options.only
        read_now = {name for name in names if name in only and name not in pushed}
        refreshing.begin(names, only=read_now)
        source_reads = SourceReads(
            staging=refreshing.staging, clock=clock, progress=progress, selection=selection, full=options.full
        )
        reads = source_reads.read(
            {position: source for position, source in enumerate(sources) if source.name in read_now}
        )
        for read in reads:
            problems.add_all(read.problems)
        outcome = refreshing.finish(
            options.accept_empty,
            options.accept_shrink,
            common_guard=guard_from_settings(guard),
            guard_of_source={
                source.name: guard_from_settings(own) for source in sources if (own := policy_of(source).guard)
            },
        )
        is_complete = any(not read.answered for read in outcome.reads)
        problems.add_samples(refreshing.staged_problems(cycles=is_complete))
    if is_complete and not on_candidate and selection is None:
        # Runs after pushes and reads of changes do not wait for a count, which reads all records.
        count_problems(engine, clock)
    if pushed and not on_candidate:
        confirm_pushed(engine, pushed, clock=clock)
    return _report_of(outcome, reads, guards, problems, seconds=(clock() - began).total_seconds())


def _covered_by_run(options: ReadOptions) -> CoveredByRun | None:
    if options.selection is not None:
        return CoveredByRun(options.selection.organization_ids, options.selection.user_ids)
    return None if options.store_pending else EVERYTHING


def _require_sources(sources: Sequence[Source], accepted: Collection[str], full: Collection[str]) -> None:
    """Raises ``UnknownSourceError`` for unknown names, and for ``full`` if the source only receives pushes."""
    names = [source.name for source in sources]
    unknown = [name for name in (*accepted, *full) if name not in names]
    if unknown:
        raise UnknownSourceError(f"no source is called {quoted(unknown[0])}; there are: {', '.join(names) or 'none'}")
    for source in sources:
        if source.name in full and policy_of(source).only_pushed:
            raise UnknownSourceError(f"source {source.name} is not read: what was pushed to it stays in force")


def _report_of(
    outcome: RefreshResult,
    reads: Sequence[SourceRead],
    guards: Mapping[str, Guard],
    problems: ProblemList,
    seconds: float,
) -> RefreshReport:
    return RefreshReport(
        revision=outcome.change.revision,
        changed=outcome.change.changed,
        changes=outcome.change.changes,
        sources=tuple(map(_reported, outcome.reads, reads, [guards[read.name] for read in outcome.reads])),
        retained_sources=outcome.retained,
        problems=problems,
        seconds=seconds,
        depends_on=outcome.depends_on,
    )


def _reported(staged: StagedRead, read: SourceRead, guard: Guard) -> SourceReport:
    values = {field.name: getattr(staged, field.name) for field in fields(staged)}
    values["verdict"] = Verdict(staged.verdict)
    return SourceReport(**values, kinds=dict(read.kinds), gone=read.gone, guard=guard)


def guard_from_settings(settings: GuardSettings) -> Guard:
    return Guard(count=settings.count, percent=settings.percent)


def guards_of(sources: Sequence[Source], guard: GuardSettings) -> dict[str, Guard]:
    """Source → its own guard, or the common one."""
    return {source.name: guard_from_settings(policy_of(source).guard or guard) for source in sources}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of forgetting a source."""

    records: Mapping[str, int]
    """Kind → number of its records, for kinds with records."""
    replaced: ModelChange
    """The changes of the access model."""


def forget(
    engine: Engine,
    name: str,
    sources: Sequence[Source],
    *,
    clock: Clock,
    audit_hook: Callable[[Connection, Mapping[str, int]], None] | None = None,
) -> Forgotten:
    """Removes the records of a source that is no longer configured.

    ``audit_hook``: is called in the transaction, with the number of records of each kind.

    Raises ``UnknownSourceError`` if the source is configured, or has no records.
    """
    if any(source.name == name for source in sources):
        raise UnknownSourceError(f"the source {name!r} is configured: take it out of directory.sources first")
    with reading(engine) as connection:
        kept = {state.name: state.kinds for state in source_states(connection, by_kind=True)}
    records = kept.get(name, {})

    def note(connection: Connection, _reads: object, _change: object) -> None:
        if audit_hook is not None:
            audit_hook(connection, records)

    with Refresh(engine, clock=clock, problems=ProblemList(), change_hook=note) as refreshing:
        try:
            return Forgotten(records=records, replaced=refreshing.forget(name))
        except SourceError as error:
            raise UnknownSourceError(str(error)) from error


def check(sources: Sequence[Source], *, clock: Clock, progress: ReadingProgress | None = None) -> CheckReport:
    """Reads every source and reports its problems, without a change. Sources that receive pushes are not read."""
    sources = [source for source in sources if not policy_of(source).only_pushed]
    with tempfile.TemporaryDirectory(prefix="usher-check-") as folder:
        engine = open_engine(f"sqlite:///{Path(folder) / 'check.db'}")
        try:
            METADATA.create_all(engine)
            report = read_directory(engine, list(map(CheckedSource, sources)), clock=clock, progress=progress)
            with reading(engine) as connection:
                counts = model_counts(connection)
                for problem in similar_records(connection, PROBLEMS_KEPT):
                    report.problems.add(problem)
        finally:
            engine.dispose()
    return CheckReport(sources=report.sources, counts=counts, problems=report.problems)


def export(engine: Engine) -> Iterator[dict[str, object]]:
    """The access model as JSON objects, one per record, in the format of a ``file`` source."""
    with reading(engine) as connection:
        yield from map(object_from_record, export_records(connection))
