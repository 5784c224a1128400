"""Previews the complete read of one source: what it would change.

The comparison uses a candidate (``app.access.candidate``), so that nothing is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine

from app.access.candidate import CandidateLostError, open_candidate
from app.access.problems import Problem, ProblemGroup, ProblemList, ProblemSort
from app.access.refresh.guard import Guard
from app.access.refresh.reads import Losses
from app.access.refresh.tables import ChangeCounts
from app.access.revisions import current_revision
from app.directory.bounded import BoundedSource
from app.directory.preview import PreviewedSource
from app.directory.source import End, Malformed, Remark, Source, Verdict
from app.directory.source_settings import GuardSettings
from app.foundation.clock import Clock
from app.foundation.database.engine import reading
from app.sync.runs.directory_reads import read_directory
from app.sync.runs.source_checks import check_read
from app.sync.runs.source_reads import ReadingProgress


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a preview."""

    verdict: Verdict
    """The verdict of the source."""
    reason: str
    refused: str = ""
    """Why the guard would refuse the read; empty if it would not."""
    odd: str = ""
    """Why an empty read is suspicious, if there is nothing to compare it with."""
    in_force: bool = False
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

    ``engine``: the database to compare with; None for no comparison.
    """
    problems = ProblemList()
    if engine is not None and _is_empty(engine):
        engine = None
    if engine is None:
        _read_alone(next(source for source in sources if source.name == previewed.name), problems, progress)
        end = previewed.end
        if end is None:
            return Preview(Verdict.FAILED, "it was given up", problems=problems.groups)
        return Preview(end.verdict, end.reason, odd=_odd(previewed, end), problems=problems.groups)
    try:
        with open_candidate(engine) as candidate:
            report = read_directory(
                candidate,
                sources,
                clock=clock,
                guard=guard,
                only=[previewed.name],
                progress=progress,
                on_candidate=True,
                problems=problems,
            )
    except CandidateLostError:
        reason = "another source was configured meanwhile; try again"
        return Preview(Verdict.FAILED, reason, problems=problems.groups)
    (read,) = (source for source in report.sources if source.name == previewed.name)
    end = previewed.end
    failed = end is None or end.verdict is Verdict.FAILED
    return Preview(
        verdict=read.verdict if end is None else end.verdict,
        reason=read.reason if end is None else end.reason,
        refused=read.refused or (read.reason if read.verdict is Verdict.FAILED and not failed else ""),
        in_force=True,
        changes=report.changes,
        problems=[group for group in problems.groups if group.source == previewed.name],
        losses=read.losses,
        guard=read.guard,
    )


def _is_empty(engine: Engine) -> bool:
    with reading(engine) as connection:
        return current_revision(connection) == 0


def _odd(previewed: PreviewedSource, end: End) -> str:
    """A warning about an empty complete read: the base or scope of the source may be wrong."""
    is_complete = end.verdict is Verdict.COMPLETE and end.answered is None
    odd = check_read(previewed.name, previewed.kinds, {}, Guard()) if is_complete else None
    return "" if odd is None else f"{odd.message}; {odd.advice}"


def _read_alone(source: Source, problems: ProblemList, progress: ReadingProgress) -> None:
    for step in source.read():
        progress.advance(1)
        if isinstance(step, Malformed):
            problems.add(Problem(ProblemSort.MALFORMED, source.name, step.place, step.reason))
        elif isinstance(step, Remark):
            problems.add(Problem(ProblemSort.REMARK, source.name, step.place, step.reason))
