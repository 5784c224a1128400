"""The reports of ``usher directory``. That of a check compares the sources with the records in force."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.access.problem_list import ProblemGroup
from app.access.problems import ProblemSort
from app.access.refresh.guard import Guard
from app.access.revisions import ModelChange
from app.access.source_states import SourceState
from app.commands.bootstrap.databases import existing_store, known_sources
from app.commands.bootstrap.outgoing import configured_sources
from app.commands.bootstrap.requirements import require_sources
from app.commands.directory_wire import object_from_report, object_from_state
from app.commands.preview import changes_in_words
from app.commands.progress import progress
from app.commands.screen import print_note, print_result, show_table
from app.directory.source import Verdict
from app.foundation.clock import epoch_ms, utc_now
from app.settings import Settings
from app.sync.runs.audit import counts_in_words
from app.sync.runs.directory_reads import (
    CheckReport,
    RefreshReport,
    SourceReport,
    check,
    guards_of,
    losses_sentences,
)
from app.sync.runs.source_checks import SourceWarning, check_read, check_retained, missing_records, retained_sentence

_HARMLESS = frozenset({ProblemSort.REMARK, ProblemSort.GROUP_CYCLE})
"""Problems that leave no record out."""


@dataclass(frozen=True, slots=True)
class DirectoryCheck:
    report: CheckReport
    warnings: Sequence[SourceWarning]
    in_force: Mapping[str, SourceState]
    """The state of each source in the database. Empty if there is no database."""

    @property
    def is_clean(self) -> bool:
        """Whether all reads are complete, without problems and warnings."""
        is_complete = all(source.verdict is Verdict.COMPLETE for source in self.report.sources)
        has_problems = any(count for sort, count in self.report.problems.counts.items() if sort not in _HARMLESS)
        return is_complete and not has_problems and not self.warnings


def read_and_compare(settings: Settings) -> DirectoryCheck:
    """Reads all sources, and compares them with the records in force. Raises ``SetUpError`` if there are no sources."""
    require_sources(settings)
    sources = configured_sources(settings, spool=False)
    with progress() as display:
        display.phase("reading", None)
        report = check(sources, clock=utc_now, progress=display)
    with existing_store(settings) as engine:
        in_force = known_sources(engine)
    guards = guards_of(sources, settings.directory.guard)
    compared = [_compared(source, in_force, guards[source.name]) for source in report.sources]
    warnings = [warning for _, warning in compared if warning is not None]
    warnings += check_retained([source.name for source in report.sources], in_force)
    return DirectoryCheck(replace(report, sources=tuple(source for source, _ in compared)), warnings, in_force)


def _compared(
    source: SourceReport, in_force: Mapping[str, SourceState], guard: Guard
) -> tuple[SourceReport, SourceWarning | None]:
    """The report of a read, with the records in force that it would remove, and a warning if it is suspicious."""
    if source.verdict is not Verdict.COMPLETE:
        return source, None
    warning = check_read(source.name, source.kinds, in_force, guard, known_empty=source.known_empty)
    return replace(source, losses=missing_records(source.name, source.kinds, in_force), guard=guard), warning


def check_to_wire(checked: DirectoryCheck) -> dict[str, object]:
    return object_from_report(checked.report) | {
        "suspicions": [
            {"source": warning.source, "says": warning.message, "advice": warning.advice}
            for warning in checked.warnings
        ],
        "inForce": [object_from_state(state) for state in checked.in_force.values()],
    }


def show_check(checked: DirectoryCheck, limit: int) -> None:
    """Prints the result, with at most ``limit`` different problems."""
    report = checked.report
    _show_problems(report.problems.groups, limit)
    for warning in checked.warnings:
        print_note(str(warning))
    for state in checked.in_force.values():
        print_note(f"source {state.name}: {state.in_words(epoch_ms(utc_now()))}")
    _show_sources(report.sources)
    if checked.in_force:
        _show_losses(report.sources, "would take away at least", "no kind has fewer records than are in force")
    print_result(counts_in_words(report.counts))


def show_refresh(report: RefreshReport, limit: int) -> None:
    """Prints the report of a refresh, with at most ``limit`` different problems."""
    _show_problems(report.problems.groups, limit)
    _show_sources(report.sources)
    _show_losses(report.sources, "takes away", "nothing is taken away")
    for name in report.retained_sources:
        print_note(retained_sentence(name))
    show_revision(report)


def show_revision(report: RefreshReport | ModelChange) -> None:
    """Prints the new revision, and the number of changed records of each kind."""
    changes = changes_in_words(report.changes) if report.changed else "nothing changed"
    print_result(f"revision {report.revision}: {changes}")


def _show_problems(groups: Sequence[ProblemGroup], limit: int) -> None:
    for group in groups[:limit]:
        print_note(str(group))
    if len(groups) > limit:
        print_note(f"… and {len(groups) - limit} other problems")


def _show_sources(sources: Sequence[SourceReport]) -> None:
    show_table(
        ("source", "verdict", "records", "malformed", "reason"),
        [
            (source.name, source.verdict.value, str(source.records), str(source.malformed), source.reason)
            for source in sources
        ],
    )


def _show_losses(sources: Sequence[SourceReport], verb: str, nothing: str) -> None:
    """Prints the losses that the guard checked, refused or not."""
    if not any(source.losses for source in sources):
        print_note(f"guard: {nothing}")
    for sentence in losses_sentences(sources, verb):
        print_note(sentence)
