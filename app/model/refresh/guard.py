"""The guard against a read that is whole and cannot be true: it would take away too much at once.

The rules: ``app/model/README.md``, "Verdicts".

A reader that has lost its rights often gets success, and nothing or next to nothing. So a read that would take away
more than so many records of one kind, and more than so many percent of what the source gave of that kind, counts as
failed until somebody says that it is meant. Judged is what the deltas hold, before any of it is carried out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from shlex import quote

from sqlalchemy import Connection, Select, exists, func, select
from sqlalchemy import delete as delete_from

from app.model.refresh.changes import removed_kinds
from app.model.refresh.given import NOBODY
from app.model.refresh.scratch import SCRATCH_TABLES, SCRATCH_TABLES_OF_KIND, RowChange, ScratchTables, same
from app.model.refresh.staging import FAILED, Losses, StagedRead
from app.model.refresh.verdicts import refuse


@dataclass(frozen=True, slots=True)
class Guard:
    """How much may go at once: what exceeds both numbers is refused."""

    count: int = 20
    percent: float = 20

    def refuses(self, gone: int, kept: int) -> bool:
        """Whether so many are too many to go of those that are kept."""
        return gone > self.count and gone * 100 > self.percent * kept

    def __str__(self) -> str:
        return f"more than {self.count:,} and more than {self.percent:g} %"


def losses_in_words(numbers: Losses) -> str:
    """What would go, for people."""
    return " and ".join(
        f"{gone:,} {kind} {'record' if gone == 1 else 'records'}"
        if kept is None
        else f"{gone:,} of {kept:,} {kind} records"
        for kind, (gone, kept) in numbers.items()
    )


def refuse_shrunk(
    connection: Connection,
    reads: Sequence[StagedRead],
    guards: Mapping[int, Guard],
    overall: Guard | None,
    accepted: Collection[str],
) -> list[StagedRead]:
    """The reads, with what each takes away. Those that would take away too much are failed, and the deltas without what
    they would have changed.

    ``guards``: source → a guard of its own, by which alone it is judged. The other sources go by ``overall``, each by
    itself and all of them together; None: they are not judged. ``accepted``: the names of those that may take away what
    they like.
    """
    gone = _gone(connection)
    judged = {
        read.source_id: guards.get(read.source_id, overall)
        for read in reads
        if read.verdict != FAILED and read.name not in accepted
    }
    reasons: dict[int, str] = {}
    told: list[StagedRead] = []
    for read in reads:
        guard = judged.get(read.source_id)
        # To count all that is kept takes as long as to read it: after a few changes nobody should wait for that.
        from_on = guard.count + 1 if guard is not None and read.answered else 1
        losses = _of_how_many(connection, gone.get(read.source_id, {}), [read.source_id], from_on)
        told.append(replace(read, losses=losses))
        numbers = _too_many(guard, losses)
        if numbers:
            reasons[read.source_id] = f"would take away {losses_in_words(numbers)}, {guard}"
    if overall is not None:
        together = [one for one in judged if one not in guards and one not in reasons]
        sums: dict[str, int] = {}
        for source_id in together:
            for kind, number in gone.get(source_id, {}).items():
                sums[kind] = sums.get(kind, 0) + number
        numbers = _too_many(overall, _of_how_many(connection, sums, together, overall.count + 1))
        for source_id in together:
            if numbers.keys() & gone.get(source_id, {}).keys():
                reasons[source_id] = (
                    f"together with the other sources, would take away {losses_in_words(numbers)}, {overall}"
                )
    if reasons:
        for tables in SCRATCH_TABLES:
            connection.execute(delete_from(tables.delta).where(tables.delta.c.source_id.in_(list(reasons))))
    return [
        refuse(read, f"{reasons[read.source_id]}; {how_to_accept(read.name)}") if read.source_id in reasons else read
        for read in told
    ]


def how_to_accept(name: str) -> str:
    """What to do about a source that is smaller now because it is meant to be."""
    return f"if that is meant, confirm it once: usher directory refresh --accept-shrink {quote(name)}"


def _gone(connection: Connection) -> dict[int, dict[str, int]]:
    """Source → kind → how many of its keys the deltas remove. What another object or rule gives as well is not gone."""
    found: dict[int, dict[str, int]] = {}
    for kind in sorted(removed_kinds(connection)):
        for row in connection.execute(_gone_query(kind)):
            found.setdefault(row.source_id, {})[kind] = row.gone
    return found


@cache
def _gone_query(kind: str) -> Select[tuple[int, int]]:
    """What counts the removed keys of a kind. To build it takes longer than to run it after few changes."""
    tables = SCRATCH_TABLES_OF_KIND[kind]
    delta, source = tables.delta, tables.source
    other, kept = delta.alias("other"), delta.alias("kept")
    removed = int(RowChange.REMOVE)
    comes = exists().where(same(other, delta, tables.given_keys), other.c.change != removed)
    stays = exists().where(
        same(source, delta, tables.given_keys),
        ~exists().where(same(kept, source, tables.source_keys), kept.c.change == removed),
    )
    keys = (
        select(*(delta.c[name] for name in tables.given_keys))
        .where(delta.c.change == removed, ~comes, ~stays)
        .distinct()
        .subquery()
    )
    return select(keys.c.source_id, func.count().label("gone")).group_by(keys.c.source_id)


def _of_how_many(connection: Connection, gone: Mapping[str, int], source_ids: Sequence[int], from_on: int) -> Losses:
    """What would go, and of how many that is where it is at least ``from_on``."""
    found: dict[str, tuple[int, int | None]] = {}
    for tables in SCRATCH_TABLES:
        number = gone.get(tables.kind, 0)
        if number:
            found[tables.kind] = number, _kept(connection, tables, source_ids) if number >= from_on else None
    return found


def _kept(connection: Connection, tables: ScratchTables, source_ids: Sequence[int]) -> int:
    source = tables.source
    keys = select(*(source.c[name] for name in tables.given_keys)).where(source.c.source_id.in_(source_ids))
    if connection.execute(select(source.c.source_id).where(source.c.origin != NOBODY).limit(1)).first() is None:
        # Without objects each key is said once.
        return connection.execute(select(func.count()).select_from(keys.subquery())).scalar_one()
    return connection.execute(select(func.count()).select_from(keys.distinct().subquery())).scalar_one()


def _too_many(guard: Guard | None, losses: Losses) -> Losses:
    """The kinds of which the guard lets not so many go."""
    return {
        kind: (gone, kept)
        for kind, (gone, kept) in losses.items()
        if guard is not None and kept is not None and guard.refuses(gone, kept)
    }
