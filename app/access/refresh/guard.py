"""Which reads are used: verdicts, and the guard against reads that would remove too much.

The rules: ``app/access/README.md``, "Verdicts".

A reader that has lost its permissions often gets success, and nothing or next to nothing; or everything except the
attribute that disables. A read is refused if it would remove, or enable again, more than so many records of one kind,
and more than so many percent of them. Until an operator confirms it, it is partial: it adds and updates, but neither
removes nor enables. The guard checks ``source_delta`` before it is carried out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from shlex import quote
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    and_,
    exists,
    func,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy import delete as delete_from

from app.access.records import Fill
from app.access.refresh.sources import FAILED, PARTIAL, SOURCE, Losses, StagedRead
from app.access.refresh.tables import REFRESH_TABLES, REFRESH_TABLES_OF_KIND, RefreshTables, RowChange
from app.foundation.text import are, counted

_SOURCES = select(SOURCE)


def judge(connection: Connection, reads: Sequence[StagedRead], accept_empty: Collection[str]) -> list[StagedRead]:
    """The reads, with those failed that must not be used."""
    kept = {row.source_id: row for row in connection.execute(_SOURCES)}
    in_force = sum(row.records for row in kept.values())
    judged = []
    for read in reads:
        row = kept.get(read.source_id)
        is_whole = read.tells_what_is_gone and not read.answered
        if row is None or (row.read_in_force > read.number and not read.caught_up):
            reason = "another refresh that began later has been faster"
            judged.append(replace(read, verdict=FAILED, reason=reason, overtaken=True))
        elif is_whole and read.records == 0 and row.records > 0 and read.name not in accept_empty:
            reason = (
                f"is empty, but gave {counted(row.records, 'record')} before; if that is meant, "
                f"confirm it once with --accept-empty {read.name}"
            )
            judged.append(refuse(read, reason))
        elif is_whole and read.records == 0 and in_force and row.read_in_force == 0 and read.name not in accept_empty:
            reason = (
                f"is read for the first time and is empty, while {counted(in_force, 'record')} of other sources"
                f" {are(in_force)} in force; "
                f"if that is meant, confirm it once with --accept-empty {read.name}"
            )
            judged.append(refuse(read, reason))
        else:
            judged.append(read)
    return judged


def refuse(read: StagedRead, reason: str, verdict: str = FAILED) -> StagedRead:
    """A read that does not count as it is although the source gave all that it was asked for. ``verdict``: what it
    counts as."""
    return replace(read, verdict=verdict, reason=reason, refused=reason, except_malformed=False)


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
    *,
    as_a_whole: bool = False,
) -> list[StagedRead]:
    """The reads, with what each takes away. Those that would take away too much are partial, and the deltas are without
    what they would take away; ``as_a_whole``: they are failed, and the deltas are without all that they would change.

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
        _hold(connection, list(reasons), as_a_whole=as_a_whole)
    verdict, stays = (FAILED, "") if as_a_whole else (PARTIAL, "; what is new or changed counts, and that stays")
    return [
        refuse(read, f"{reasons[read.source_id]}{stays}; {how_to_accept(read.name)}", verdict)
        if read.source_id in reasons
        else read
        for read in told
    ]


def _hold(connection: Connection, source_ids: Sequence[int], *, as_a_whole: bool) -> None:
    """Takes out of the deltas what these sources would take away; ``as_a_whole``: all that they would change."""
    for tables in REFRESH_TABLES:
        delta = tables.source_delta
        of_sources = delta.c.source_id.in_(source_ids)
        if as_a_whole:
            connection.execute(delete_from(delta).where(of_sources))
            continue
        for lost in _lost_keys(tables):
            keys = lost.where(of_sources).subquery()
            columns = tuple_(*(delta.c[name] for name in tables.written_keys))
            connection.execute(delete_from(delta).where(of_sources, columns.in_(select(keys))))


def how_to_accept(name: str) -> str:
    """What to do about a source that is smaller now because it is meant to be."""
    return f"if that is meant, confirm it once: usher directory refresh --accept-shrink {quote(name)}"


def _gone(connection: Connection) -> dict[int, dict[str, int]]:
    """Source → what is lost (a kind, or its disabled records) → how many keys the deltas take it from. What another
    object or rule provides as well is not lost."""
    found: dict[int, dict[str, int]] = {}
    for kind, is_losing in connection.exec_driver_sql(_LOSING_KINDS).all():
        if is_losing:
            for what, query in zip(_what_is_lost(kind), _gone_queries(kind), strict=True):
                for row in connection.execute(query):
                    found.setdefault(row.source_id, {})[what] = row.gone
    return found


_IS_LOSING = "SELECT '{kind}', EXISTS (SELECT 1 FROM {source_delta} WHERE change = {remove})"

_MAY_ENABLE = "SELECT '{kind}', EXISTS (SELECT 1 FROM {source_delta} WHERE change <> {add})"

_LOSING_KINDS = " UNION ALL ".join(
    tables.text(_MAY_ENABLE if tables.may_be_disabled else _IS_LOSING) for tables in REFRESH_TABLES
)
"""Whether the deltas remove records of a kind, or may enable disabled ones."""


def _what_is_lost(kind: str) -> Sequence[str]:
    """The names in ``Losses`` of what ``_lost_keys`` yields: records that go, and disabled ones that are enabled."""
    return (kind, f"disabled {kind}") if REFRESH_TABLES_OF_KIND[kind].may_be_disabled else (kind,)


@cache
def _gone_queries(kind: str) -> Sequence[Select[tuple[int, int]]]:
    """What counts the lost keys of a kind. To build them takes longer than to run them after few changes."""
    queries = []
    for lost in _lost_keys(REFRESH_TABLES_OF_KIND[kind]):
        keys = lost.subquery()
        queries.append(select(keys.c.source_id, func.count().label("gone")).group_by(keys.c.source_id))
    return queries


def _lost_keys(tables: RefreshTables) -> Sequence[Select[Any]]:
    """The keys of a kind whose records go; and, if they may be disabled, those whose records are enabled."""
    delta, source, staged = tables.source_delta, tables.source, tables.staged
    other, kept = delta.alias("other"), delta.alias("kept")
    removed = int(RowChange.REMOVE)
    comes = exists().where(_same(other, delta, tables.written_keys), other.c.change != removed)
    untouched = ~exists().where(_same(kept, source, tables.source_keys), kept.c.change == removed)
    stays = exists().where(_same(source, delta, tables.written_keys), untouched)
    columns = [delta.c[name] for name in tables.written_keys]
    gone = select(*columns).where(delta.c.change == removed, ~comes, ~stays).distinct()
    if not tables.may_be_disabled:
        return [gone]
    before, rest = source.alias("before"), source.alias("rest")
    comes_disabled = exists().where(
        _same(other, delta, tables.written_keys),
        other.c.change != removed,
        _same(staged, other, tables.source_keys),
        staged.c.disabled.is_(True),
    )
    stays_disabled = exists().where(
        _same(rest, delta, tables.written_keys),
        rest.c.disabled.is_(True),
        ~exists().where(_same(kept, rest, tables.source_keys)),
    )
    enabled = (
        select(*columns)
        .select_from(delta.join(before, _same(before, delta, tables.source_keys)))
        .where(delta.c.change != int(RowChange.ADD), before.c.disabled.is_(True), ~comes_disabled, ~stays_disabled)
        .distinct()
    )
    # Somebody else's user is enabled when the fill that disables them goes, too.
    return [gone, enabled if tables.kind == Fill.kind else enabled.where(comes | stays)]


def _of_how_many(connection: Connection, gone: Mapping[str, int], source_ids: Sequence[int], from_on: int) -> Losses:
    """What would go, and of how many that is where it is at least ``from_on``."""
    found: dict[str, tuple[int, int | None]] = {}
    for tables in REFRESH_TABLES:
        for what in _what_is_lost(tables.kind):
            number = gone.get(what, 0)
            if number:
                disabled = what != tables.kind
                kept = _kept(connection, tables, source_ids, disabled=disabled) if number >= from_on else None
                found[what] = number, kept
    return found


def _kept(connection: Connection, tables: RefreshTables, source_ids: Sequence[int], *, disabled: bool) -> int:
    source = tables.source
    keys = select(*(source.c[name] for name in tables.written_keys)).where(source.c.source_id.in_(source_ids))
    if disabled:
        keys = keys.where(source.c.disabled.is_(True))
    if (
        connection.execute(select(source.c.source_id).where(source.c.origin != literal_column("''")).limit(1)).first()
        is None
    ):
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


def _same(left: FromClause, right: FromClause, columns: Sequence[str]) -> ColumnElement[bool]:
    return and_(*(left.c[name] == right.c[name] for name in columns))
