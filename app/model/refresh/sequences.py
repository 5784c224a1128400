"""The numbering of pushes: whether a push is the next one, a repetition, or neither.

The rules: ``app/ingest/README.md``, "Sequences".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from app.clock import Clock, epoch_ms
from app.database.engine import writing
from app.model.refresh.marks import PUSH
from app.model.refresh.staging import SOURCE

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
