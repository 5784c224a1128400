"""The stored state of pushes: the sequence of each source, and the keys that were pushed since its last complete read.

The rules: ``app/service/push/README.md``, "Sequences" and "Reads and pushes".

A read takes its number when it begins, and a push marks its keys with the number of reads that had begun. A read with
that number or a lower one does not include the push, so it leaves what was pushed as it is. A read that began later
includes it, so it removes what was pushed.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, Table, delete, insert, select, update

from app.access.push_tables import DirectoryPushRow, PushedKeyRow
from app.access.record_tables import core_table
from app.access.refresh.sources import COMPLETE, FAILED, PART, SOURCE, StagedRead
from app.access.refresh.tables import REFRESH_TABLES, RowChange
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.statements import run, statement

MARK: Table = core_table(PushedKeyRow)
PUSH: Table = core_table(DirectoryPushRow)

Key = tuple[str, ...]
"""The ids that identify a record within its kind, in the order of the columns of its table."""

HIGHEST_FIRST_SEQUENCE = 2**62
"""The highest number of a source's first push: nanoseconds since 1970 fit for a hundred years."""

_STEP, _SHARE = 1_000_000_000, 8
"""The next number is at most so much above the last, or an eighth of it. A number far above is a mistake that would
make all later pushes too late. Times of any unit fit: the source may pause for years."""

DIGESTS_KEPT = 100
"""How many of a source's latest pushes are compared with repetitions."""


class SequenceConflictError(Exception):
    """A push that cannot be the next one; the text is one line for the caller."""

    def __init__(self, message: str, last: int) -> None:
        super().__init__(message)
        self.last = last
        """The sequence of the last push that was applied; 0: none was."""


class Numbered(NamedTuple):
    """The number of a push and what it is a number of."""

    sequence: int
    previous: int | None
    digest: str
    """Of the records and keys that are pushed."""


@dataclass(frozen=True, slots=True)
class PushState:
    """How far the pushes to a source have come. Times are epoch milliseconds."""

    sequence: int
    """0: nothing was ever pushed."""
    pushed_at: int | None
    pushed_by: str
    """The fingerprint of the token that was shown."""
    pushes: int
    """How many were applied, ever."""


NEVER_PUSHED = PushState(0, None, "", 0)
"""The state of a source to which nothing was ever pushed."""


def push_states(connection: Connection) -> dict[str, PushState]:
    """Source → how far the pushes to it have come, of those to which something was pushed."""
    query = select(SOURCE.c.name, PUSH).select_from(PUSH.join(SOURCE, SOURCE.c.source_id == PUSH.c.source_id))
    return {
        row.name: PushState(row.sequence, row.pushed_at, row.pushed_by, row.pushes) for row in connection.execute(query)
    }


def former_answer(connection: Connection, source_id: int, push: Numbered) -> dict[str, Any] | None:
    """The answer to a push that was applied before; None: it is the next one. Raises ``SequenceConflictError``."""
    last = connection.execute(select(PUSH).where(PUSH.c.source_id == source_id)).first()
    if last is not None and push.sequence <= last.sequence:
        _check_repetition(push, last.sequence, dict(json.loads(last.digests)))
        if last.answer or push.sequence < last.sequence:
            answer: dict[str, Any] = json.loads(last.answer or "{}")
            return answer or {"sequence": last.sequence}
        # One whose process died between applying and answering is applied again, which changes nothing.
        return None
    sequence = 0 if last is None else last.sequence
    if push.previous not in {None, sequence}:
        raise SequenceConflictError(
            f"previousSequence: the last push that was applied is {sequence}; send what came after it first", sequence
        )
    highest = HIGHEST_FIRST_SEQUENCE if last is None else sequence + max(_STEP, sequence // _SHARE)
    if push.sequence > highest:
        raise SequenceConflictError(
            f"sequence: {push.sequence} is too far above {sequence}, the last push that was applied; the next one is"
            f" {highest} at most; to number pushes differently, send everything with the new sequence",
            sequence,
        )
    return None


def _check_repetition(push: Numbered, last: int, digests: Mapping[int, str]) -> None:
    """Raises ``SequenceConflictError`` unless the push is one of those with these digests.

    The last push may have none: an older version stored none, and so does a push of everything.
    """
    known = digests.get(push.sequence, push.digest if push.sequence == last else None)
    if known == push.digest:
        return
    why = "is too late: no such push is among the latest ones" if known is None else "was used for other content"
    raise SequenceConflictError(
        f"sequence: {push.sequence} {why}; the last push that was applied is {last}; number this one after it and send"
        " it again, if its content is still right",
        last,
    )


def note_push(connection: Connection, source_id: int, push: Numbered, *, by: str, now_ms: int) -> int:
    """Stores a push as the last one, without its answer; returns how many there were with it."""
    former = connection.execute(select(PUSH).where(PUSH.c.source_id == source_id)).first()
    digests = [] if former is None else json.loads(former.digests)
    digests = [one for one in digests if one[0] != push.sequence] + [[push.sequence, push.digest]]
    return _store(connection, source_id, push.sequence, former, by=by, now_ms=now_ms, digests=digests[-DIGESTS_KEPT:])


def remember_answer(connection: Connection, source_id: int, push: Numbered, answer: dict[str, Any]) -> None:
    """Stores the answer to a push, unless a later push was applied meanwhile."""
    connection.execute(
        update(PUSH)
        .where(PUSH.c.source_id == source_id, PUSH.c.sequence == push.sequence)
        .values(answer=json.dumps(answer, ensure_ascii=False))
    )


def go_on_from(engine: Engine, source: str, sequence: int, *, by: str, clock: Clock) -> None:
    """Numbers pushes from here on, after everything was pushed."""
    with writing(engine) as connection:
        source_id = connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == source)).scalar_one()
        former = connection.execute(select(PUSH).where(PUSH.c.source_id == source_id)).first()
        _store(connection, source_id, sequence, former, by=by, now_ms=epoch_ms(clock()), answer={"sequence": sequence})


def _store(
    connection: Connection,
    source_id: int,
    sequence: int,
    former: Row[Any] | None,
    *,
    by: str,
    now_ms: int,
    digests: list[list[object]] | None = None,
    answer: dict[str, Any] | None = None,
) -> int:
    pushes = 1 if former is None else former.pushes + 1
    connection.execute(delete(PUSH).where(PUSH.c.source_id == source_id))
    connection.execute(
        insert(PUSH).values(
            source_id=source_id,
            sequence=sequence,
            answer=json.dumps(answer) if answer else "",
            pushed_at=now_ms,
            pushed_by=by,
            pushes=pushes,
            digests=json.dumps(digests or []),
        )
    )
    return pushes


# Marks.

_MARK = """
INSERT INTO pushed_key (source_id, kind, key_digest, key, read_number)
VALUES (:source_id, :kind, :key_digest, :key, :read_number)
ON CONFLICT (source_id, kind, key_digest) DO UPDATE SET read_number = excluded.read_number
"""

# The rows of the source's objects may change below a pushed record, which hides them; below a removal they may not.
_SKIP_PUSHED = """
DELETE FROM {source_delta} WHERE source_id = :source_id AND ({pushed_keys}) IN (
  SELECT {pushed_parts} FROM pushed_key
  WHERE source_id = :source_id AND kind = '{kind}' AND read_number >= :read_number)
AND (origin = '' OR NOT EXISTS (
  SELECT 1 FROM {source} s WHERE {written_keys:s={source_delta}} AND s.origin = ''))
"""

# A cross join stops SQLite from reading all rows of the source to look them up among the marks.
_REMOVE_KNOWN = """
INSERT INTO {source_delta} ({source_keys}, change)
SELECT {source_keys:s}, {remove}
FROM pushed_key m CROSS JOIN {source} s
WHERE m.source_id = :source_id AND m.kind = '{kind}' AND m.read_number < :read_number
AND ({pushed_keys:s}) = ({pushed_parts:m}) AND s.source_id = :source_id AND s.origin = ''
AND NOT EXISTS (SELECT 1 FROM {staged} t WHERE {written_keys:t=s} AND t.origin = '')
AND (:is_complete = 1 OR EXISTS (SELECT 1 FROM {staged} t WHERE {written_keys:t=s}))
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


def is_marked(connection: Connection, source_id: int) -> bool:
    """Whether anything was pushed to the source since its last complete read."""
    return run(connection, _ANY, {"source_id": source_id}).first() is not None


def skip_pushed(connection: Connection, reads: Sequence[StagedRead]) -> None:
    """Removes from the deltas what would undo pushes that came after the reads had begun."""
    for read in reads:
        if read.verdict == FAILED:
            continue
        of_read = {"source_id": read.source_id, "read_number": read.number}
        kinds = set(run(connection, _KINDS_OF_LATER, of_read).scalars())
        for tables in REFRESH_TABLES:
            if tables.kind in kinds:
                tables.run(connection, _SKIP_PUSHED, of_read)


def remove_known(connection: Connection, reads: Sequence[StagedRead]) -> None:
    """Adds to the deltas that what was pushed before the reads began is removed: all of it if the read is complete,
    otherwise what the read gives itself.

    A read of everything needs this for partial reads only: what a complete one does not give is removed anyway."""
    for read in reads:
        if read.verdict == FAILED or (read.verdict == COMPLETE and not read.answered):
            continue
        of_read = {"source_id": read.source_id, "read_number": read.number}
        kinds = set(run(connection, _KINDS_OF_KNOWN, of_read).scalars())
        for tables in REFRESH_TABLES:
            if tables.kind in kinds:
                tables.run(connection, _REMOVE_KNOWN, {**of_read, "is_complete": int(_knows_all(read))})


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


def skip_the_rest(connection: Connection, source_id: int, about: About) -> None:
    """Takes out of the deltas what would be gone because a read that is not about it did not give it."""
    for tables in REFRESH_TABLES:
        delta = tables.source_delta
        gone = delta.c.source_id == source_id, delta.c.change == RowChange.REMOVE
        if about.kinds and tables.kind not in about.kinds:
            connection.execute(delete(delta).where(*gone))
        elif about.organizations and "organization_id" not in tables.keys:
            if tables.kind not in about.kinds:
                connection.execute(delete(delta).where(*gone))
        elif about.organizations:
            connection.execute(delete(delta).where(*gone, delta.c.organization_id.not_in(about.organizations)))


def drop_marks(connection: Connection, reads: Sequence[StagedRead], forgotten: Collection[int]) -> None:
    """Removes the marks that complete reads knew of, and all that is known of sources that are forgotten."""
    for read in reads:
        if _knows_all(read):
            of_read = {"source_id": read.source_id, "read_number": read.number}
            if run(connection, _ANY_KNOWN, of_read).first() is not None:
                run(connection, _DROP_KNOWN, of_read)
    if forgotten:
        for table in (MARK, PUSH):
            connection.execute(delete(table).where(table.c.source_id.in_(list(forgotten))))


def _text(key: Key) -> str:
    return json.dumps(key, ensure_ascii=False)


def _digest(key: str) -> str:
    return blake2b(key.encode(), digest_size=16).hexdigest()
