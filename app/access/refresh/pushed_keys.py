"""Keeps reads from undoing pushes: stores the keys and objects that were pushed since the last complete read.

The rules: ``app/service/push/README.md``, "Reads and pushes".

A read takes its number when it begins, and a push stores its keys with the number of reads that had begun. A read with
that number or a lower one does not include the push, so it leaves what was pushed as it is. A read that began later
includes it, so it removes what was pushed.

``refresh/tables.py`` explains ``{pushed_keys}``, and ``app.foundation.database.statements`` ``@part``.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b

from sqlalchemy import Connection, Table, delete, select

from app.access.refresh.reads import COMPLETE, FAILED, PART, StagedRead
from app.access.refresh.sources import SOURCE
from app.access.refresh.tables import REFRESH_TABLES
from app.access.source_tables import DirectoryPushRow, PushedKeyRow, ScimKeyRow, ScimMemberRow, ScimResourceRow
from app.foundation.database.statements import statement

PUSHED_KEY: Table = PushedKeyRow.__table__
PUSH: Table = DirectoryPushRow.__table__

_OF_SOURCE: Sequence[Table] = tuple(
    row.__table__ for row in (PushedKeyRow, DirectoryPushRow, ScimResourceRow, ScimKeyRow, ScimMemberRow)
)
"""The tables with what was pushed to a source."""

OBJECT = "object"
"""The kind of the key of an object, which is its origin."""

PushKey = tuple[str, ...]
"""The ids that identify a record within its kind, in the order of the columns of its table."""

_STORE = """
INSERT INTO pushed_key (source_id, kind, key_digest, key, read_number)
VALUES (:source_id, :kind, :key_digest, :key, :read_number)
ON CONFLICT (source_id, kind, key_digest) DO UPDATE SET read_number = excluded.read_number
"""

# If a pushed record exists, the read may change the rows of objects that it hides. If the push removed the record, the
# read must not bring it back.
_KEEP_LATER = """
DELETE FROM {source_delta} WHERE source_id = :source_id AND ({pushed_keys}) IN (
  SELECT {pushed_values} FROM pushed_key
  WHERE source_id = :source_id AND kind = '{kind}' AND read_number >= :read_number)
AND (origin = '' OR NOT EXISTS (
  SELECT 1 FROM {source} s WHERE {written_keys:s={source_delta}} AND s.origin = ''))
"""

_KEEP_LATER_OBJECTS = f"""
DELETE FROM {{source_delta}} WHERE source_id = :source_id AND origin IN (
  SELECT @part(key, 0) FROM pushed_key
  WHERE source_id = :source_id AND kind = '{OBJECT}' AND read_number >= :read_number)
"""  # noqa: S608 - a constant

# A cross join stops SQLite from scanning the table of the source.
_REMOVE_EARLIER = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove}
FROM pushed_key m CROSS JOIN {source} s
WHERE m.source_id = :source_id AND m.kind = '{kind}' AND m.read_number < :read_number
AND ({pushed_keys:s}) = ({pushed_values:m}) AND s.source_id = :source_id AND s.origin = ''
AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {written_keys:t=s} AND t.origin = '')
AND (:is_complete = 1 OR EXISTS (SELECT 1 FROM {staged} t WHERE {written_keys:t=s}))
"""


def store_pushed_keys(
    connection: Connection, source_id: int, keys: Iterable[tuple[str, PushKey]], *, only_pushed: bool
) -> None:
    """Stores keys (kind and ids) that are pushed now.

    ``only_pushed``: the source is read only while everything is pushed to it. Otherwise no read can undo the push.
    """
    begun, in_force = connection.execute(
        select(SOURCE.c.reads_begun, SOURCE.c.read_in_force).where(SOURCE.c.source_id == source_id)
    ).one()
    upload_is_running = begun != in_force
    if only_pushed and not upload_is_running:
        return
    rows = [
        {"source_id": source_id, "kind": kind, "key_digest": _digest(key), "key": key, "read_number": begun}
        for kind, key in sorted((kind, json.dumps(ids, ensure_ascii=False)) for kind, ids in keys)
    ]
    if rows:
        connection.execute(statement(connection, _STORE), rows)


def _digest(key: str) -> str:
    return blake2b(key.encode(), digest_size=16).hexdigest()


def has_pushed_keys(connection: Connection, source_id: int) -> bool:
    """Whether anything was pushed to the source since its last complete read."""
    query = select(PUSHED_KEY.c.source_id).where(PUSHED_KEY.c.source_id == source_id).limit(1)
    return connection.execute(query).first() is not None


def keep_pushes(connection: Connection, reads: Sequence[StagedRead]) -> None:
    """Removes from the deltas what would undo a later push. Adds the removal of earlier pushes.

    Earlier pushes are removed here only by partial reads and by reads of changes or a part: a complete read of
    everything removes what it does not contain anyway.
    """
    for read in reads:
        if read.verdict == FAILED or not has_pushed_keys(connection, read.source_id):
            continue
        of_read = {"source_id": read.source_id, "read_number": read.number, "is_complete": int(_includes_pushes(read))}
        removes_earlier = read.verdict != COMPLETE or read.answered
        for tables in REFRESH_TABLES:
            if removes_earlier:
                tables.run(connection, _REMOVE_EARLIER, of_read)
            tables.run(connection, _KEEP_LATER, of_read)
            tables.run(connection, _KEEP_LATER_OBJECTS, of_read)


def _includes_pushes(read: StagedRead) -> bool:
    """Whether the read replaces everything that was pushed before it began."""
    return read.verdict == COMPLETE and read.answered != PART


def delete_pushed_keys(connection: Connection, reads: Sequence[StagedRead], forgotten: Collection[int]) -> None:
    """Deletes the keys that complete reads include, and all that is stored of pushes to sources that are forgotten."""
    for read in reads:
        if _includes_pushes(read):
            of_source = PUSHED_KEY.c.source_id == read.source_id
            connection.execute(delete(PUSHED_KEY).where(of_source, PUSHED_KEY.c.read_number < read.number))
    if forgotten:
        for table in _OF_SOURCE:
            connection.execute(delete(table).where(table.c.source_id.in_(forgotten)))
