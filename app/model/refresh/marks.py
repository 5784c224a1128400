"""Marks of what was pushed while a read was under way, so that a read that began before a push does not undo it.

A read takes its number when it begins. A push marks each of its keys with how many reads of its source had begun: those
up to that number cannot know of it. When one of them ends, it leaves the marked keys as they are, whether they were
given or removed by the push; a read that began later says what holds, and takes the marks away.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sqlalchemy import Connection, Table, select
from sqlalchemy import delete as delete_from

from app.database.statements import run, statement
from app.model.refresh.scratch import SCRATCH_TABLES, RowChange, ScratchTables
from app.model.refresh.staging import FAILED, SOURCE, StagedRead
from app.store.push_tables import DirectoryPushRow, PushedKeyRow
from app.store.record_tables import core_table

MARK: Table = core_table(PushedKeyRow)
PUSH: Table = core_table(DirectoryPushRow)

Key = tuple[str, ...]
"""The ids that identify a record within its kind, in the order of the columns of its table."""

_MARK = """
INSERT INTO pushed_key (source_id, kind, key_digest, key, read_number)
VALUES (:source_id, :kind, :key_digest, :key, :read_number)
ON CONFLICT (source_id, kind, key_digest) DO UPDATE SET read_number = excluded.read_number
"""

_SPARE = """
DELETE FROM {delta} WHERE source_id = :source_id AND ({columns}) IN (
  SELECT {parts} FROM pushed_key WHERE source_id = :source_id AND kind = '{kind}' AND read_number >= :read_number)
"""


_MARKED_KINDS = (
    "SELECT DISTINCT kind FROM pushed_key WHERE source_id = :source_id AND read_number >= :read_number ORDER BY kind"
)

_ANY_KNOWN = "SELECT 1 FROM pushed_key WHERE source_id = :source_id AND read_number < :read_number LIMIT 1"

_DROP_KNOWN = "DELETE FROM pushed_key WHERE source_id = :source_id AND read_number < :read_number"


def pushed_keys(tables: ScratchTables) -> tuple[str, ...]:
    """The columns by which pushes name a record: what it was made from and by does not concern them."""
    return tuple(name for name in tables.given_keys if name != "source_id")


def mark(connection: Connection, source_id: int, keys: Iterable[tuple[str, Key]]) -> None:
    """Marks keys (kind and ids) that are pushed now, where a read of the source may be under way."""
    begun, in_force = connection.execute(
        select(SOURCE.c.reads_begun, SOURCE.c.read_in_force).where(SOURCE.c.source_id == source_id)
    ).one()
    if begun == in_force:
        # The last read that began has ended well, so none is under way that could undo anything.
        return
    rows = [
        {"source_id": source_id, "kind": kind, "key_digest": _digest(key), "key": key, "read_number": begun}
        for kind, key in sorted((kind, _text(ids)) for kind, ids in keys)
    ]
    if rows:
        connection.execute(statement(connection, _MARK), rows)


def spare_pushed(connection: Connection, reads: Sequence[StagedRead]) -> None:
    """Takes out of the deltas what was pushed after the reads had begun."""
    for read in reads:
        if read.verdict == FAILED:
            continue
        of_read = {"source_id": read.source_id, "read_number": read.number}
        kinds = set(run(connection, _MARKED_KINDS, of_read).scalars())
        for tables in SCRATCH_TABLES:
            if tables.kind in kinds:
                run(
                    connection,
                    _SPARE,
                    of_read,
                    delta=tables.delta.name,
                    columns=", ".join(pushed_keys(tables)),
                    parts=", ".join(f"@part(key, {index})" for index in range(len(pushed_keys(tables)))),
                    kind=tables.kind,
                )


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
    """Takes away the marks that reads which ended well knew of, and all that is known of sources that are forgotten."""
    for read in reads:
        if read.verdict != FAILED:
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
