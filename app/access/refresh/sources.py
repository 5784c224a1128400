"""Stores the sources: their order, how each was last read, and the objects to read again for a user.

The records of a source that is no longer configured stay until an operator forgets it (``Refresh.forget``). A source's
name is its path unless it has one, so another path is another source: nobody may lose access because a setting was
changed.
"""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    case,
    delete,
    insert,
    literal,
    literal_column,
    or_,
    select,
    text,
    union,
    update,
)

from app.access.change_counts import SourceCounts, changes_to_json
from app.access.refresh.reads import COMPLETE, FAILED, PART, Refusal, StagedRead, StartedRead
from app.access.refresh.tables import REFRESH_TABLES
from app.access.source_tables import DirectorySourceRow, DirectoryStateRow, object_of_origin
from app.access.tables import ModelUserAliasRow
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import is_sqlite, writing
from app.foundation.text import quoted

SOURCE: Table = DirectorySourceRow.__table__
STATE: Table = DirectoryStateRow.__table__
MODEL_ALIAS: Table = ModelUserAliasRow.__table__

UNCONFIGURED_POSITION = 1_000_000
"""The position of the first source that is no longer configured: these come last."""

MAX_OBJECTS = 10_000
"""If there are more objects, everything is read. That is faster than reading them one by one."""


class SourceError(ValueError):
    """A request about a source is not possible. The message is one line for operators."""


def lock_refreshes(connection: Connection) -> None:
    """Waits until no other refresh or push writes. On SQLite, the write lock of the transaction does that."""
    if not is_sqlite(connection):
        connection.execute(text("LOCK TABLE directory_state IN EXCLUSIVE MODE"))


def make_state(connection: Connection) -> None:
    """Adds the row of ``directory_state`` if it is missing."""
    if connection.execute(select(STATE.c.state_id)).first() is None:
        connection.execute(insert(STATE).values(state_id=1))


def count_change(connection: Connection) -> None:
    """Counts a transaction that changes records of sources, or the order of the sources."""
    connection.execute(update(STATE).values(changes=STATE.c.changes + 1))


def add_source(connection: Connection, name: str, position: int) -> int:
    """Adds a source that was never read. Returns its id."""
    added = insert(SOURCE).values(name=name, position=position).returning(SOURCE.c.source_id)
    return int(connection.execute(added).scalar_one())


def begin_reads(connection: Connection, names: Sequence[str], read: Collection[str]) -> list[StartedRead]:
    """Adds new sources, and numbers the reads that begin now. ``read``: the sources that are read."""
    started = []
    stored_names = set(connection.execute(select(SOURCE.c.name)).scalars())
    for position, name in enumerate(names):
        if name not in stored_names:
            add_source(connection, name, position)
        of_name = SOURCE.c.name == name
        if name in read:
            connection.execute(update(SOURCE).where(of_name).values(reads_begun=SOURCE.c.reads_begun + 1))
        row = connection.execute(select(SOURCE).where(of_name)).one()
        number = row.reads_begun if name in read else 0
        started.append(StartedRead(row.source_id, name, number, row.cursor, row.settings_digest, row.last_full_at))
    return started


def sources_to_forget(connection: Connection, configured: Collection[int]) -> list[int]:
    """The sources that are no longer configured and have no records."""
    empty = select(SOURCE.c.source_id).where(SOURCE.c.source_id.not_in(configured), SOURCE.c.records == 0)
    return list(connection.execute(empty).scalars())


def retained_source(connection: Connection, name: str) -> int:
    """The id of a source that is no longer configured. Raises ``SourceError`` if there is none of that name."""
    source_id = connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == name)).scalar()
    if source_id is None:
        retained = select(SOURCE.c.name).where(SOURCE.c.position >= UNCONFIGURED_POSITION).order_by(SOURCE.c.name)
        others = ", ".join(connection.execute(retained).scalars()) or "none"
        raise SourceError(f"nothing is in force of a source called {quoted(name)}; no longer configured: {others}")
    return int(source_id)


def unconfigured_sources(connection: Connection, configured: Collection[int]) -> tuple[str, ...]:
    """The names of the sources that have records but are not configured."""
    names = select(SOURCE.c.name).where(SOURCE.c.source_id.not_in(configured), SOURCE.c.records > 0)
    return tuple(connection.execute(names.order_by(SOURCE.c.name)).scalars())


def order_of_sources(connection: Connection) -> list[int]:
    """The sources that have records, the most authoritative first."""
    query = select(SOURCE.c.source_id).where(SOURCE.c.records > 0).order_by(SOURCE.c.position, SOURCE.c.source_id)
    return list(connection.execute(query).scalars())


def is_reordered(connection: Connection, before: Sequence[int]) -> bool:
    """Whether the order of the sources changed. ``before``: ``order_of_sources`` as it was.

    Sources that had no records before, or have none now, own only keys that are merged anyway.
    """
    after = [source_id for source_id in order_of_sources(connection) if source_id in before]
    return after != [source_id for source_id in before if source_id in after]


def store_positions(connection: Connection, positions: Mapping[int, int]) -> None:
    """Stores the position of every source (source → position). Those without one come last."""
    is_any_moved = False
    stored = connection.execute(select(SOURCE.c.source_id, SOURCE.c.position).order_by(SOURCE.c.name)).all()
    for index, (source_id, position) in enumerate(stored):
        new = positions.get(source_id, UNCONFIGURED_POSITION + index)
        if new != position:
            connection.execute(update(SOURCE).where(SOURCE.c.source_id == source_id).values(position=new))
            is_any_moved = True
    if is_any_moved:
        count_change(connection)


def configured_source(connection: Connection, name: str) -> int | None:
    """The id of a source with a position in the configuration. None: nothing of it was read or pushed so far."""
    query = select(SOURCE.c.source_id).where(SOURCE.c.name == name, SOURCE.c.position < UNCONFIGURED_POSITION)
    return connection.execute(query).scalar()


def configure_source(connection: Connection, name: str, configured: Sequence[str]) -> int:
    """Stores the position of a source that is new, or was not configured before. Returns its id. ``configured``: the
    names of all sources in their order."""
    lock_refreshes(connection)
    make_state(connection)
    columns = select(SOURCE.c.name, SOURCE.c.source_id, SOURCE.c.position)
    stored = {row.name: row for row in connection.execute(columns)}
    before = order_of_sources(connection)
    for position, other in enumerate(configured):
        if other in stored and stored[other].position != position:
            connection.execute(update(SOURCE).where(SOURCE.c.name == other).values(position=position))
            count_change(connection)
    if is_reordered(connection, before):
        connection.execute(update(STATE).values(merge_all=True))
    return int(stored[name].source_id) if name in stored else add_source(connection, name, configured.index(name))


def find_objects(
    connection: Connection, source_id: int, organization_ids: Collection[str], user_ids: Collection[str]
) -> Sequence[tuple[str, str]] | None:
    """Finds the objects (set and id) whose records name one of the users, by id or alias, or one of the organizations.

    With both, they name one of each if their kind names both. The objects are sorted. None: there are too many of them,
    or some have ids that are not stored.
    """
    queries = []
    for tables in REFRESH_TABLES:
        source = tables.source
        conditions: list[ColumnElement[bool]] = []
        if organization_ids and "organization_id" in source.c:
            conditions.append(source.c.organization_id.in_(organization_ids))
        if user_ids and "user_id" in source.c:
            names_user: list[ColumnElement[bool]] = [source.c.user_id.in_(user_ids)]
            if tables.record_kind.may_use_alias:
                # Written out: the databases use a partial index only if they see its condition.
                has_alias = source.c.user_alias != literal_column("''")
                names_user.append(source.c.user_alias.in_(select_aliases(user_ids)) & has_alias)
            conditions.append(or_(*names_user))
        if conditions:
            of_source = source.c.source_id == source_id, source.c.origin != ""
            queries.append(select(source.c.origin).where(*of_source, *conditions))
    if not queries:
        return []
    origins = sorted(connection.execute(union(*queries).limit(MAX_OBJECTS + 1)).scalars())
    objects = [object_of_origin(origin) for origin in origins]
    if len(objects) > MAX_OBJECTS or any(object_id.startswith("#") for _, object_id in objects):
        return None
    return objects


def select_aliases(user_ids: Collection[str]) -> Select[str]:
    """A query for the aliases of these users."""
    return select(MODEL_ALIAS.c.alias).where(MODEL_ALIAS.c.user_id.in_(user_ids)).distinct()


def store_reads(
    connection: Connection,
    reads: Sequence[StagedRead],
    forgotten: Collection[int],
    counts: SourceCounts,
    now_ms: int,
) -> None:
    """Stores how each source was read."""
    for read in reads:
        if read.overtaken and read.answered:
            # The later read includes the same changes.
            continue
        of_source = {kind: of_kind[read.source_id] for kind, of_kind in counts.items() if read.source_id in of_kind}
        values = _columns_after(read, now_ms)
        values["records"] = SOURCE.c.records + sum(each.added - each.removed for each in of_source.values())
        if of_source:
            values |= {"last_changes": changes_to_json(of_source), "last_changed_at": now_ms}
        if read.answered == PART and of_source:
            # The cursor does not cover what this read found. If the source is restored to a state before that, only a
            # complete read notices it.
            values["cursor"] = ""
        connection.execute(update(SOURCE).where(SOURCE.c.source_id == read.source_id).values(values))
    if forgotten:
        connection.execute(delete(SOURCE).where(SOURCE.c.source_id.in_(forgotten)))


def _columns_after(read: StagedRead, now_ms: int) -> dict[str, object]:
    """The columns of a source after a read. Its cursor moves only together with the records that it is about."""
    values: dict[str, object] = {
        "malformed": read.malformed,
        "last_verdict": read.verdict,
        "last_reason": read.reason,
        "last_read_at": now_ms,
        "last_read_ms": round(read.seconds * 1000),
        "last_answered": read.answered,
        "refused": "" if read.refusal is None else read.refusal.reason,
        "login_refused": read.login_refused,
    }
    refusal = read.refusal
    if refusal is None and read.cursor_refused:
        refusal = Refusal(read.name, f"it did not accept the cursor: {read.cursor_refused}", None)
    if refusal is not None:
        acceptance = refusal.acceptance or ""
        values |= {"last_refusal": refusal.reason, "last_refusal_acceptance": acceptance, "last_refused_at": now_ms}
    if read.verdict != FAILED:
        values["last_good_at"] = now_ms
        # A read that caught up may have begun before another one that is in force.
        values["read_in_force"] = case(
            (SOURCE.c.read_in_force > read.number, SOURCE.c.read_in_force), else_=literal(read.number)
        )
    if read.verdict == COMPLETE:
        values["last_complete_at"] = now_ms
    if read.verdict != FAILED and read.removes_missing:
        if read.answered != PART:
            values["cursor"] = read.cursor
        if not read.answered:
            values |= {"settings_digest": read.settings_digest, "last_full_at": now_ms}
    return values


def confirm_pushed(engine: Engine, names: Collection[str], *, clock: Clock) -> None:
    """Stores that the records of sources that are never read are up to date."""
    now = epoch_ms(clock())
    with writing(engine) as connection:
        has_name = SOURCE.c.name.in_(names)
        read = {"last_verdict": COMPLETE, "last_reason": "", "last_read_at": now}
        connection.execute(update(SOURCE).where(has_name).values(read))
        with_pushes = has_name, SOURCE.c.last_good_at.is_not(None)
        connection.execute(update(SOURCE).where(*with_pushes).values(last_good_at=now, last_complete_at=now))
