"""Stores the last push to each source, and checks by its sequence whether a push is next or a repetition.

The rules: ``app/service/push/README.md``, "Sequences".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from app.access.refresh.pushed_keys import PUSH
from app.access.refresh.sources import SOURCE
from app.foundation.clock import Clock, epoch_ms
from app.foundation.database.engine import writing
from app.foundation.database.statements import run

HIGHEST_FIRST_SEQUENCE = 2**62
"""The highest sequence of a source's first push. Nanoseconds since 1970 are below it for a hundred years."""


DIGESTS_KEPT = 100
"""The number of a source's latest pushes whose repetitions are recognized."""


class SequenceConflictError(Exception):
    """A push that cannot be the next one. The text is one line for the caller."""

    def __init__(self, message: str, last: int) -> None:
        super().__init__(message)
        self.last = last
        """The sequence of the last applied push. 0 if there is none."""


@dataclass(frozen=True, slots=True)
class PushState:
    """The last push to a source. Times are epoch milliseconds."""

    sequence: int = 0
    """0: nothing was ever pushed."""
    pushed_at: int | None = None
    pushed_by: str = ""
    """The fingerprint of the token."""
    pushes: int = 0
    """The number of pushes so far."""


def push_states(connection: Connection) -> dict[str, PushState]:
    """Source → its last push. Only sources with pushes."""
    query = select(SOURCE.c.name, PUSH).select_from(PUSH.join(SOURCE, SOURCE.c.source_id == PUSH.c.source_id))
    return {
        row.name: PushState(row.sequence, row.pushed_at, row.pushed_by, row.pushes) for row in connection.execute(query)
    }


def _highest_next(last: int) -> int:
    """The highest sequence after ``last``: 1,000,000,000 more, or an eighth of it if that is more.

    A larger jump is taken for a mistake, because all later pushes would be too late. Times of any unit can be
    sequences, even if the source pauses for years.
    """
    return last + max(1_000_000_000, last // 8)


def _last_push(connection: Connection, source_id: int) -> Row[Any] | None:
    return connection.execute(select(PUSH).where(PUSH.c.source_id == source_id)).first()


def answer_to_repetition(
    connection: Connection, source_id: int, sequence: int, digest: str, *, previous_sequence: int | None
) -> dict[str, Any] | None:
    """The answer to a repeated push. None if it is the next push. Raises ``SequenceConflictError``.

    It is the answer to the last push, also for a repetition of an earlier one. ``digest``: that of the push.
    """
    last = _last_push(connection, source_id)
    if last is not None and sequence <= last.sequence:
        _check_repetition(sequence, digest, last.sequence, dict(json.loads(last.digests)))
        if last.answer or sequence < last.sequence:
            answer: dict[str, Any] = json.loads(last.answer or "{}")
            return answer or {"sequence": last.sequence}
        # Its process died before it stored the answer. It is applied again, which changes nothing.
        return None
    applied = 0 if last is None else last.sequence
    if previous_sequence not in {None, applied}:
        raise SequenceConflictError(
            f"previousSequence: the last push that was applied is {applied}; send what came after it first", applied
        )
    highest = HIGHEST_FIRST_SEQUENCE if last is None else _highest_next(applied)
    if sequence > highest:
        raise SequenceConflictError(
            f"sequence: {sequence} is too far above {applied}, the last push that was applied; the next one is"
            f" {highest} at most; to number pushes differently, send everything with the new sequence",
            applied,
        )
    return None


def _check_repetition(sequence: int, digest: str, last: int, digests: Mapping[int, str]) -> None:
    """Raises ``SequenceConflictError`` unless the push is one of those with these digests (by sequence).

    The last push may have none: an older version stored none, and so does an upload.
    """
    stored = digests.get(sequence, digest if sequence == last else None)
    if stored == digest:
        return
    why = "is too late: no such push is among the latest ones" if stored is None else "was used for other content"
    raise SequenceConflictError(
        f"sequence: {sequence} {why}; the last push that was applied is {last}; number this one after it and send"
        " it again, if its content is still right",
        last,
    )


_STORE = """
INSERT INTO directory_push (source_id, sequence, answer, pushed_at, pushed_by, pushes, digests)
VALUES (:source_id, :sequence, :answer, :now, :by, 1, :digests)
ON CONFLICT (source_id) DO UPDATE SET sequence = {sequence}, pushes = directory_push.pushes + 1,
  answer = excluded.answer, pushed_at = excluded.pushed_at, pushed_by = excluded.pushed_by, digests = excluded.digests
RETURNING pushes
"""


def store_push(
    connection: Connection, source_id: int, sequence: int, digest: str, *, by: str, now_ms: int, answer: str = ""
) -> int:
    """Stores a push as the last one. Returns the number of pushes so far. An empty digest: an upload."""
    last = _last_push(connection, source_id)
    earlier = [] if last is None else json.loads(last.digests)
    digests = [(number, stored) for number, stored in earlier if number != sequence] + [(sequence, digest)]
    row = {"source_id": source_id, "sequence": sequence, "answer": answer, "now": now_ms, "by": by}
    row["digests"] = json.dumps(digests[-DIGESTS_KEPT:] if digest else [])
    return int(run(connection, _STORE, row, sequence="excluded.sequence").scalar_one())


def count_push(connection: Connection, source_id: int, *, by: str, now_ms: int) -> int:
    """Stores a push without a sequence as the last one. Returns the number of pushes so far."""
    row = {"source_id": source_id, "sequence": 1, "answer": "", "now": now_ms, "by": by, "digests": "[]"}
    return int(run(connection, _STORE, row, sequence="directory_push.sequence + 1").scalar_one())


def continue_from(engine: Engine, source: str, sequence: int, *, by: str, clock: Clock) -> None:
    """Stores the sequence of an upload. Later pushes are numbered after it."""
    with writing(engine) as connection:
        source_id = connection.execute(select(SOURCE.c.source_id).where(SOURCE.c.name == source)).scalar_one()
        answer = json.dumps({"sequence": sequence})
        store_push(connection, source_id, sequence, "", by=by, now_ms=epoch_ms(clock()), answer=answer)
