"""The refresh: a read of the directory becomes the next revision of the access model.

1. ``begin`` makes the sources known and numbers their reads.
2. ``add`` stages records, ``end`` closes a source with its verdict; nothing that others see changes so far.
3. ``finish`` drops duplicates, brings the sources' kept records in line with what was read, merges them, and replaces
   the access model in one transaction.

Several refreshes may go on at the same time. Of two reads of a source the one that began last wins; and what one works
out in its snapshot it carries out only while the records and the revision are still those of the snapshot, otherwise it
works it out again, at last while it holds the lock.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, Table, select, update

from app.clock import Clock, epoch_ms
from app.model.candidate import World, catch_up, is_stirred, lasting_world, shadow
from app.model.former import FORMER_PAYLOAD, may_keep_former
from app.model.refresh.aliases import ACCESS_ALIAS, aliases_change, carry_out_aliases
from app.model.refresh.bindings import FILL_BINDING, bindings_change, carry_out_bindings
from app.model.refresh.changes import any_change, changed_kinds, delta_sizes
from app.model.refresh.guard import refuse_shrunk
from app.model.refresh.intake import Intake, make_state
from app.model.refresh.keeping import ProblemKeeping
from app.model.refresh.kept import (
    carry_out_source_changes,
    compute_source_changes,
    retained_source,
    sources_to_forget,
    unconfigured_sources,
)
from app.model.refresh.keyed import KeyedMerge, is_merged
from app.model.refresh.marks import drop_marks, remove_known, spare_pushed, spare_the_rest
from app.model.refresh.merge import dangling_by_source
from app.model.refresh.naming import Naming
from app.model.refresh.outdated import Outdated
from app.model.refresh.problems import ProblemList
from app.model.refresh.reasons import staged_left_out
from app.model.refresh.replace import (
    IN_FORCE,
    STATE,
    Replaced,
    carry_out_access_changes,
    close_revision,
    compute_access_changes,
    is_up_to_date,
    merge_problems,
    nothing_changed,
)
from app.model.refresh.scope import Everything
from app.model.refresh.scratch import MODEL_TABLES, SCRATCH_TABLES
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import (
    SOURCE,
    StagedRead,
    drop_duplicates,
)
from app.model.refresh.verdicts import judge
from app.model.touched import Followed, note_touched, touched_in_deltas

_ROWS_WORTH_ANALYZING = 1_000
"""From so many changed rows on the planner is told at once."""

_TRIES_IN_SNAPSHOT = 2

# Put together once: that takes longer than to execute them.
_WORLD = select(STATE.c.generation, IN_FORCE.scalar_subquery())
_ORDER = select(SOURCE.c.source_id, SOURCE.c.position)
_NAMES = select(SOURCE.c.source_id, SOURCE.c.name)
_DANGLING = select(SOURCE.c.source_id, SOURCE.c.dangling)
_NEXT_GENERATION = update(STATE).values(generation=STATE.c.generation + 1)

Work = TypeVar("Work")
Outcome = TypeVar("Outcome")

Compared = tuple[list[StagedRead], list[int]]
"""The reads as they are judged, and the sources that are forgotten."""

Merged = tuple[ProblemList, Mapping[int, int]]
"""What is wrong, and how many records of each source are dangling; what differs stands in the deltas."""

Kept = tuple[list[StagedRead], tuple[str, ...]]
"""The reads, and the names of the sources that are retained."""

Witness = Callable[[Connection, Sequence[StagedRead], Replaced | None], None]
"""Writes down, in the transaction that changes something, what is done: the reads as they were judged, and what became
of the access model; None: the sources' records are kept, and the access model follows in a later transaction, of which
it is told again."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh came to."""

    replaced: Replaced
    reads: tuple[StagedRead, ...]
    """The reads with the verdicts that counted in the end."""
    retained: tuple[str, ...]
    """Sources that are no longer configured, and whose records count until they are forgotten."""
    rests_on: World | None = None
    """Of a candidate: what the database must still be for it to be whole; None: whatever becomes of that."""


class LeftOut(NamedTuple):
    """A record that was told and does not count."""

    place: str
    """Where it stands, as staged."""
    reason: str


@dataclass(frozen=True, slots=True)
class Applied(Generic[Outcome]):
    """What a change to the sources' records came to."""

    kept: Outcome
    """What ``keep`` returned."""
    replaced: Replaced
    left_out: tuple[LeftOut, ...]
    """Those of the staged records that do not count."""


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
        """``on_candidate``: the engine is a candidate's (``app.model.candidate``). ``is_planned_from``: a plan is made
        from it afterwards.

        ``is_small``: no more than a few thousand records will be added.

        ``note_touched``: no run of everything follows; what changes is noted for a run about it, but for what is
        ``followed`` (``app.model.touched``). ``witness``: of ``finish`` and ``forget``.
        """
        super().__init__(RefreshSession(engine, on_candidate=on_candidate, is_small=is_small))
        self._clock = clock
        self._problems = problems
        self._on_candidate = on_candidate
        self._naming = Naming(self._session)
        self._judged: Sequence[StagedRead] | None = None
        """None: no source is read or forgotten."""
        self._note_touched = note_touched
        self._followed = followed
        self._is_planned_from = is_planned_from
        self._witness = witness
        self._rests_on: World | None = None
        self._all_or_nothing = False

    def finish(
        self, accept_empty: Collection[str] = (), accept_shrink: Collection[str] = (), *, all_or_nothing: bool = False
    ) -> Refreshed:
        """Brings the access model in line with what was read, and says what that changed.

        ``accept_empty`` and ``accept_shrink`` name the sources that may give nothing, or less than the guard lets go.
        ``all_or_nothing``: of a read that the guard refuses, nothing counts.
        """
        self._all_or_nothing = all_or_nothing
        names = {read.source_id: read.name for read in self._reads()}
        drop_duplicates(self._session, names, self._problems)
        (reads, retained), replaced = self._bring_in_line(
            lambda connection: self._compare(connection, accept_empty, accept_shrink)
        )
        return Refreshed(replaced=replaced, reads=tuple(reads), retained=retained, rests_on=self._rests_on)

    def forget(self, name: str) -> Replaced:
        """Takes away what a source gave that is read no more; nothing is read. Raises ``SourceError``."""

        def compare(connection: Connection) -> tuple[list[StagedRead], list[int]]:
            forgotten = [retained_source(connection, name)]
            compute_source_changes(connection, [], forgotten)
            return [], forgotten

        with self._session.change() as connection:
            make_state(connection)
        return self._bring_in_line(compare)[1]

    def apply_changes(
        self,
        compare: Callable[[Connection], Work | None],
        keep: Callable[[Connection, Work], Outcome],
    ) -> Applied[Outcome] | None:
        """Carries a change out in one transaction under the lock: the sources' records, the access model, the revision.

        ``compare`` fills the deltas with what changes in the sources' records, whose new values are staged; it looks up
        by key. None: nothing is to be done, and nothing is. ``keep`` carries them out (``changes.carry_out``), leaves
        the deltas as they are, and writes what belongs into the same transaction. What they raise undoes everything.

        Where the change touches too much, or the access model is not what the sources' records came to before (another
        refresh is under way), the records are committed first, and everything is merged after that.
        """
        self._flush()
        with self._session.change() as connection, self._session.looking_up():
            make_state(connection)
            work = compare(connection)
            if work is None:
                return None
            merge = self._keyed_merge(connection, asked=True)
            kept, merged = self._keep_and_merge(connection, work, keep, merge)
            if merged and merge is not None:
                left_out = tuple(LeftOut(one.place, one.reason) for one in merge.staged_left_out())
                replaced = self._carry_out_by_key(connection, merge)
                return Applied(kept=kept, replaced=replaced, left_out=left_out)

        self._session.grow()

        def merge_everything(connection: Connection) -> tuple[Merged, tuple[LeftOut, ...]]:
            found = self._merge_everything(connection)
            told = staged_left_out(connection, Everything.as_merged(connection), _names(connection))
            return found, tuple(LeftOut(one.place, one.reason) for one in told)

        def replace_all(connection: Connection, work: tuple[Merged, tuple[LeftOut, ...]]) -> Applied[Outcome]:
            return Applied(kept=kept, replaced=self._replace(connection, work[0]), left_out=work[1])

        return self._settle(merge_everything, replace_all)

    def _bring_in_line(self, compare: Callable[[Connection], Compared]) -> tuple[Kept, Replaced]:
        """The sources' records and the access model; by key where that is faster and says the same."""

        def carry_out(connection: Connection, work: Compared) -> tuple[Kept, Replaced | None]:
            # What is wrong is told with every read of everything, touched or not.
            told = merge_problems(connection) > 0 and any(not read.answered for read in work[0])
            merge = None if told else self._keyed_merge(connection, asked=False)
            seen = _world(connection)
            kept, merged = self._keep_and_merge(connection, work, self._keep, merge)
            if not merged or merge is None:
                if _world(connection) != seen:
                    # Whoever dies before the access model follows has changed something all the same.
                    self._tell(connection, kept[0], None)
                return kept, None
            replaced = self._carry_out_by_key(connection, merge)
            self._tell(connection, kept[0], replaced)
            return kept, replaced

        if self._on_candidate:
            return self._bring_candidate_in_line(lambda connection: carry_out(connection, compare(connection)))

        def replace_all(connection: Connection, work: Merged | None) -> Replaced:
            found = self._replace(connection, work)
            self._tell(connection, kept[0], found)
            return found

        kept, replaced = self._settle(compare, carry_out)
        return kept, replaced or self._settle(self._merge, replace_all)

    def _tell(self, connection: Connection, reads: Sequence[StagedRead], replaced: Replaced | None) -> None:
        if self._witness is not None:
            self._witness(connection, reads, replaced)

    def _bring_candidate_in_line(
        self, keep: Callable[[Connection], tuple[Kept, Replaced | None]]
    ) -> tuple[Kept, Replaced]:
        """All of it in one snapshot: there is nobody to keep waiting, and others go on."""
        with self._session.snapshot() as connection:
            catch_up(connection)
            kept, replaced = keep(connection)
            if replaced is None:
                replaced = self._replace(connection, self._merge(connection))
            if self._is_planned_from and is_stirred(connection, epoch_ms(self._clock())):
                for table in (*(tables.access for tables in MODEL_TABLES), ACCESS_ALIAS, FILL_BINDING, FORMER_PAYLOAD):
                    shadow(connection, table)
            else:
                self._rests_on = lasting_world(connection)
        return kept, replaced

    def _keyed_merge(self, connection: Connection, *, asked: bool) -> KeyedMerge | None:
        """The merge by key of what the deltas are about to change; None where it is not possible."""
        if not is_merged(connection):
            return None
        merge = KeyedMerge(self._session, connection)
        return merge if merge.note(asked=asked) else None

    def _keep_and_merge(
        self,
        connection: Connection,
        work: Work,
        keep: Callable[[Connection, Work], Outcome],
        merge: KeyedMerge | None,
    ) -> tuple[Outcome, bool]:
        """``keep``, and what the change comes to in the access model; whether that could be worked out by key."""
        order = _order(connection)
        changes = any_change(self._session)
        kept = keep(connection, work)
        moved = any(order.get(source_id) != position for source_id, position in _order(connection).items())
        if moved or changes:
            connection.execute(_NEXT_GENERATION)
        if merge is None or moved or not merge.compute():
            return kept, False
        self._note(connection)
        self._shadow_access(connection)
        return kept, True

    # The sources' kept records.

    def _compare(
        self, connection: Connection, accept_empty: Collection[str], accept_shrink: Collection[str]
    ) -> tuple[list[StagedRead], list[int]]:
        reads = judge(connection, self._reads(), accept_empty)
        forgotten = sources_to_forget(connection, self._positions)
        compute_source_changes(connection, reads, forgotten)
        remove_known(connection, reads)
        spare_pushed(connection, reads)
        for source_id, about in self._abouts.items():
            spare_the_rest(connection, source_id, about)
        # A source that is meant to be empty is meant to shrink.
        accepted = {*accept_empty, *accept_shrink}
        whole = self._all_or_nothing
        return refuse_shrunk(connection, reads, self._guards, self._guard, accepted, as_a_whole=whole), forgotten

    def _keep(
        self, connection: Connection, work: tuple[list[StagedRead], list[int]]
    ) -> tuple[list[StagedRead], tuple[str, ...]]:
        reads, forgotten = work
        self._shadow(connection, {tables.kind: tables.source for tables in SCRATCH_TABLES})
        carry_out_source_changes(connection, reads, forgotten, self._positions, epoch_ms(self._clock()))
        sizes = delta_sizes(self._session)
        self._session.went_through(sum(sizes.values()))
        for tables in SCRATCH_TABLES:
            if sizes[tables.kind] > _ROWS_WORTH_ANALYZING:
                self._session.analyze(tables.source)
        if not self._on_candidate:
            drop_marks(connection, reads, forgotten)
        self._judged = reads
        return reads, unconfigured_sources(connection, self._positions)

    # The access model.

    def _merge(self, connection: Connection) -> Merged | None:
        return None if is_up_to_date(connection) else self._merge_everything(connection)

    def _merge_everything(self, connection: Connection) -> Merged:
        found = ProblemList(self._problems.room)
        compute_access_changes(self._session, connection, _names(connection), found, self._naming)
        return found, dangling_by_source(connection)

    def _carry_out_by_key(self, connection: Connection, merge: KeyedMerge) -> Replaced:
        """The access model, and what is wrong with what was touched; in the transaction that changes both."""
        before = merge_problems(connection)
        found = ProblemList(self._problems.room)
        merge.report(found)
        replaced = merge.carry_out(found, epoch_ms(self._clock()))
        self._problems.add_all(found)
        # Who reads nothing, and changes nothing of what is wrong, has nothing to tell.
        if self._judged is not None or found.total or merge.outdated.anything:
            whole = not before or not merge_problems(connection)
            self._keep_problems(connection, whole=whole, outdated=merge.outdated)
        return replaced

    def _replace(self, connection: Connection, work: Merged | None) -> Replaced:
        if work is None:
            self._keep_problems(connection, whole=True)
            return nothing_changed(connection)
        found, dangling = work
        self._problems.add_all(found)
        for row in connection.execute(_DANGLING).all():
            if row.dangling != dangling.get(row.source_id, 0):
                connection.execute(
                    update(SOURCE)
                    .where(SOURCE.c.source_id == row.source_id)
                    .values(dangling=dangling.get(row.source_id, 0))
                )
        self._note(connection)
        self._shadow_access(connection)
        # Even a DELETE that removes no row takes SQLite's write lock, which a candidate must never need.
        if aliases_change(connection):
            if self._on_candidate:
                shadow(connection, ACCESS_ALIAS)
            if carry_out_aliases(connection) > _ROWS_WORTH_ANALYZING:
                self._session.analyze(ACCESS_ALIAS)
        if bindings_change(connection):
            if self._on_candidate:
                shadow(connection, FILL_BINDING)
            carry_out_bindings(connection)
        changed = changed_kinds(connection)
        kinds = [tables for tables in MODEL_TABLES if tables.kind in changed]
        changes = carry_out_access_changes(connection, Everything(), self._naming, kinds)
        replaced = close_revision(connection, changes, found.total, epoch_ms(self._clock()))
        for tables in MODEL_TABLES:
            if replaced.changes[tables.kind].total > _ROWS_WORTH_ANALYZING:
                self._session.analyze(tables.access)
        self._keep_problems(connection, whole=True)
        return replaced

    def _keep_problems(self, connection: Connection, *, whole: bool, outdated: Outdated | None = None) -> None:
        """Remembers what is wrong, where that is not what was wrong before."""
        if self._on_candidate:
            return
        keeping = ProblemKeeping(connection, self._problems, self._judged or (), whole=whole, outdated=outdated)
        if keeping.differs:
            keeping.write(connection, epoch_ms(self._clock()))

    def _note(self, connection: Connection) -> None:
        """Takes down what the deltas, which are those of the access model, are about, in the transaction that carries
        them out."""
        if self._note_touched and not self._on_candidate:
            note_touched(connection, *touched_in_deltas(connection, self._followed), epoch_ms(self._clock()))

    def _settle(self, work: Callable[[Connection], Work], carry_out: Callable[[Connection, Work], Outcome]) -> Outcome:
        """Works something out in a snapshot and carries it out, if the world has not moved on in between."""
        for _ in range(_TRIES_IN_SNAPSHOT):
            with self._session.snapshot() as connection:
                seen = _world(connection)
                worked_out = work(connection)
            with self._session.change() as connection:
                if _world(connection) == seen:
                    return carry_out(connection, worked_out)
        with self._session.change() as connection:
            return carry_out(connection, work(connection))

    def _shadow(self, connection: Connection, targets: Mapping[str, Table]) -> None:
        """On a candidate: copies what the deltas are about to change."""
        if not self._on_candidate:
            return
        for tables in SCRATCH_TABLES:
            changed = select(tables.delta.c.change).limit(1)
            if tables.kind in targets and connection.execute(changed).first() is not None:
                shadow(connection, targets[tables.kind])

    def _shadow_access(self, connection: Connection) -> None:
        self._shadow(connection, {tables.kind: tables.access for tables in MODEL_TABLES})
        if self._on_candidate and any(may_keep_former(connection, tables) for tables in MODEL_TABLES):
            shadow(connection, FORMER_PAYLOAD)


def _order(connection: Connection) -> dict[int, int]:
    return {row.source_id: row.position for row in connection.execute(_ORDER)}


def _names(connection: Connection) -> dict[int, str]:
    return {row.source_id: row.name for row in connection.execute(_NAMES)}


def _world(connection: Connection) -> tuple[int, int]:
    generation, revision = connection.execute(_WORLD).one()
    return generation, revision
