"""The access model brought in line with the sources' records, and its revision moved on.

What differs is worked out in a snapshot and carried out in one short transaction, which moves the revision on by one.
Where nothing differs the revision stays; only the very first model is a revision even when it is empty, because "the
directory says that there is nothing" is not the same as "the directory was never read".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, bindparam, func, insert, select, update

from app.access.records import Fill, User
from app.model.former import keep_former
from app.model.refresh.aliases import collect_aliases
from app.model.refresh.changes import NOTHING, ChangeCounts, carry_out, counted
from app.model.refresh.counting import count_on
from app.model.refresh.cycles import report_group_cycles
from app.model.refresh.fills import apply_fills
from app.model.refresh.given import give, report_repeated
from app.model.refresh.merge import clear, compare_kind, merge_kind, several_sources
from app.model.refresh.naming import Naming
from app.model.refresh.problems import ProblemList
from app.model.refresh.reasons import report_left_out
from app.model.refresh.scope import Everything, MergeScope
from app.model.refresh.scratch import (
    FILLED_USER,
    MODEL_TABLES,
    RESOLVED_ALIAS,
    SCRATCH_TABLES_OF_KIND,
    ModelTables,
)
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import SOURCE
from app.store.access_tables import RevisionRow
from app.store.directory_tables import DirectoryStateRow
from app.store.record_tables import core_table

REVISION = core_table(RevisionRow)
STATE = core_table(DirectoryStateRow)

# Put together once: that takes longer than to execute them.
IN_FORCE = select(func.coalesce(func.max(REVISION.c.revision), 0))
_STATE = select(STATE)
_MERGED = update(STATE).values(merged_generation=STATE.c.generation, merge_problems=bindparam("problems"))
_PROBLEMS = select(STATE.c.merge_problems)
_RECORDS = select(func.coalesce(func.sum(SOURCE.c.records), 0))
_READ = select(SOURCE.c.source_id).where(SOURCE.c.read_in_force > 0).limit(1)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What became of the access model."""

    revision: int
    """The revision in force; 0 when there is none yet."""
    changed: bool
    changes: Mapping[str, ChangeCounts]
    """kind → counts, for every kind."""


def revision_in_force(connection: Connection) -> int:
    """The revision of the access model; 0 before the directory was ever read."""
    return int(connection.execute(IN_FORCE).scalar_one())


def merge_problems(connection: Connection) -> int:
    """How many problems the merge found that the access model comes from; 0 before there is one."""
    return int(connection.execute(_PROBLEMS).scalar() or 0)


def is_up_to_date(connection: Connection) -> bool:
    """Whether merging again would find nothing new: the same records as last time, and nothing wrong with them."""
    state = connection.execute(_STATE).one()
    if state.merged_generation != state.generation or state.merge_problems:
        return False
    return revision_in_force(connection) > 0


_CLEAR = (
    *(statement for tables in MODEL_TABLES for statement in clear(tables)),
    *(f"DELETE FROM {tables.combined.name}" for tables in MODEL_TABLES),  # noqa: S608 - our own tables
    *clear(SCRATCH_TABLES_OF_KIND[Fill.kind]),
    f"DELETE FROM {FILLED_USER.name}",  # noqa: S608 - as above
    f"DELETE FROM {RESOLVED_ALIAS.name}",  # noqa: S608 - as above
)
"""Empties what the merge of everything fills."""


def compute_access_changes(
    session: RefreshSession, connection: Connection, names: Mapping[int, str], problems: ProblemList, naming: Naming
) -> None:
    """Merges the sources' records, fills the deltas with what that changes in the access model, and notes names."""
    several = several_sources(connection)
    session.went_through(int(connection.execute(_RECORDS).scalar_one()))
    naming.begin()
    scope = Everything()
    session.run_all(_CLEAR)
    for tables in MODEL_TABLES:
        if give(connection, tables):
            session.analyze(tables.combined)
        merge_kind(connection, tables, scope, several_sources=several)
        session.analyze(tables.left_out)
        if tables.kind == User.kind:
            collect_aliases(connection)
            session.analyze(RESOLVED_ALIAS)
            apply_fills(connection)
            session.analyze(FILLED_USER)
        if compare_kind(connection, tables, scope):
            naming.note(connection, tables, scope)
    report_repeated(connection, names, problems)
    report_left_out(connection, scope, names, problems)
    report_group_cycles(session, connection, names, problems)


def carry_out_access_changes(
    connection: Connection, scope: MergeScope, naming: Naming, kinds: Iterable[ModelTables]
) -> dict[str, ChangeCounts]:
    """Does what the deltas of these kinds, which hold something, say, in the transaction of the connection; kind →
    counts, for every kind.

    ``scope``: that of the merge that has filled them; ``naming``: what was noted then."""
    changes = {tables.kind: NOTHING for tables in MODEL_TABLES}
    for tables in kinds:
        counts = changes[tables.kind] = counted(connection, tables)
        given = scope.given(tables)
        if counts.updated or counts.removed:
            keep_former(connection, tables, given)
        carry_out(connection, tables, tables.access, tables.keys, given, by=tables.given_keys, counts=counts)
        if naming.is_wanted:
            count_on(connection, tables, counts)
    naming.carry_out(connection)
    return changes


def close_revision(connection: Connection, changes: Mapping[str, ChangeCounts], problems: int, now_ms: int) -> Replaced:
    """Moves the revision on, if anything changed, and notes what the access model was merged from."""
    connection.execute(_MERGED, {"problems": problems})
    revision = revision_in_force(connection)
    changed = any(one.any for one in changes.values())
    if changed or (revision == 0 and _any_source_was_read(connection)):
        revision += 1
        told = {
            kind: {"added": one.added, "updated": one.updated, "removed": one.removed}
            for kind, one in changes.items()
            if one.any
        }
        connection.execute(
            insert(REVISION).values(revision=revision, created_at=now_ms, changes=orjson.dumps(told).decode())
        )
    return Replaced(revision=revision, changed=changed, changes=changes)


def nothing_changed(connection: Connection) -> Replaced:
    """The access model as it stands."""
    return Replaced(
        revision=revision_in_force(connection),
        changed=False,
        changes={tables.kind: NOTHING for tables in MODEL_TABLES},
    )


def _any_source_was_read(connection: Connection) -> bool:
    return connection.execute(_READ).first() is not None
