"""The refresh: a read of the directory becomes the next revision of the access model.

1. ``begin`` adds new sources and numbers their reads.
2. ``add`` stages records, ``end`` ends the read of a source with its verdict; nothing that others see changes so far.
3. ``finish`` drops duplicates, computes what changes in the records of the sources, carries it out, and merges the
   changed keys into the access model, in one transaction.

Several refreshes may run at the same time. That transaction is the only one that needs the lock. Of two reads of a
source the one that began last wins.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine, func, select, update

from app.access.candidate import World, catch_up, is_stirred, lasting_world, shadow
from app.access.former import FORMER_PAYLOAD
from app.access.problems import ProblemList
from app.access.refresh.guard import judge, refuse_shrunk
from app.access.refresh.merge import merge
from app.access.refresh.problems import FoundProblems, LeftOut, staged_problems, without_effect
from app.access.refresh.push_state import drop_marks, remove_known, skip_pushed, skip_the_rest
from app.access.refresh.revision import Replaced, carry_out, close_revision
from app.access.refresh.session import RefreshSession
from app.access.refresh.sources import (
    MODEL_ALIAS,
    SOURCE,
    STATE,
    SourceCounts,
    StagedRead,
    carry_out_rows,
    compute_source_changes,
    count_source_changes,
    make_state,
    note_positions,
    note_reads,
    order_of_sources,
    retained_source,
    sources_to_forget,
    total,
    unconfigured_sources,
)
from app.access.refresh.staging import Intake, drop_duplicates
from app.access.refresh.tables import MODEL_TABLES, REFRESH_TABLES_OF_KIND
from app.access.refresh.users import FILL_BINDING
from app.access.stored_problems import record_read_problems
from app.access.touched import Followed, note_touched, touched_in_deltas
from app.foundation.clock import Clock, epoch_ms

_SHARE = 20
"""If more than one of so many records changes, PostgreSQL's planner chooses freely; see ``looking_up``."""

_FEW = 1_024
"""So many are few in any case."""

_MERGES_ALL = select(STATE.c.merge_all)
_RECORDS = select(func.coalesce(func.sum(SOURCE.c.records), 0))

Work = TypeVar("Work")
Outcome = TypeVar("Outcome")

Witness = Callable[[Connection, Sequence[StagedRead], Replaced], None]
"""Records what a refresh does in its transaction: the reads as judged, and the result for the access model."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh."""

    replaced: Replaced
    reads: tuple[StagedRead, ...]
    """The reads with the verdicts that were used in the end."""
    retained: tuple[str, ...]
    """Sources that are no longer configured, and whose records are used until an operator forgets them."""
    rests_on: World | None = None
    """Of a candidate: the state of the database on which it depends; None: on none."""


@dataclass(frozen=True, slots=True)
class Applied(Generic[Outcome]):
    """The result of a change to the records of sources."""

    kept: Outcome
    """What ``keep`` returned."""
    replaced: Replaced
    left_out: tuple[LeftOut, ...]
    """Those of the staged records that have no effect."""


class Refresh(Intake):
    """One refresh; use it in a ``with`` statement, and ``finish`` it inside."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        problems: ProblemList,
        on_candidate: bool = False,
        note_touched: bool = False,
        followed: Followed | None = None,
        is_planned_from: bool = False,
        is_small: bool = False,
        witness: Witness | None = None,
    ) -> None:
        """``on_candidate``: the engine is a candidate's (``app.access.candidate``). ``is_planned_from``: a plan is made
        from it afterwards.

        ``is_small``: no more than a few thousand records will be added.

        ``note_touched``: no run of everything follows; what changes is noted for a narrowed run, except what is
        ``followed`` (``app.access.touched``). ``witness``: of ``finish`` and ``forget``.
        """
        super().__init__(RefreshSession(engine, on_candidate=on_candidate, is_small=is_small))
        self._clock = clock
        self._problems = problems
        self._on_candidate = on_candidate
        self._note_touched = note_touched
        self._followed = followed
        self._is_planned_from = is_planned_from
        self._witness = witness

    def finish(
        self, accept_empty: Collection[str] = (), accept_shrink: Collection[str] = (), *, all_or_nothing: bool = False
    ) -> Refreshed:
        """Brings the access model in line with what was read, and returns what that changed.

        ``accept_empty`` and ``accept_shrink`` name the sources that may be empty, or shrink more than the guard allows.
        ``all_or_nothing``: a read that the guard refuses changes nothing.
        """
        names = {read.source_id: read.name for read in self._reads()}
        drop_duplicates(self._session, names, self._problems)
        with self._session.change() as connection:
            if self._on_candidate:
                catch_up(connection)
            reads = judge(connection, self._reads(), accept_empty)
            forgotten = sources_to_forget(connection, self._positions)
            compute_source_changes(connection, reads, forgotten)
            remove_known(connection, reads)
            skip_pushed(connection, reads)
            for source_id, about in self._abouts.items():
                skip_the_rest(connection, source_id, about)
            # A source that may be empty may shrink.
            accepted = {*accept_empty, *accept_shrink}
            reads = refuse_shrunk(connection, reads, self._guards, self._guard, accepted, as_a_whole=all_or_nothing)
            replaced = self._bring_in_line(connection, reads, forgotten)
            retained = unconfigured_sources(connection, self._positions)
            rests_on = self._rest(connection) if self._on_candidate else None
        return Refreshed(replaced=replaced, reads=tuple(reads), retained=retained, rests_on=rests_on)

    def staged_problems(self, *, cycles: bool = False) -> FoundProblems:
        """The problems of the records that were read, at the places where they were just read; after ``finish``.
        ``cycles``: with cycles of groups."""
        kinds, few = self._session.kinds_staged, self._session.has_few_rows
        with self._session.snapshot() as connection, self._session.looking_up() if few else nullcontext():
            return staged_problems(connection, kinds, few=few, cycles=cycles)

    def forget(self, name: str) -> Replaced:
        """Removes the records of a source that is no longer read; nothing is read. Raises ``SourceError``."""
        with self._session.change() as connection:
            make_state(connection)
            forgotten = [retained_source(connection, name)]
            compute_source_changes(connection, [], forgotten)
            return self._bring_in_line(connection, [], forgotten)

    def apply_changes(
        self,
        compare: Callable[[Connection], Work | None],
        keep: Callable[[Connection, Work, SourceCounts], Outcome],
    ) -> Applied[Outcome] | None:
        """Applies a change in one transaction: the records of sources, the access model, the revision.

        ``compare`` fills ``source_delta`` with what changes in the records, whose new values are staged; it looks up by
        key. None: there is nothing to do. ``keep`` gets the counts of what is carried out, and writes what belongs into
        the same transaction. If they raise, nothing changes.
        """
        self._flush()
        with self._session.change() as connection, self._session.looking_up():
            make_state(connection)
            work = compare(connection)
            if work is None:
                return None
            counts = count_source_changes(connection)
            carry_out_rows(self._session, connection, counts)
            kept = keep(connection, work, counts)
            replaced = self._merge(connection, counts, merge_all=False)
            left_out = without_effect(connection, self._session.kinds_staged)
            return Applied(kept=kept, replaced=replaced, left_out=tuple(left_out))

    def _bring_in_line(
        self, connection: Connection, reads: Sequence[StagedRead], forgotten: Collection[int]
    ) -> Replaced:
        """Carries out ``source_delta``, and merges what changed."""
        now_ms = epoch_ms(self._clock())
        counts = count_source_changes(connection)
        self._session.went_through(total(counts).total)
        if self._on_candidate:
            for kind in counts:
                shadow(connection, REFRESH_TABLES_OF_KIND[kind].source)
        before = order_of_sources(connection)
        carry_out_rows(self._session, connection, counts)
        note_reads(connection, reads, forgotten, counts, now_ms)
        if self._positions:
            note_positions(connection, self._positions)
        # Sources that had no records before, or have none now, own only keys that are merged anyway.
        after = [source_id for source_id in order_of_sources(connection) if source_id in before]
        is_reordered = after != [source_id for source_id in before if source_id in after]
        replaced = self._merge(connection, counts, merge_all=is_reordered)
        if not self._on_candidate:
            drop_marks(connection, reads, forgotten)
            record_read_problems(connection, self._problems, reads, now_ms)
        if self._witness is not None:
            self._witness(connection, reads, replaced)
        return replaced

    def _merge(self, connection: Connection, counts: SourceCounts, *, merge_all: bool) -> Replaced:
        """Brings the access model in line with the records of the sources, of which so many have changed."""
        now_ms = epoch_ms(self._clock())
        merge_all = merge_all or bool(connection.execute(_MERGES_ALL).scalar_one())
        if not counts and not merge_all:
            return close_revision(connection, carry_out(self._session, connection, []), now_ms)
        few = not merge_all and total(counts).total <= max(
            _FEW, int(connection.execute(_RECORDS).scalar_one()) // _SHARE
        )
        if few:
            with self._session.looking_up():
                return self._merge_keys(connection, counts, now_ms)
        replaced = self._merge_keys(connection, None if merge_all else counts, now_ms)
        if merge_all:
            connection.execute(update(STATE).values(merge_all=False))
        return replaced

    def _merge_keys(self, connection: Connection, changed: Collection[str] | None, now_ms: int) -> Replaced:
        kinds = merge(self._session, connection, changed)
        if self._note_touched and not self._on_candidate:
            note_touched(connection, *touched_in_deltas(connection, self._followed), now_ms)
        return close_revision(connection, carry_out(self._session, connection, kinds), now_ms)

    def _rest(self, connection: Connection) -> World | None:
        """Makes a candidate independent of a database that changes all the time; otherwise returns its state."""
        if not self._is_planned_from or not is_stirred(connection, epoch_ms(self._clock())):
            return lasting_world(connection)
        for table in (*(tables.model for tables in MODEL_TABLES), MODEL_ALIAS, FILL_BINDING, FORMER_PAYLOAD):
            shadow(connection, table)
        return None
