"""Previews the complete read of one source: what it would change.

The comparison uses a candidate (``app.access.candidate``), so that nothing is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine

from app.access.candidate import CandidateLostError, open_candidate
from app.access.change_counts import ChangeCounts
from app.access.problem_list import ProblemGroup, ProblemList
from app.access.problems import Problem, ProblemSort
from app.access.refresh.guard import Guard
from app.access.refresh.reads import Losses
from app.access.revisions import current_revision
from app.directory.bounded import BoundedSource
from app.directory.preview import PreviewedSource
from app.directory.source import End, Malformed, Remark, Source, Verdict
from app.directory.source_settings import GuardSettings
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.sync.runs.directory_reads import ReadOptions, SourceReport, read_directory
from app.sync.runs.source_checks import check_read
from app.sync.runs.source_reads import ReadingProgress


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a preview."""

    verdict: Verdict
    """The verdict of the source."""
    reason: str
    refused: str = ""
    """Why the guard would refuse the read. Empty if it would not."""
    suspicion: str = ""
    """Why an empty read is suspicious, if there is nothing to compare it with."""
    is_compared: bool = False
    """Whether the read was compared with the access model."""
    changes: Mapping[str, ChangeCounts] = field(default_factory=dict)
    """Kind → records of the access model that it would add, update and remove."""
    problems: Sequence[ProblemGroup] = ()
    losses: Losses = field(default_factory=dict)
    """The effective records of the source that it would remove."""
    guard: Guard = field(default_factory=Guard)
    """The maximum of losses."""


def preview(
    sources: Sequence[BoundedSource],
    previewed: PreviewedSource,
    engine: Engine | None,
    *,
    guard: GuardSettings,
    clock: Clock,
    progress: ReadingProgress,
) -> Preview:
    """Reads the previewed source. ``sources``: all configured sources, with the previewed one in its place.

    ``engine``: the database to compare with. None for no comparison.
    """
    if engine is None or _is_empty(engine):
        (source,) = (source for source in sources if source.name == previewed.name)
        return _preview_alone(source, previewed, progress)
    problems = ProblemList()
    try:
        with open_candidate(engine) as candidate:
            report = read_directory(
                candidate,
                sources,
                ReadOptions(only=[previewed.name]),
                clock=clock,
                guard=guard,
                progress=progress,
                on_candidate=True,
                problems=problems,
            )
    except CandidateLostError:
        reason = "another source was configured meanwhile; try again"
        return Preview(Verdict.FAILED, reason, problems=problems.groups)
    (read,) = (source for source in report.sources if source.name == previewed.name)
    groups = [group for group in problems.groups if group.source == previewed.name]
    return _compared_preview(previewed.end, read, report.changes, groups)


def _preview_alone(source: Source, previewed: PreviewedSource, progress: ReadingProgress) -> Preview:
    """Reads the source without a comparison."""
    problems = ProblemList()
    for step in source.read():
        progress.advance(1)
        if isinstance(step, Malformed):
            problems.add(Problem(ProblemSort.MALFORMED, source.name, step.place, step.reason))
        elif isinstance(step, Remark):
            problems.add(Problem(ProblemSort.REMARK, source.name, step.place, step.reason))
    end = previewed.end
    if end is None:
        return Preview(Verdict.FAILED, "it was given up", problems=problems.groups)
    return Preview(end.verdict, end.reason, suspicion=_suspicion(previewed, end), problems=problems.groups)


def _compared_preview(
    end: End | None, read: SourceReport, changes: Mapping[str, ChangeCounts], problems: Sequence[ProblemGroup]
) -> Preview:
    """The preview of a read on a candidate. ``end``: the end of the source. None: it was given up."""
    refused = read.refused
    if not refused and read.verdict is Verdict.FAILED and end is not None and end.verdict is not Verdict.FAILED:
        # The source succeeded, but the refresh did not accept its read, for example because it is empty.
        refused = read.reason
    return Preview(
        verdict=read.verdict if end is None else end.verdict,
        reason=read.reason if end is None else end.reason,
        refused=refused,
        is_compared=True,
        changes=changes,
        problems=problems,
        losses=read.losses,
        guard=read.guard,
    )


def _is_empty(engine: Engine) -> bool:
    with reading(engine) as connection:
        return current_revision(connection) == 0


def _suspicion(previewed: PreviewedSource, end: End) -> str:
    """A warning about an empty complete read: the base or scope of the source may be wrong."""
    if end.verdict is not Verdict.COMPLETE or end.answered is not None:
        return ""
    warning = check_read(previewed.name, previewed.kinds, {}, Guard())
    return "" if warning is None else f"{warning.message}; {warning.advice}"
