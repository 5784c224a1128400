"""The refresh: a read of the directory becomes the next revision of the access model.

1. ``begin`` adds new sources and numbers their reads.
2. ``staging.add`` stages records, and ``staging.end`` ends the read of a source with its verdict. Nothing that others
   see changes so far.
3. ``finish`` drops duplicates, computes what changes in the records of the sources, writes it, and merges the changed
   keys into the access model, in one transaction.

Several refreshes may run at the same time. That transaction is the only one that needs the lock. Of two reads of a
source the one that began last wins.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from sqlalchemy import Connection, Engine, func, select, update

from app.access.candidate import DatabaseState, catch_up, has_changed_recently, shadow, state_behind
from app.access.change_counts import SourceCounts
from app.access.pending import EVERYTHING, CoveredByRun, store_pending
from app.access.problem_list import ProblemList, ProblemSamples
from app.access.refresh.change_log import are_logged, log_changes
from app.access.refresh.duplicates import drop_duplicates
from app.access.refresh.fills import FILL_BINDING
from app.access.refresh.guard import Guard, refuse_shrunk, reject_unusable
from app.access.refresh.merge import Merge
from app.access.refresh.model_changes import FORMER_PAYLOAD, write_model_rows
from app.access.refresh.problems import staged_problems
from app.access.refresh.pushed_keys import delete_pushed_keys, keep_pushes
from app.access.refresh.reads import StagedRead
from app.access.refresh.session import RefreshSession
from app.access.refresh.source_changes import (
    ReadScope,
    compute_source_changes,
    count_source_changes,
    drop_out_of_scope,
    total,
    write_source_rows,
)
from app.access.refresh.sources import (
    MODEL_ALIAS,
    SOURCE,
    STATE,
    is_reordered,
    make_state,
    order_of_sources,
    retained_source,
    sources_to_forget,
    store_positions,
    store_reads,
    unconfigured_sources,
)
from app.access.refresh.staging import Staging
from app.access.refresh.tables import MODEL_TABLES, REFRESH_TABLES_OF_KIND
from app.access.revisions import ModelChange, add_revision
from app.access.stored_problems import store_read_problems
from app.foundation.clock import Clock, epoch_ms

_SHARE = 20
"""A refresh looks up rows by index if it changes at most this share of the records: one of 20."""

_FEW = 1_024
"""A refresh with at most this number of changes always looks up rows by index."""

ChangeHook = Callable[[Connection, Sequence[StagedRead], ModelChange], None]
"""A callback at the end of the transaction of a refresh: the reads with their final verdicts, and the changes."""


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """The result of a refresh."""

    change: ModelChange
    reads: tuple[StagedRead, ...]
    """The reads with the verdicts that were used in the end."""
    retained: tuple[str, ...]
    """Sources that are no longer configured, and whose records are used until an operator forgets them."""
    depends_on: DatabaseState | None = None
    """The state of the database on which a candidate depends. None if it depends on none."""


class Refresh:
    """One refresh. Use it in a ``with`` statement. ``staging`` gets the records that are read."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        problems: ProblemList,
        on_candidate: bool = False,
        covered: CoveredByRun | None = EVERYTHING,
        is_planned_from: bool = False,
        change_hook: ChangeHook | None = None,
    ) -> None:
        """``on_candidate``: the engine is a candidate's (``app.access.candidate``). ``is_planned_from``: a plan is made
        from it afterwards.

        ``covered``: what the run that follows is about. None: no run follows. Other changes are stored for a narrowed
        run (``app.access.pending``). ``change_hook``: is called by ``finish`` and ``forget``.
        """
        self._session = RefreshSession(engine, on_candidate=on_candidate)
        self.staging = Staging(self._session)
        self._clock = clock
        self._problems = problems
        self._on_candidate = on_candidate
        self._covered = covered
        self._is_planned_from = is_planned_from
        self._change_hook = change_hook

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)

    def begin(self, names: Sequence[str], *, only: Collection[str] | None = None) -> None:
        """Sets the sources, in the order of the configuration. Names are unique. All of them will be read, or ``only``
        some: the others stay as they are."""
        self.staging.begin(names, read=names if only is None else only)

    def finish(
        self,
        accept_empty: Collection[str] = (),
        accept_shrink: Collection[str] = (),
        *,
        common_guard: Guard | None = None,
        guard_of_source: Mapping[str, Guard] = MappingProxyType({}),
        scopes: Mapping[str, ReadScope] = MappingProxyType({}),
        all_or_nothing: bool = False,
    ) -> RefreshResult:
        """Brings the access model in line with what was read, and returns what that changed.

        ``accept_empty`` and ``accept_shrink`` name the sources that may be empty, or shrink more than the guard allows.
        ``common_guard`` guards the sources, alone and together, except those in ``guard_of_source``. A source in
        ``scopes`` was read only in that scope. ``all_or_nothing``: a read that the guard refuses changes nothing.
        """
        positions, reads = self.staging.positions, self.staging.reads
        drop_duplicates(self._session, {read.source_id: read.name for read in reads}, self._problems)
        with self._session.change() as connection:
            if self._on_candidate:
                catch_up(connection)
            reads = reject_unusable(connection, reads, accept_empty)
            forgotten = sources_to_forget(connection, positions)
            compute_source_changes(connection, reads, forgotten)
            keep_pushes(connection, reads)
            for read in reads:
                if read.name in scopes:
                    drop_out_of_scope(connection, read.source_id, scopes[read.name])
            # A source that may be empty may shrink.
            accepted = {*accept_empty, *accept_shrink}
            reads = refuse_shrunk(
                connection, reads, guard_of_source, common_guard, accepted, all_or_nothing=all_or_nothing
            )
            change = self._write_reads(connection, reads, forgotten, positions)
            retained = unconfigured_sources(connection, positions)
            depends_on = self._isolate(connection) if self._on_candidate else None
        return RefreshResult(change=change, reads=tuple(reads), retained=retained, depends_on=depends_on)

    def staged_problems(self, *, cycles: bool = False) -> ProblemSamples:
        """The problems of the records that were read, at the places where they were just read. Call it after
        ``finish``. ``cycles``: with cycles of groups."""
        few = self._session.has_few_rows
        with self._session.snapshot() as connection:
            if few:
                self._session.look_up_rows()
            return staged_problems(connection, self._session.kinds_staged, few=few, cycles=cycles)

    def forget(self, name: str) -> ModelChange:
        """Removes the records of a source that is no longer read, without reading any. Raises ``SourceError``."""
        with self._session.change() as connection:
            make_state(connection)
            forgotten = [retained_source(connection, name)]
            compute_source_changes(connection, [], forgotten)
            return self._write_reads(connection, [], forgotten, {})

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """The transaction of a change to the records of sources, the access model and the revision.

        It fills ``source_delta`` with what changes in the records, whose new values are staged, and then calls
        ``write_records`` and ``merge``. Rows are looked up by key.
        """
        with self._session.change() as connection:
            self._session.index_staged()
            self._session.look_up_rows()
            yield connection

    def write_records(self, connection: Connection) -> SourceCounts:
        """Writes ``source_delta`` in the transaction of ``changing``. Returns how many records change."""
        counts = count_source_changes(connection)
        write_source_rows(self._session, connection, counts)
        return counts

    def merge(self, connection: Connection, counts: SourceCounts) -> ModelChange:
        """Merges the records that ``write_records`` has written."""
        return self._update_model(connection, counts, merge_all=False)

    def _write_reads(
        self,
        connection: Connection,
        reads: Sequence[StagedRead],
        forgotten: Collection[int],
        positions: Mapping[int, int],
    ) -> ModelChange:
        """Writes ``source_delta`` and the reads, and merges what changed. ``positions``: source → its position."""
        now_ms = epoch_ms(self._clock())
        counts = count_source_changes(connection)
        self._session.count_rows(total(counts).total)
        if self._on_candidate:
            for kind in counts:
                shadow(connection, REFRESH_TABLES_OF_KIND[kind].source)
        before = order_of_sources(connection)
        write_source_rows(self._session, connection, counts)
        store_reads(connection, reads, forgotten, counts, now_ms)
        if positions:
            store_positions(connection, positions)
        change = self._update_model(connection, counts, merge_all=is_reordered(connection, before))
        if not self._on_candidate:
            delete_pushed_keys(connection, reads, forgotten)
            store_read_problems(connection, self._problems, reads, now_ms)
        if self._change_hook is not None:
            self._change_hook(connection, reads, change)
        return change

    def _update_model(self, connection: Connection, counts: SourceCounts, *, merge_all: bool) -> ModelChange:
        """Brings the access model in line with the records of the sources. ``counts``: how many have changed."""
        all_records = select(func.coalesce(func.sum(SOURCE.c.records), 0)).scalar_subquery()
        is_pending, records = connection.execute(select(STATE.c.merge_all, all_records)).one()
        merge_all = merge_all or bool(is_pending)
        if not merge_all and total(counts).total <= max(_FEW, int(records) // _SHARE):
            self._session.look_up_rows()
        kinds = Merge(self._session, connection, None if merge_all else counts).compute_deltas()
        now_ms = epoch_ms(self._clock())
        if not self._on_candidate and self._covered != EVERYTHING:
            store_pending(connection, kinds, self._covered, now_ms)
        if merge_all:
            connection.execute(update(STATE).values(merge_all=False))
        changes = write_model_rows(self._session, connection, kinds)
        logged = not self._on_candidate and are_logged(changes)
        change = add_revision(connection, changes, now_ms, logged=logged)
        if change.changed and not self._on_candidate:
            log_changes(connection, change.revision, kinds if logged else (), now_ms)
        return change

    def _isolate(self, connection: Connection) -> DatabaseState | None:
        """Copies the access model into the candidate if the database changes often. Otherwise returns its state."""
        if not self._is_planned_from or not has_changed_recently(connection, epoch_ms(self._clock())):
            return state_behind(connection)
        for table in (*(tables.model for tables in MODEL_TABLES), MODEL_ALIAS, FILL_BINDING, FORMER_PAYLOAD):
            shadow(connection, table)
        return None
