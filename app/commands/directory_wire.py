"""The reports of reads of the directory, and the states of sources, as JSON objects for ``--json``."""

from app.access.refresh.reads import Losses
from app.access.source_states import SourceState
from app.foundation.clock import from_epoch_ms, utc_text
from app.sync.runs.directory_reads import CheckReport, RefreshReport


def object_from_report(report: RefreshReport | CheckReport) -> dict[str, object]:
    """A report. orjson shows guards, groups and counts by their attributes."""
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
                "guard": source.guard,
            }
            for source in report.sources
        ],
        "problemCount": report.problems.total,
        "problemCounts": dict(report.problems.counts),
        "problems": [
            {"sort": problem.sort.value, "source": problem.source, "place": problem.place, "reason": problem.reason}
            for problem in report.problems.listed
        ],
        "problemGroups": report.problems.groups,
    }
    if isinstance(report, CheckReport):
        return fields | {"counts": dict(report.counts)}
    return fields | {
        "revision": report.revision,
        "changed": report.changed,
        "changes": {kind: change for kind, change in report.changes.items() if change.any},
        "retainedSources": list(report.retained_sources),
        "seconds": round(report.seconds, 3),
    }


def objects_from_losses(losses: Losses) -> list[dict[str, object]]:
    """Losses. ``kept`` is null if it was not counted."""
    return [{"kind": kind, "gone": gone, "kept": kept} for kind, (gone, kept) in losses.items()]


def object_from_state(state: SourceState) -> dict[str, object]:
    """The state of a source. Times are ISO 8601."""

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
        "tellsChanges": state.reports_changes,
        "refused": str(state.refusal or ""),
        "lastRefusal": str(state.last_refusal or ""),
        "lastRefusedAt": moment(state.last_refused_at),
    }
