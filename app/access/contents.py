"""Reads the contents of the access model for operators: the state of each source, counts, and all records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, func, select

from app.access.effective import ALL_FOLDERS, cause
from app.access.problems import ProblemSort
from app.access.record_tables import KIND_TABLES, TABLES_OF_KIND, record_of
from app.access.records import Record, User
from app.access.refresh.reads import Acceptance, Refusal
from app.access.refresh.sources import MODEL_ALIAS, SOURCE, UNCONFIGURED_POSITION
from app.access.refresh.tables import ChangeCounts, changes_from_json
from app.access.source_tables import SOURCE_TABLES, ProblemCountRow
from app.foundation.database.engine import is_sqlite
from app.foundation.database.statements import statement
from app.foundation.text import counted

_BATCH_ROWS = 1_000

_EFFECTIVE = "WITH RECURSIVE {folders} SELECT m.* FROM {table} m WHERE {cause} = '' ORDER BY {keys}"


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


def model_counts(connection: Connection) -> dict[str, int]:
    """kind → the number of its records in the access model, for every kind."""
    return {
        kind_table.kind: int(connection.execute(select(func.count()).select_from(kind_table.table)).scalar_one())
        for kind_table in KIND_TABLES
    }


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


_SAME_FIELDS = [field.name for field in fields(SourceState) if field.name in SOURCE.c and field.name != "last_refusal"]
"""The fields of a state that are columns of the source, with the same values."""

_COUNT = ProblemCountRow.__table__
_WITHOUT_TARGET = (ProblemSort.DANGLING, ProblemSort.AMBIGUOUS, ProblemSort.FOLDER_CYCLE)
_DANGLING = (
    select(_COUNT.c.source_id, func.sum(_COUNT.c.problems).label("problems"))
    .where(_COUNT.c.sort.in_([sort.value for sort in _WITHOUT_TARGET]))
    .group_by(_COUNT.c.source_id)
)


def _stored_by_kind(connection: Connection) -> dict[int, dict[str, int]]:
    by_source: dict[int, dict[str, int]] = {}
    for kind, table in SOURCE_TABLES.items():
        counts = select(table.c.source_id, func.count().label("records")).group_by(table.c.source_id)
        for row in connection.execute(counts):
            by_source.setdefault(row.source_id, {})[kind] = row.records
    return by_source


def oldest_good_read(states: Sequence[SourceState]) -> int | None:
    """The age of the directory: the oldest of the sources' last good reads, in epoch milliseconds. None: there is none.

    Sources that are no longer configured, or that were never read well, are ignored.
    """
    good = [state.last_good_at for state in states if state.is_configured and state.last_good_at is not None]
    return min(good, default=None)


def export_records(connection: Connection) -> Iterator[Record]:
    """Every effective record of the access model, referred-to kinds first, each kind in the order of its key.

    Rows are streamed; keep the transaction open until the end.
    """
    if not is_sqlite(connection):
        # With the default of 4 MB, PostgreSQL does not hash the effective folders, but reads all of them for each row.
        connection.exec_driver_sql("SET LOCAL work_mem = '256MB'")
    for kind_table in KIND_TABLES:
        if kind_table.kind == User.kind:
            yield from _users(connection)
            continue
        text = statement(
            connection,
            _EFFECTIVE,
            folders=ALL_FOLDERS,
            table=kind_table.table.name,
            cause=cause(kind_table.kind, "m"),
            keys=", ".join(f"m.{name}" for name in kind_table.keys),
        )
        streaming = {"stream_results": True, "max_row_buffer": _BATCH_ROWS}
        yield from map(kind_table.record_from_row, connection.execute(text, execution_options=streaming))


def _users(connection: Connection) -> Iterator[User]:
    table = TABLES_OF_KIND[User.kind].table
    with_alias = table.outerjoin(MODEL_ALIAS, MODEL_ALIAS.c.user_id == table.c.user_id)
    query = select(table, MODEL_ALIAS.c.alias).select_from(with_alias).order_by(table.c.user_id, MODEL_ALIAS.c.alias)
    rows = connection.execute(query, execution_options={"yield_per": _BATCH_ROWS})
    for _, same_user in groupby(rows, key=lambda row: row.user_id):
        first, *others = same_user
        yield replace(
            record_of(User, first), aliases=tuple(row.alias for row in (first, *others) if row.alias is not None)
        )
