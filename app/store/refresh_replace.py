"""How does the access model follow the sources' records?

What differs is worked out in a snapshot and carried out in one short transaction, which moves the revision on by one.
Where nothing differs the revision stays; only the very first model is a revision even when it is empty, because "the
directory says that there is nothing" is not the same as "the directory was never read".
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, and_, case, exists, func, insert, literal, or_, select, update
from sqlalchemy import delete as delete_from

from app.store.access_tables import RevisionRow
from app.store.directory_tables import DirectoryStateRow
from app.store.record_tables import core_table
from app.store.refresh_changes import ChangeCounts, carry_out, counted
from app.store.refresh_cycles import report_group_cycles
from app.store.refresh_merge import counts, find_left_out
from app.store.refresh_problems import ProblemList
from app.store.refresh_reasons import report_left_out
from app.store.refresh_staging import SOURCE
from app.store.refresh_tables import BENCHES, Change, same
from app.store.refresh_workbench import Workbench

REVISION = core_table(RevisionRow)
STATE = core_table(DirectoryStateRow)


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
    return int(connection.execute(select(func.coalesce(func.max(REVISION.c.revision), 0))).scalar_one())


def is_up_to_date(connection: Connection) -> bool:
    """Whether merging again would find nothing new: the same records as last time, and nothing wrong with them."""
    state = connection.execute(select(STATE)).one()
    if state.merged_generation != state.generation or state.merge_problems:
        return False
    return revision_in_force(connection) > 0


def compute_access_changes(
    workbench: Workbench, connection: Connection, names: Mapping[int, str], problems: ProblemList
) -> None:
    """Merges the sources' records and fills the deltas with what that changes in the access model."""
    find_left_out(workbench, connection)
    report_left_out(connection, names, problems)
    report_group_cycles(workbench, connection, names, problems)
    for bench in BENCHES:
        source, access, delta = bench.source, bench.access, bench.delta
        count = counts(bench, connection)
        connection.execute(delete_from(delta))
        columns = [*bench.source_keys, "change"]
        missing = access.c[bench.keys[0]].is_(None)
        changed = (
            select(
                *(source.c[name] for name in bench.source_keys),
                case((missing, int(Change.ADD)), else_=int(Change.UPDATE)),
            )
            .select_from(source.outerjoin(access, same(source, access, bench.keys)))
            .where(or_(missing, *(source.c[name].is_distinct_from(access.c[name]) for name in bench.compared)), count)
        )
        connection.execute(insert(delta).from_select(columns, changed))
        gone = select(*(access.c[name] for name in bench.keys), literal(0), literal(int(Change.REMOVE))).where(
            ~exists().where(and_(same(source, access, bench.keys), count))
        )
        connection.execute(insert(delta).from_select(columns, gone))


def carry_out_access_changes(connection: Connection, merge_problems: int, now_ms: int) -> Replaced:
    """Does what the deltas say, in the transaction of the connection."""
    changes: dict[str, ChangeCounts] = {}
    for bench in BENCHES:
        by_source = counted(connection, bench).values()
        changes[bench.kind] = ChangeCounts(
            added=sum(one.added for one in by_source),
            updated=sum(one.updated for one in by_source),
            removed=sum(one.removed for one in by_source),
        )
        if changes[bench.kind].any:
            carry_out(connection, bench, bench.access, bench.keys, bench.source)
    connection.execute(update(STATE).values(merged_generation=STATE.c.generation, merge_problems=merge_problems))
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
        changes={bench.kind: ChangeCounts() for bench in BENCHES},
    )


def _any_source_was_read(connection: Connection) -> bool:
    return connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.read_in_force > 0)).first() is not None
