"""Reads the state of each source: how it was last read, and its stored records and problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import Connection, Row, func, select

from app.access.change_counts import ChangeCounts, changes_from_json
from app.access.problems import ProblemSort
from app.access.refresh.reads import Acceptance, Refusal
from app.access.refresh.sources import SOURCE, UNCONFIGURED_POSITION
from app.access.source_tables import SOURCE_TABLES, ProblemCountRow
from app.foundation.text import counted


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a source and its last read: the columns of ``DirectorySourceRow``, and what follows from them.

    Times are epoch milliseconds. None: never.
    """

    name: str
    last_verdict: str
    last_reason: str
    last_read_at: int | None
    last_good_at: int | None
    """How old the records in force may be."""
    last_complete_at: int | None
    records: int
    """The number of its stored records, including those without effect."""
    is_configured: bool = True
    """Whether it was among the sources of the last refresh."""
    malformed: int = 0
    dangling: int = 0
    """The number of its records that refer to a missing or ineffective record, as of the last count."""
    reports_changes: bool = False
    """Whether changes can be read: there is a cursor."""
    last_answered: str = ""
    last_read_seconds: float = 0
    last_full_at: int | None = None
    refusal: Refusal | None = None
    """Why its last complete read was not used as complete. None if it was."""
    last_refusal: Refusal | None = None
    last_refused_at: int | None = None
    last_changed_at: int | None = None
    changes: Mapping[str, ChangeCounts] = field(default_factory=dict)
    """kind → what that read changed."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """kind → the number of its stored records, if requested."""

    def in_words(self, now_ms: int) -> str:
        """The state in one line, for messages."""
        parts = [f"{counted(self.records, 'record')} in force"]
        if self.last_read_at is not None:
            what = self.last_answered or "everything"
            parts.append(
                f"last read {_ago(now_ms - self.last_read_at)} ({what}, {self.last_verdict},"
                f" {self.last_read_seconds:.1f} s)"
            )
        if self.last_verdict != "complete" and self.last_good_at is not None:
            parts.append(f"read well {_ago(now_ms - self.last_good_at)}")
        if self.reports_changes:
            parts.append("it is asked for changes")
        if self.last_refused_at is not None:
            reason = "" if self.last_refusal is None else self.last_refusal.reason
            parts.append(f"last refused {_ago(now_ms - self.last_refused_at)}: {reason.partition('; ')[0]}")
        return ", ".join(parts)


def _ago(passed_ms: int) -> str:
    seconds = max(0, passed_ms) / 1000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


_SAME_FIELDS = [field.name for field in fields(SourceState) if field.name in SOURCE.c and field.name != "last_refusal"]
"""The fields of a state that are columns of the source, with the same values."""

_COUNT = ProblemCountRow.__table__
_WITHOUT_TARGET = (ProblemSort.DANGLING, ProblemSort.AMBIGUOUS, ProblemSort.FOLDER_CYCLE)
_DANGLING = (
    select(_COUNT.c.source_id, func.sum(_COUNT.c.problems).label("problems"))
    .where(_COUNT.c.sort.in_([sort.value for sort in _WITHOUT_TARGET]))
    .group_by(_COUNT.c.source_id)
)


def source_states(connection: Connection, *, by_kind: bool = False) -> list[SourceState]:
    """The sources in the order of the configuration as of the last refresh. ``by_kind``: with the number of records of
    each kind, which takes a while to count."""
    kinds = _stored_by_kind(connection) if by_kind else {}
    dangling = {row.source_id: int(row.problems) for row in connection.execute(_DANGLING)}
    return [
        SourceState(
            **{name: getattr(row, name) for name in _SAME_FIELDS},
            refusal=_load_refusal(row, row.refused),
            last_refusal=_load_refusal(row, row.last_refusal),
            is_configured=row.position < UNCONFIGURED_POSITION,
            dangling=dangling.get(row.source_id, 0),
            reports_changes=bool(row.cursor),
            last_read_seconds=row.last_read_ms / 1000,
            changes=changes_from_json(row.last_changes),
            kinds=kinds.get(row.source_id, {}),
        )
        for row in connection.execute(select(SOURCE).order_by(SOURCE.c.position, SOURCE.c.name))
    ]


def _load_refusal(row: Row[Any], reason: str) -> Refusal | None:
    """The refusal for a reason in the row of a source: the last one, which may be in force. None without a reason."""
    acceptance = Acceptance(row.last_refusal_acceptance) if row.last_refusal_acceptance else None
    return Refusal(row.name, reason, acceptance) if reason else None


def _stored_by_kind(connection: Connection) -> dict[int, dict[str, int]]:
    by_source: dict[int, dict[str, int]] = {}
    for kind, table in SOURCE_TABLES.items():
        counts = select(table.c.source_id, func.count().label("records")).group_by(table.c.source_id)
        for row in connection.execute(counts):
            by_source.setdefault(row.source_id, {})[kind] = row.records
    return by_source


def oldest_good_read(states: Sequence[SourceState]) -> int | None:
    """The oldest of the sources' last good reads, in epoch milliseconds. None: there is none.

    Sources that are no longer configured, or that were never read well, are ignored.
    """
    good = [state.last_good_at for state in states if state.is_configured and state.last_good_at is not None]
    return min(good, default=None)
