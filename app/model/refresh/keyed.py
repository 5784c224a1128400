"""The merge by key: a change to the sources' records, carried over to the access model without looking at the rest.

The rules: ``app/model/README.md``, "The merge by key".

It follows the same rules as the merge of everything (``merge.py``), for the touched keys alone, and leaves what that
would leave: the access model, its revision, and how many problems there are. All of it is one transaction together with
the change of the sources' records: ``note`` comes before that, ``compute`` after it, ``carry_out`` at last.

How many problems there are is counted on from before: of each kind the touched keys are given twice, as the sources
said them before and as they say them now.
"""

from collections import Counter
from functools import cache

from sqlalchemy import Connection, Select, Table, func, select, update
from sqlalchemy import delete as delete_from

from app.access.records import Fill, Folder, GroupMember, User
from app.model.candidate import shadow
from app.model.refresh.aliases import ACCESS_ALIAS, carry_out_aliases, collect_touched_aliases, undo_aliases
from app.model.refresh.bindings import FILL_BINDING, carry_out_bindings, collect_touched_bindings, undo_bindings
from app.model.refresh.changes import delta_sizes
from app.model.refresh.closure import (
    Before,
    left_out_before,
    note_changed,
    touch_below,
    touch_referring,
    touch_renamed,
)
from app.model.refresh.cycles import CyclesAround
from app.model.refresh.fills import TouchedFills, any_fills
from app.model.refresh.given import count_repeated, give_touched, report_touched_repeated, rows_repeated
from app.model.refresh.merge import clear, compare_kind, merge_kind
from app.model.refresh.naming import Naming
from app.model.refresh.outdated import Outdated
from app.model.refresh.problems import Problem, ProblemList
from app.model.refresh.reasons import report_left_out, staged_left_out
from app.model.refresh.replace import (
    STATE,
    Replaced,
    carry_out_access_changes,
    close_revision,
    merge_problems,
    revision_in_force,
)
from app.model.refresh.scope import TOUCHED, MergeScope
from app.model.refresh.scratch import (
    MODEL_TABLES,
    SCRATCH_TABLES,
    TABLES_OF_KIND,
    LeftOutCause,
    ModelTables,
    RowChange,
    ScratchTables,
)
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import SOURCE, UNCONFIGURED_POSITION

SHARE = 20
"""Of so many kept records one may be touched: the merge of everything is faster where more are."""

ALWAYS = 1_024
"""So many may be touched in any case."""


# Put together once: that takes longer than to execute them.
_STATE = select(STATE.c.generation, STATE.c.merged_generation)
_SOURCES = select(SOURCE.c.source_id, SOURCE.c.name, SOURCE.c.position, SOURCE.c.records)


def is_merged(connection: Connection) -> bool:
    """Whether the access model is what the sources' records come to, so that a change can be carried over to it."""
    state = connection.execute(_STATE).one()
    return bool(state.merged_generation == state.generation) and revision_in_force(connection) > 0


class KeyedMerge:
    """One change, in the transaction of a connection in which the deltas are those of the sources' records."""

    def __init__(self, session: RefreshSession, connection: Connection) -> None:
        self._session = session
        self._connection = connection
        rows = connection.execute(_SOURCES).all()
        self._names = {row.source_id: row.name for row in rows}
        self._retained = {row.source_id for row in rows if row.position >= UNCONFIGURED_POSITION}
        self._several = len(rows) > 1
        # A power of two, so that the statements that it stands in are few.
        self._room: int = 1 << (max(ALWAYS, sum(row.records for row in rows) // SHARE).bit_length() - 1)
        self._fills = TouchedFills(connection)
        self._touched = Counter[str]()
        """Kind → how many keys are touched."""
        self._renamed = False
        """Whether aliases have changed hands."""
        self._rebound = False
        """Whether bindings of disabling fills have changed."""
        self._left_out: Counter[tuple[int, bool]] = Counter()
        """(source, whether owned elsewhere) → how many more do not count than before."""
        self._repeated: dict[str, dict[int, int]] = {}
        """Kind → source → how many records that are given again were counted under the touched keys."""
        self._more_repeated = 0
        self._naming = Naming(session)
        self._outdated = Outdated(connection)
        self._tells = False
        """Whether any touched record does not count now."""
        self._merged: set[str] = set()
        self._differs: list[ModelTables] = []

    def note(self, *, asked: bool) -> bool:
        """Takes down what is about to change; False where it is too much.

        ``asked``: what is staged is looked at even where it changes nothing.
        """
        if sum(delta_sizes(self._session).values()) > self._room:
            return False
        connection = self._connection
        with self._session.looking_up():
            self._touched.update(note_changed(self._session, connection, self._room, asked=asked))
            if Fill.kind in self._touched:
                self._touched[User.kind] += self._fills.touch_users()
            if self._is_too_much():
                return False
            for tables in MODEL_TABLES:
                if tables.kind in self._touched:
                    self._give(tables)
                    self._note_before(tables)
                    repeated = self._count_repeated(tables)
                    if repeated:
                        self._more_repeated -= sum(repeated.values())
                        self._outdated.note_again(tables, repeated, rows_repeated(connection, tables))
            if Fill.kind in self._touched:
                self._count_fills(late=False)
        return True

    def compute(self) -> bool:
        """Fills the deltas with what the change comes to in the access model; False where it touches too much."""
        done = self._compute()
        if self._renamed and not done:
            undo_aliases(self._connection)
        if self._rebound and not done:
            undo_bindings(self._connection)
        return done

    def _compute(self) -> bool:
        connection = self._connection
        self._session.run_all(statement for tables in SCRATCH_TABLES for statement in clear(tables))
        self._naming.begin()
        come_or_gone: set[str] = set()
        with self._session.looking_up():
            for tables in MODEL_TABLES:
                if not self._touch_more(tables, come_or_gone):
                    return False
                if not self._touched[tables.kind]:
                    continue
                self._give(tables)
                merge_kind(connection, tables, TOUCHED, several_sources=self._several)
                if tables.kind == User.kind:
                    self._rename_and_fill(tables)
                self._count_left_out(tables)
                repeated = self._repeated[tables.kind] = self._count_repeated(tables)
                self._more_repeated += sum(repeated.values())
                if compare_kind(connection, tables, TOUCHED):
                    self._differs.append(tables)
                    self._naming.note(connection, tables, TOUCHED)
                    if TOUCHED.run(connection, _comes_or_goes, tables).first() is not None:
                        come_or_gone.add(tables.kind)
                self._merged.add(tables.kind)
            if (self._touched[User.kind] or self._touched[Fill.kind]) and any_fills(connection):
                self._merge_fills()
        return not self._is_too_much()

    @property
    def outdated(self) -> Outdated:
        """What of the problems that are kept is outdated; complete when all is carried out."""
        return self._outdated

    def report(self, problems: ProblemList) -> None:
        """Adds what was left out to the problems, as the merge of everything does."""
        if not self._tells and not any(self._repeated.values()):
            return
        connection = self._connection
        for kind, counts in self._repeated.items():
            report_touched_repeated(connection, TABLES_OF_KIND[kind], self._names, problems, counts)
        report_left_out(connection, TOUCHED, self._names, problems, self._merged_tables())

    def staged_left_out(self) -> list[Problem]:
        """What was staged and does not count, each at the place where it was staged; for ``asked``."""
        with self._session.looking_up():
            return staged_left_out(self._connection, TOUCHED, self._names, self._merged_tables())

    def carry_out(self, problems: ProblemList, now_ms: int) -> Replaced:
        """Changes the access model. ``problems`` gets those that the change is to blame for."""
        connection = self._connection
        cycles = CyclesAround(connection, self._names) if self._members_differ() else None
        former = ProblemList()
        before = cycles.count(former) if cycles else 0
        if before:
            self._outdated.note_cycles(former, {name: source_id for source_id, name in self._names.items()} | {"": 0})
        with self._session.looking_up():
            changes = carry_out_access_changes(connection, TOUCHED, self._naming, self._differs)
        more = (cycles.count(problems) if cycles else 0) - before + self._more_repeated
        for (source_id, owned_elsewhere), count in self._left_out.items():
            if count and not owned_elsewhere:
                connection.execute(
                    update(SOURCE).where(SOURCE.c.source_id == source_id).values(dangling=SOURCE.c.dangling + count)
                )
            if source_id not in self._retained:
                more += count
        return close_revision(connection, changes, merge_problems(connection) + more, now_ms)

    def _is_too_much(self) -> bool:
        return self._touched.total() > self._room

    def _touch_more(self, tables: ModelTables, come_or_gone: set[str]) -> bool:
        """Touches what hangs on what has become of the kinds before; False where that is too much."""
        connection, more = self._connection, 0
        references = [one for one in tables.kind_table.references if one.kind in come_or_gone]
        if references:
            more += touch_referring(connection, tables, references, self._room)
        if self._renamed and tables.record_kind.names_user:
            more += touch_renamed(connection, tables, self._room)
        if tables.kind == Folder.kind and (more or self._touched[tables.kind]):
            more += touch_below(connection, tables, self._room)
        self._touched[tables.kind] += more
        if self._is_too_much():
            return False
        if more:
            self._give(tables, late=True, former=self._renamed)
            self._note_before(tables)
        return True

    def _give(self, tables: ModelTables, *, late: bool = False, former: bool = False) -> None:
        self._session.run_all([f"DELETE FROM {tables.combined.name}"])  # noqa: S608 - our own table
        give_touched(self._connection, tables, late=late, former=former)

    def _rename_and_fill(self, users: ModelTables) -> None:
        connection = self._connection
        has_fills = any_fills(connection)
        if collect_touched_aliases(connection):
            if self._session.on_candidate:
                shadow(connection, ACCESS_ALIAS)
            carry_out_aliases(connection)
            self._renamed = True
            more = self._fills.touch_renamed() if has_fills else 0
            if more:
                # Their own records have not changed: what of them counts, or does not, is as before.
                self._touched[users.kind] += more
                self._give(users, late=True)
                self._note_before(users)
                connection.execute(delete_from(users.left_out))
                self._give(users)
                merge_kind(connection, users, TOUCHED, several_sources=self._several)
        if has_fills:
            if collect_touched_bindings(connection):
                if self._session.on_candidate:
                    shadow(connection, FILL_BINDING)
                carry_out_bindings(connection)
                self._rebound = True
            self._fills.apply()

    def _merge_fills(self) -> None:
        self._touched[Fill.kind] += self._fills.touch()
        self._count_fills(late=True)
        self._fills.leave_out()
        self._count_left_out(_FILLS)
        self._merged.add(Fill.kind)

    def _note_before(self, tables: ModelTables) -> None:
        before = left_out_before(self._connection, tables, renamed=self._renamed)
        self._count_before(before)
        self._outdated.note(tables, before, renamed=self._renamed)

    def _count_fills(self, *, late: bool) -> None:
        rows = self._fills.left_out_before(late=late, renamed=self._renamed)
        before = Counter((row.source_id, LeftOutCause(row.cause)) for row in rows)
        self._count_before(before)
        self._outdated.note_rows(_FILLS, before, rows)

    def _count_before(self, before: Before) -> None:
        for (source_id, cause), count in before.items():
            self._left_out[source_id, cause == LeftOutCause.OWNED_ELSEWHERE] -= count

    def _count_left_out(self, tables: ScratchTables) -> None:
        for row in self._connection.execute(_left_out(tables.left_out)).all():
            self._left_out[row.source_id, row.cause == LeftOutCause.OWNED_ELSEWHERE] += row.records
            self._tells = True

    def _count_repeated(self, tables: ModelTables) -> dict[int, int]:
        return {} if tables.record_kind.names_user else count_repeated(self._connection, tables)

    def _merged_tables(self) -> list[ScratchTables]:
        return [tables for tables in SCRATCH_TABLES if tables.kind in self._merged]

    def _members_differ(self) -> bool:
        return any(tables.kind == GroupMember.kind for tables in self._differs)


_FILLS = next(tables for tables in SCRATCH_TABLES if tables.kind == Fill.kind)


@cache
def _left_out(left_out: Table) -> Select[int, int, int]:
    columns = left_out.c.source_id, left_out.c.cause
    return select(*columns, func.count().label("records")).group_by(*columns)


def _comes_or_goes(tables: ModelTables, _scope: MergeScope) -> Select[tuple[int]]:
    return select(tables.delta.c.change).where(tables.delta.c.change != int(RowChange.UPDATE)).limit(1)
