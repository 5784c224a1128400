"""The merging of sources: which of their records do not count, and what that changes in the access model.

The rules: ``app/model/README.md``, "From a read to a revision".

In this order, kind by kind, so that whatever refers to a record that is left out is left out after it:

1. records whose key belongs to a source further up;
2. records that refer to something that nobody gives, or that is left out. For folders this means those from which no
   way leads to the top: that one rule catches missing parents, cycles, and all that hangs below either. An alias that
   nobody has, or that several have, is no user.

What the sources give is sorted out first (``given.py``), and users get what fills add to them (``fills.py``).

It is all done by the database, set by set; the memory needed here does not grow with the directory. Which keys it is
done for says the scope.
"""

from collections import Counter

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Insert,
    Table,
    and_,
    case,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
)

from app.access.records import Folder
from app.database.engine import run_plainly
from app.model.refresh.given import NOBODY
from app.model.refresh.scope import MergeScope
from app.model.refresh.scratch import (
    REACHED_FOLDER,
    SCRATCH_TABLES,
    LeftOutCause,
    ModelTables,
    RowChange,
    ScratchTables,
    same,
)
from app.model.refresh.staging import SOURCE
from app.store.record_tables import Reference

_DANGLING = " UNION ALL ".join(
    f"SELECT source_id, COUNT(*) FROM {tables.left_out.name}"  # noqa: S608 - our own tables
    f" WHERE cause <> {int(LeftOutCause.OWNED_ELSEWHERE)} GROUP BY source_id"
    for tables in SCRATCH_TABLES
)

_FOLDER_KEY = ("organization_id", "folder_id")

_SOURCES = select(func.count()).select_from(SOURCE)


def merge_kind(connection: Connection, tables: ModelTables, scope: MergeScope, *, several_sources: bool) -> None:
    """Fills the kind's ``left_out`` from the sources' kept records, as this connection's transaction sees them.

    The kinds that it refers to have been merged."""
    if several_sources:
        scope.leave_out(connection, _leave_out_owned_elsewhere, tables)
    if tables.kind == Folder.kind:
        run_plainly(connection, [f"DELETE FROM {REACHED_FOLDER.name}"])  # noqa: S608 - our own table
        scope.run(connection, _reach_folders, tables)
        scope.leave_out(connection, _leave_out_unreached_folders, tables)
    else:
        if tables.record_kind.names_user:
            scope.leave_out(connection, _leave_out_unresolved, tables)
        for reference in tables.references:
            scope.leave_out(connection, _leave_out_dangling, tables, reference)


def compare_kind(connection: Connection, tables: ModelTables, scope: MergeScope) -> int:
    """Fills the kind's ``delta``, which is empty, with what differs in the access model; how many rows."""
    if not scope.may_stand(connection, tables):
        return scope.run(connection, _new, tables).rowcount
    return scope.run(connection, _differing, tables).rowcount + scope.run(connection, _gone, tables).rowcount


def several_sources(connection: Connection) -> bool:
    """Whether a key can be given by more than one."""
    return connection.execute(_SOURCES).scalar_one() > 1


def dangling_by_source(connection: Connection) -> dict[int, int]:
    """Source → how many of its records refer to something that does not count, after everything was merged."""
    found = Counter[int]()
    for source_id, records in connection.exec_driver_sql(_DANGLING):
        found[source_id] += records
    return found


def owned_elsewhere(tables: ModelTables, given: Table, mine: FromClause) -> ColumnElement[bool]:
    """The condition that a source further up than ``mine`` gives the row of ``given`` as well."""
    other, theirs = given.alias("other"), SOURCE.alias("theirs")
    return exists(
        select(other.c.source_id)
        .select_from(other.join(theirs, theirs.c.source_id == other.c.source_id))
        .where(same(other, given, tables.owned_keys), theirs.c.position < mine.c.position)
    )


def clear(tables: ScratchTables) -> list[str]:
    """The statements that empty what merging fills."""
    return [f"DELETE FROM {table.name}" for table in (tables.left_out, tables.delta)]  # noqa: S608 - our own tables


# The rules, each one statement.


def _leave_out_owned_elsewhere(tables: ModelTables, scope: MergeScope) -> Insert:
    given = scope.given(tables)
    mine = SOURCE.alias("mine")
    losing = (
        select(*(given.c[name] for name in tables.given_keys), literal(int(LeftOutCause.OWNED_ELSEWHERE)))
        .select_from(given.join(mine, mine.c.source_id == given.c.source_id))
        .where(scope.within(tables, given), owned_elsewhere(tables, given, mine))
    )
    return insert(tables.left_out).from_select([*tables.given_keys, "cause"], losing)


def _leave_out_dangling(tables: ModelTables, scope: MergeScope, reference: Reference) -> Insert:
    given = scope.given(tables)
    dangling = select(*(given.c[name] for name in tables.given_keys), literal(int(LeftOutCause.DANGLING))).where(
        scope.within(tables, given),
        given.c[reference.columns[-1]] != "",
        scope.counts(tables),
        ~scope.stands(reference, tuple(given.c[name] for name in reference.columns)),
    )
    return insert(tables.left_out).from_select([*tables.given_keys, "cause"], dangling)


def _leave_out_unresolved(tables: ModelTables, scope: MergeScope) -> Insert:
    given = scope.given(tables)
    is_known = exists().where(scope.holders.c.alias == given.c.user_alias)
    cause = case((is_known, int(LeftOutCause.AMBIGUOUS)), else_=int(LeftOutCause.DANGLING))
    unresolved = select(*(given.c[name] for name in tables.given_keys), cause).where(
        scope.within(tables, given), given.c.user_alias != NOBODY, scope.counts(tables)
    )
    return insert(tables.left_out).from_select([*tables.given_keys, "cause"], unresolved)


def _reach_folders(tables: ModelTables, scope: MergeScope) -> Insert:
    given = scope.given(tables)
    looked_at = and_(scope.within(tables, given), scope.counts(tables))
    organization = tables.kind_table.references[0]
    at_the_top = or_(
        given.c.parent_folder_id == "", scope.holds_folder((given.c.organization_id, given.c.parent_folder_id))
    )
    reached = (
        select(given.c.organization_id, given.c.folder_id)
        .where(looked_at, at_the_top, scope.stands(organization, (given.c.organization_id,)))
        .cte("reached", recursive=True)
    )
    below = select(given.c.organization_id, given.c.folder_id).select_from(
        reached.join(
            given,
            and_(
                given.c.organization_id == reached.c.organization_id,
                given.c.parent_folder_id == reached.c.folder_id,
                looked_at,
            ),
        )
    )
    reached = reached.union(below)
    return insert(REACHED_FOLDER).from_select(list(_FOLDER_KEY), select(reached))


def _leave_out_unreached_folders(tables: ModelTables, scope: MergeScope) -> Insert:
    given = scope.given(tables)
    unreachable = select(*(given.c[name] for name in tables.given_keys), literal(int(LeftOutCause.UNREACHABLE))).where(
        scope.within(tables, given), scope.counts(tables), ~exists().where(same(REACHED_FOLDER, given, _FOLDER_KEY))
    )
    return insert(tables.left_out).from_select([*tables.given_keys, "cause"], unreachable)


def _differing(tables: ModelTables, scope: MergeScope) -> Insert:
    given, access = scope.given(tables), tables.access
    missing = access.c[tables.keys[0]].is_(None)
    changed = (
        select(
            *(given.c[name] for name in tables.given_keys),
            case((missing, int(RowChange.ADD)), else_=int(RowChange.UPDATE)),
        )
        .select_from(given.outerjoin(access, same(given, access, tables.keys)))
        .where(
            scope.within(tables, given),
            or_(missing, *(given.c[name].is_distinct_from(access.c[name]) for name in tables.model_compared)),
            scope.counts(tables),
        )
    )
    return insert(tables.delta).from_select([*tables.given_keys, "change"], changed)


def _new(tables: ModelTables, scope: MergeScope) -> Insert:
    """All that counts, where the access model has none of the kind."""
    given = scope.given(tables)
    keys = [given.c[name] for name in tables.given_keys]
    new = select(*keys, literal(int(RowChange.ADD))).where(scope.within(tables, given), scope.counts(tables))
    return insert(tables.delta).from_select([*tables.given_keys, "change"], new)


def _gone(tables: ModelTables, scope: MergeScope) -> Insert:
    given, access = scope.given(tables), tables.access
    gone = select(*(access.c[name] for name in tables.keys), literal(0), literal(int(RowChange.REMOVE))).where(
        scope.within(tables, access),
        ~exists().where(and_(same(given, access, tables.keys), scope.counts(tables))),
    )
    return insert(tables.delta).from_select([*tables.keys, "source_id", "change"], gone)
