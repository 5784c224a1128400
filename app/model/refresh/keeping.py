"""The keeping of problems for pages: of each source and sort how many there are, and the first hundred of them.

A refresh replaces what it tells as a whole: what is wrong with records by themselves, of the sources that it read; what
comes out when all are merged, of every source. What it tells as it stands writes nothing. A read of changes, or of a
part, adds to what is known of records by themselves. A merge by key replaces what is known of what it touched
(``outdated.py``). All of it is written in the transaction that changes the access model.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, Table, delete, insert, select

from app.model.refresh.outdated import Outdated
from app.model.refresh.problems import PROBLEMS_KEPT, Problem, ProblemList, ProblemSort
from app.model.refresh.staging import FAILED, SOURCE, StagedRead
from app.store.directory_tables import DirectoryProblemCountRow, DirectoryProblemRow
from app.store.record_tables import core_table

COUNT: Table = core_table(DirectoryProblemCountRow)
FIRST: Table = core_table(DirectoryProblemRow)

_OF_READS = frozenset({ProblemSort.MALFORMED, ProblemSort.REMARK, ProblemSort.DUPLICATE})
"""What is wrong with the records of one source by themselves; everything else comes out when all are merged."""

NO_SOURCE = 0
"""The source of what is nobody's in particular."""


@dataclass(frozen=True, slots=True)
class _KeptProblems:
    """The problems of one sort of one source."""

    count: int
    first: tuple[tuple[str, str], ...]
    """Places and reasons."""


_State = dict[tuple[int, str], _KeptProblems]
"""(source, sort) → what is kept; nothing where there are none."""


class ProblemKeeping:
    """What one refresh has to say, beside what was kept before."""

    def __init__(
        self,
        connection: Connection,
        found: ProblemList,
        reads: Iterable[StagedRead],
        *,
        whole: bool,
        outdated: Outdated | None = None,
    ) -> None:
        """``whole``: whether all that comes out of the merge is among what was ``found``; otherwise it was by key, and
        ``outdated`` is what of it was told before."""
        self._ids = {row.name: row.source_id for row in connection.execute(_IDS)}
        self._ids[""] = NO_SOURCE
        self._reads = {read.source_id: read for read in reads}
        self._whole = whole
        self._outdated = outdated
        self._before = _state(connection)
        self._after = self._state_after(found)

    @property
    def differs(self) -> bool:
        return self._before != self._after

    def write(self, connection: Connection, now_ms: int) -> None:
        """Replaces what differs."""
        for key in sorted(self._before.keys() | self._after.keys()):
            kept = self._after.get(key)
            if kept == self._before.get(key):
                continue
            source_id, sort = key
            for table in (COUNT, FIRST):
                connection.execute(delete(table).where(table.c.source_id == source_id, table.c.sort == sort))
            if kept is None:
                continue
            values = {"source_id": source_id, "sort": sort}
            connection.execute(insert(COUNT).values(**values, problems=kept.count, told_at=now_ms))
            first = [
                {**values, "ordinal": ordinal, "place": place, "reason": reason}
                for ordinal, (place, reason) in enumerate(kept.first, 1)
            ]
            if first:
                connection.execute(insert(FIRST), first)

    def _state_after(self, found: ProblemList) -> _State:
        known = set(self._ids.values())
        now = {
            (self._ids[source], sort.value): _KeptProblems(one.count, _first(one.first))
            for (source, sort), one in found.by_source.items()
            if source in self._ids and one.count
        }
        after = {}
        for key in sorted(self._before.keys() | now.keys()):
            kept = self._kept(key, self._before.get(key), now.get(key))
            if kept is not None and key[0] in known:
                after[key] = kept
        return after

    def _kept(
        self, key: tuple[int, str], before: _KeptProblems | None, now: _KeptProblems | None
    ) -> _KeptProblems | None:
        before = self._without_outdated(key, before)
        if key[1] not in _OF_READS:
            return now if self._whole else _added(before, now)
        read = self._reads.get(key[0])
        if self._outdated is not None and (read is None or read.answered):
            return _added(before, now)
        if read is None or read.verdict == FAILED:
            return now or before
        return now

    def _without_outdated(self, key: tuple[int, str], before: _KeptProblems | None) -> _KeptProblems | None:
        if self._outdated is None or before is None:
            return before
        first = tuple(one for one in before.first if (*key, *one) not in self._outdated.gone)
        count = max(before.count - self._outdated.fewer[key], len(first))
        return _KeptProblems(count, first) if count else None


_IDS = select(SOURCE.c.name, SOURCE.c.source_id)
_FIRST = select(FIRST).order_by(FIRST.c.source_id, FIRST.c.sort, FIRST.c.ordinal)
_COUNT = select(COUNT)


def _state(connection: Connection) -> _State:
    first: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for row in connection.execute(_FIRST):
        first.setdefault((row.source_id, row.sort), []).append((row.place, row.reason))
    return {
        (row.source_id, row.sort): _KeptProblems(row.problems, tuple(first.get((row.source_id, row.sort), ())))
        for row in connection.execute(_COUNT)
    }


def _first(problems: Collection[Problem]) -> tuple[tuple[str, str], ...]:
    # PostgreSQL keeps no NUL.
    return tuple((one.place.replace("\0", "�"), one.reason.replace("\0", "�")) for one in problems)


def _added(before: _KeptProblems | None, now: _KeptProblems | None) -> _KeptProblems | None:
    """What a read of changes tells that was not told before: asked again, it may say the same again."""
    if before is None or now is None:
        return before or now
    known = set(before.first)
    new = [one for one in now.first if one not in known]
    return _KeptProblems(before.count + now.count - (len(now.first) - len(new)), (*before.first, *new)[:PROBLEMS_KEPT])
