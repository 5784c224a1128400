"""Marks: the keys that were pushed to a source since its last complete read.

The rules: ``app/ingest/README.md``, "Reads and pushes".

A read takes its number when it begins, and a push marks its keys with the number of reads that had begun. A read with
that number or a lower one does not know of the push, so it leaves what was pushed as it is. A read that began later
knows what the source says now, so it removes what was pushed.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sqlalchemy import Connection, Table, select, update
from sqlalchemy import delete as delete_from

from app.database.statements import run, statement
from app.model.refresh.scratch import SCRATCH_TABLES, RowChange, ScratchTables
from app.model.refresh.staging import COMPLETE, FAILED, PART, SOURCE, StagedRead
from app.store.directory_tables import DirectoryStateRow
from app.store.push_tables import DirectoryPushRow, PushedKeyRow
from app.store.record_tables import core_table

MARK: Table = core_table(PushedKeyRow)
PUSH: Table = core_table(DirectoryPushRow)

_STATE: Table = core_table(DirectoryStateRow)
_NEXT_GENERATION = update(_STATE).values(generation=_STATE.c.generation + 1)

Key = tuple[str, ...]
"""The ids that identify a record within its kind, in the order of the columns of its table."""

_MARK = """
INSERT INTO pushed_key (source_id, kind, key_digest, key, read_number)
VALUES (:source_id, :kind, :key_digest, :key, :read_number)
ON CONFLICT (source_id, kind, key_digest) DO UPDATE SET read_number = excluded.read_number
"""

# The rows of the source's objects change below a pushed record, which hides them. Below a removal they must not come.
_SPARE = """
DELETE FROM {delta} WHERE source_id = :source_id AND ({columns}) IN (
  SELECT {parts} FROM pushed_key WHERE source_id = :source_id AND kind = '{kind}' AND read_number >= :read_number)
AND (origin = '' OR NOT EXISTS (
  SELECT 1 FROM {source} s WHERE {same} AND s.source_id = :source_id AND s.origin = ''))
"""

# A cross join keeps SQLite from reading the source's table to look its rows up among the marks.
_REMOVE_KNOWN = """
INSERT INTO {delta} ({source_keys}, change)
SELECT {found}, {remove}
FROM pushed_key m CROSS JOIN {source} s
WHERE m.source_id = :source_id AND m.kind = '{kind}' AND m.read_number < :read_number
AND {of_mark} AND s.source_id = :source_id AND s.origin = ''
AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {same_staged} AND t.origin = '')
AND (:is_complete = 1 OR EXISTS (SELECT 1 FROM {staged} t WHERE {same_staged}))
"""

_KINDS_OF_LATER = (
    "SELECT DISTINCT kind FROM pushed_key WHERE source_id = :source_id AND read_number >= :read_number ORDER BY kind"
)

_KINDS_OF_KNOWN = (
    "SELECT DISTINCT kind FROM pushed_key WHERE source_id = :source_id AND read_number < :read_number ORDER BY kind"
)

_ANY_KNOWN = "SELECT 1 FROM pushed_key WHERE source_id = :source_id AND read_number < :read_number LIMIT 1"

_ANY = "SELECT 1 FROM pushed_key WHERE source_id = :source_id LIMIT 1"

_DROP_KNOWN = "DELETE FROM pushed_key WHERE source_id = :source_id AND read_number < :read_number"


def pushed_keys(tables: ScratchTables) -> tuple[str, ...]:
    """The columns by which pushes name a record: what it was made from and by does not concern them."""
    return tuple(name for name in tables.given_keys if name != "source_id")


def mark(connection: Connection, source_id: int, keys: Iterable[tuple[str, Key]], *, only_pushed: bool) -> None:
    """Marks keys (kind and ids) that are pushed now. ``only_pushed``: the source is not read, except while everything
    is pushed to it."""
    begun, in_force = connection.execute(
        select(SOURCE.c.reads_begun, SOURCE.c.read_in_force).where(SOURCE.c.source_id == source_id)
    ).one()
    may_be_read = begun != in_force
    if only_pushed and not may_be_read:
        return
    rows = [
        {"source_id": source_id, "kind": kind, "key_digest": _digest(key), "key": key, "read_number": begun}
        for kind, key in sorted((kind, _text(ids)) for kind, ids in keys)
    ]
    if rows:
        connection.execute(statement(connection, _MARK), rows)
    if rows and may_be_read:
        # A read that has compared already compares again, even if the push changed no record.
        connection.execute(_NEXT_GENERATION)


def is_marked(connection: Connection, source_id: int) -> bool:
    """Whether anything was pushed to the source since its last complete read."""
    return run(connection, _ANY, {"source_id": source_id}).first() is not None


def spare_pushed(connection: Connection, reads: Sequence[StagedRead]) -> None:
    """Removes from the deltas what would undo pushes that came after the reads had begun."""
    for read in reads:
        if read.verdict == FAILED:
            continue
        of_read = {"source_id": read.source_id, "read_number": read.number}
        kinds = set(run(connection, _KINDS_OF_LATER, of_read).scalars())
        for tables in SCRATCH_TABLES:
            if tables.kind in kinds:
                keys = pushed_keys(tables)
                run(
                    connection,
                    _SPARE,
                    of_read,
                    delta=tables.delta.name,
                    source=tables.source.name,
                    columns=", ".join(keys),
                    parts=", ".join(f"@part(key, {index})" for index in range(len(keys))),
                    same=" AND ".join(f"s.{name} = {tables.delta.name}.{name}" for name in keys),
                    kind=tables.kind,
                )


def remove_known(connection: Connection, reads: Sequence[StagedRead]) -> None:
    """Adds to the deltas that what was pushed before the reads began is removed: all of it if the read is complete,
    otherwise what the read gives itself.

    A read of everything needs this for partial reads only: what a complete one does not give is removed anyway."""
    for read in reads:
        if read.verdict == FAILED or (read.verdict == COMPLETE and not read.answered):
            continue
        of_read = {"source_id": read.source_id, "read_number": read.number}
        kinds = set(run(connection, _KINDS_OF_KNOWN, of_read).scalars())
        for tables in SCRATCH_TABLES:
            if tables.kind in kinds:
                keys = pushed_keys(tables)
                run(
                    connection,
                    _REMOVE_KNOWN,
                    of_read | {"is_complete": int(_knows_all(read))},
                    delta=tables.delta.name,
                    source=tables.source.name,
                    staged=tables.staged.name,
                    source_keys=", ".join(tables.source_keys),
                    found=", ".join(f"s.{name}" for name in tables.source_keys),
                    remove=str(int(RowChange.REMOVE)),
                    of_mark=" AND ".join(f"s.{name} = @part(m.key, {index})" for index, name in enumerate(keys)),
                    same_staged=" AND ".join(f"t.{name} = s.{name}" for name in tables.given_keys),
                    kind=tables.kind,
                )


def _knows_all(read: StagedRead) -> bool:
    """Whether what the read does not give is as it was when it was last read, or gone."""
    return read.verdict == COMPLETE and read.answered != PART


@dataclass(frozen=True, slots=True)
class About:
    """What a read is about, where whoever gives it has no say in the rest."""

    kinds: frozenset[str]
    """Empty: all."""
    organizations: frozenset[str]
    """Empty: all. Otherwise kinds that belong to no organization are among ``kinds``, or not meant."""


def spare_the_rest(connection: Connection, source_id: int, about: About) -> None:
    """Takes out of the deltas what would be gone because a read that is not about it did not give it."""
    for tables in SCRATCH_TABLES:
        delta = tables.delta
        gone = delta.c.source_id == source_id, delta.c.change == RowChange.REMOVE
        if about.kinds and tables.kind not in about.kinds:
            connection.execute(delete_from(delta).where(*gone))
        elif about.organizations and "organization_id" not in tables.keys:
            if tables.kind not in about.kinds:
                connection.execute(delete_from(delta).where(*gone))
        elif about.organizations:
            connection.execute(delete_from(delta).where(*gone, delta.c.organization_id.not_in(about.organizations)))


def drop_marks(connection: Connection, reads: Sequence[StagedRead], forgotten: Collection[int]) -> None:
    """Removes the marks that complete reads knew of, and all that is known of sources that are forgotten."""
    for read in reads:
        if _knows_all(read):
            of_read = {"source_id": read.source_id, "read_number": read.number}
            if run(connection, _ANY_KNOWN, of_read).first() is not None:
                run(connection, _DROP_KNOWN, of_read)
    if forgotten:
        for table in (MARK, PUSH):
            connection.execute(delete_from(table).where(table.c.source_id.in_(list(forgotten))))


def _text(key: Key) -> str:
    return json.dumps(key, ensure_ascii=False)


def _digest(key: str) -> str:
    return blake2b(key.encode(), digest_size=16).hexdigest()
