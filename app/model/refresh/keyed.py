"""The merge by key: a change to the sources' records, carried over to the access model without looking at the rest.

The rules: ``app/model/README.md``, "The merge by key".

It follows the same rules as the merge of everything (``merge.py``), for the touched keys alone, and leaves what that
would leave: the access model, its revision, and how many problems there are. All of it is one transaction together with
the change of the sources' records: ``note`` comes before that, ``compute`` after it, ``carry_out`` at last.
"""

from collections import Counter
from typing import Any

from sqlalchemy import Connection, Select, func, literal, or_, select, union_all, update

from app.access.records import Fill, Folder, GroupMember, User
from app.model.refresh.aliases import ACCESS_ALIAS
from app.model.refresh.changes import delta_sizes
from app.model.refresh.closure import left_out_before, note_changed, touch_below, touch_referring
from app.model.refresh.cycles import CyclesAround
from app.model.refresh.given import names_aliases
from app.model.refresh.merge import clear, compare_kind, merge_kind
from app.model.refresh.problems import Problem, ProblemList
from app.model.refresh.reasons import report_left_out, staged_left_out
from app.model.refresh.replace import STATE, Replaced, carry_out_access_changes, close_revision, revision_in_force
from app.model.refresh.scope import TOUCHED, Scope
from app.model.refresh.scratch import MODEL_TABLES, TABLES_OF_KIND, LeftOutCause, ModelTables, RowChange, show
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import SOURCE, UNCONFIGURED_POSITION
from app.store.directory_tables import SOURCE_TABLES
from app.store.record_tables import NO_ALIASES

SHARE = 20
"""Of so many kept records one may be touched: the merge of everything is faster where more are."""

ALWAYS = 1_000
"""So many may be touched in any case."""


def is_merged(connection: Connection) -> bool:
    """Whether the access model is what the sources' records come to, so that a change can be carried over to it."""
    state = connection.execute(select(STATE.c.generation, STATE.c.merged_generation)).one()
    return bool(state.merged_generation == state.generation) and revision_in_force(connection) > 0


class KeyedMerge:
    """One change, in the transaction of a connection in which the deltas are those of the sources' records."""

    def __init__(self, session: RefreshSession, connection: Connection) -> None:
        self._session = session
        self._connection = connection
        sources = connection.execute(select(SOURCE.c.source_id, SOURCE.c.name, SOURCE.c.position, SOURCE.c.records))
        rows = sources.all()
        self._names = {row.source_id: row.name for row in rows}
        self._retained = {row.source_id for row in rows if row.position >= UNCONFIGURED_POSITION}
        self._several = len(rows) > 1
        # A power of two, so that the statements that it stands in are few.
        self._room = 1 << (max(ALWAYS, sum(row.records for row in rows) // SHARE).bit_length() - 1)
        self._changed: dict[str, int] = {}
        self._left_out: Counter[tuple[int, bool]] = Counter()
        """(source, whether owned elsewhere) → how many more do not count than before."""
        self._merged: list[ModelTables] = []
        self._differs: list[ModelTables] = []

    def note(self, *, asked: bool) -> bool:
        """Takes down what is about to change; False where it is too much, or of a kind that says things of others.

        ``asked``: what is staged is looked at even where it changes nothing.
        """
        sizes = delta_sizes(self._session)
        if sum(sizes.values()) > self._room or any(sizes[kind] for kind in sizes.keys() - TABLES_OF_KIND.keys()):
            return False
        if not may_be_plain(self._connection):
            return False
        with self._session.looking_up():
            self._changed = note_changed(self._session, self._connection, asked=asked)
            if sum(self._changed.values()) > self._room:
                return False
            for tables in MODEL_TABLES:
                if tables.kind in self._changed:
                    self._left_out.subtract(left_out_before(self._connection, tables, itself=True))
        return True

    def compute(self) -> bool:
        """Fills the deltas with what the change comes to in the access model; False where it touches too much."""
        connection = self._connection
        if not may_be_plain(connection):
            return False
        if self._session.on_candidate:
            # What a candidate changes stands in tables of its own, made after the views.
            for tables in MODEL_TABLES:
                show(connection, tables, tables.source.name)
        self._session.run_all(str(statement) for tables in MODEL_TABLES for statement in clear(tables))
        touched = sum(self._changed.values())
        come_or_gone: set[str] = set()
        with self._session.looking_up():
            for tables in MODEL_TABLES:
                references = [one for one in tables.kind_table.references if one.kind in come_or_gone]
                if not references and tables.kind not in self._changed:
                    continue
                more = touch_referring(connection, tables, references, self._room)
                if tables.kind == Folder.kind:
                    more += touch_below(connection, tables, self._room)
                touched += more
                if touched > self._room or TOUCHED.run(connection, _not_plain, tables).first() is not None:
                    return False
                if more:
                    self._left_out.subtract(left_out_before(connection, tables, itself=False))
                merge_kind(connection, tables, TOUCHED, several_sources=self._several)
                for row in TOUCHED.run(connection, _left_out_now, tables).all():
                    self._left_out[row.source_id, row.cause == LeftOutCause.OWNED_ELSEWHERE] += row.records
                if compare_kind(connection, tables, TOUCHED):
                    self._differs.append(tables)
                    if TOUCHED.run(connection, _comes_or_goes, tables).first() is not None:
                        come_or_gone.add(tables.kind)
                self._merged.append(tables)
        return True

    def report(self, problems: ProblemList) -> None:
        """Adds what was left out to the problems, as the merge of everything does."""
        report_left_out(self._connection, TOUCHED, self._names, problems, self._merged)

    def staged_left_out(self) -> list[Problem]:
        """What was staged and does not count, each at the place where it was staged; for ``asked``."""
        with self._session.looking_up():
            return staged_left_out(self._connection, TOUCHED, self._names)

    def carry_out(self, problems: ProblemList, now_ms: int) -> Replaced:
        """Changes the access model. ``problems`` gets those that the change is to blame for."""
        connection = self._connection
        cycles = CyclesAround(connection, self._names) if self._members_differ() else None
        before = cycles.count() if cycles else 0
        changes = carry_out_access_changes(connection, self._differs)
        more = (cycles.count(problems) if cycles else 0) - before
        for (source_id, owned_elsewhere), count in self._left_out.items():
            if count and not owned_elsewhere:
                connection.execute(
                    update(SOURCE).where(SOURCE.c.source_id == source_id).values(dangling=SOURCE.c.dangling + count)
                )
            if source_id not in self._retained:
                more += count
        known = connection.execute(select(STATE.c.merge_problems)).scalar_one()
        return close_revision(connection, changes, known + more, now_ms)

    def _members_differ(self) -> bool:
        return any(tables.kind == GroupMember.kind for tables in self._differs)


def may_be_plain(connection: Connection) -> bool:
    """Whether the sources' records can be taken as they are, but for what ``_not_plain`` looks for."""
    if connection.execute(select(_FILLS.c.source_id).limit(1)).first() is not None:
        return False
    return not any(names_aliases(connection, tables) for tables in MODEL_TABLES if tables.record_kind.names_user)


def _not_plain(tables: ModelTables, scope: Scope) -> Select[Any]:
    """Of the touched keys, one that a source gives several times, or that of a user who has or had aliases."""
    source = tables.source
    columns = [source.c[name] for name in tables.given_keys]
    looked_at = select(literal(1)).where(scope.within(tables, source))
    found: Select[Any] = looked_at.group_by(*columns).having(func.count() > 1)
    if tables.kind == User.kind:
        found = looked_at.group_by(*columns).having(or_(func.count() > 1, func.max(source.c.aliases) != NO_ALIASES))
        had = select(literal(1)).where(ACCESS_ALIAS.c.user_id.in_(select(tables.touched.c.user_id)))
        return union_all(found, had).subquery().select().limit(1)
    return found.limit(1)


_FILLS = SOURCE_TABLES[Fill.kind]


def _left_out_now(tables: ModelTables, _scope: Scope) -> Select[tuple[int, int, int]]:
    left_out = tables.left_out
    return select(left_out.c.source_id, left_out.c.cause, func.count().label("records")).group_by(
        left_out.c.source_id, left_out.c.cause
    )


def _comes_or_goes(tables: ModelTables, _scope: Scope) -> Select[tuple[int]]:
    return select(tables.delta.c.change).where(tables.delta.c.change != int(RowChange.UPDATE)).limit(1)
