"""Decides which reads are used, limits what they remove, and refuses reads that would remove too much.

The rules: ``app/access/README.md``, "Verdicts".

If a reader has lost its permissions, a directory often reports success, but returns nothing, very little, or no
attribute that disables. The guard refuses a read that would remove or enable more records of one kind than a number and
a percentage. Until an operator confirms it, such a read is partial: it adds and updates, but neither removes nor
enables. The guard checks ``source_delta`` before it is applied.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from sqlalchemy import Connection, delete, func, select

from app.access.records import Fill
from app.access.refresh.sources import FAILED, PARTIAL, SOURCE, Losses, StagedRead
from app.access.refresh.tables import REFRESH_TABLES, RefreshTables, RowChange
from app.foundation.database.statements import json_list
from app.foundation.text import are, counted

IF_INTENDED = "if this is intended"
"""Begins the advice in the reason of a refused read, after a semicolon."""


def reject_unusable(
    connection: Connection, reads: Sequence[StagedRead], accept_empty: Collection[str]
) -> list[StagedRead]:
    """Marks reads as failed that were overtaken by a later read, or are unexpectedly empty."""
    sources = {row.source_id: row for row in connection.execute(select(SOURCE))}
    in_force = sum(row.records for row in sources.values())
    judged = []
    for read in reads:
        row = sources.get(read.source_id)
        is_empty = read.removes_missing and not read.answered and not read.records and read.name not in accept_empty
        advice = how_to_accept(read.name, "--accept-empty")
        if row is None or (row.read_in_force > read.number and not read.caught_up):
            reason = "another refresh that began later has been faster"
            judged.append(replace(read, verdict=FAILED, reason=reason, overtaken=True))
        elif is_empty and row.records > 0:
            judged.append(_refuse(read, f"is empty, but provided {counted(row.records, 'record')} before", advice))
        elif is_empty and in_force and row.read_in_force == 0 and not read.known_empty:
            others = f"{counted(in_force, 'record')} of other sources {are(in_force)} in force"
            judged.append(_refuse(read, f"is read for the first time and is empty, while {others}", advice))
        else:
            judged.append(read)
    return judged


def _refuse(read: StagedRead, reason: str, advice: str, verdict: str = FAILED) -> StagedRead:
    """The read with a lower verdict than that of the source."""
    refused = replace(read, verdict=verdict, refused=reason, advice=advice, except_malformed=False)
    return replace(refused, reason=refused.refusal)


@dataclass(frozen=True, slots=True)
class Guard:
    """The limits of removed records per read. A read that exceeds both is refused."""

    count: int = 20
    percent: float = 20

    def refuses(self, removed: int, stored: int) -> bool:
        """Whether a read must not remove this number of the stored records."""
        return removed > self.count and removed * 100 > self.percent * stored

    def __str__(self) -> str:
        return f"more than {self.count:,} and more than {self.percent:g} %"


@dataclass(frozen=True, slots=True)
class ReadScope:
    """The only records that a read may remove."""

    kinds: frozenset[str]
    """Empty: all."""
    organizations: frozenset[str]
    """Empty: all. Otherwise kinds that belong to no organization are in the scope only if they are in ``kinds``."""


def drop_out_of_scope(connection: Connection, source_id: int, scope: ReadScope) -> None:
    """Drops from the deltas the removals that are not in the scope of the source's read."""
    for tables in REFRESH_TABLES:
        delta = tables.source_delta
        removals = delete(delta).where(delta.c.source_id == source_id, delta.c.change == RowChange.REMOVE)
        has_organization = "organization_id" in tables.keys
        if (scope.kinds or (scope.organizations and not has_organization)) and tables.kind not in scope.kinds:
            connection.execute(removals)
        elif scope.organizations and has_organization:
            connection.execute(removals.where(delta.c.organization_id.not_in(scope.organizations)))


def losses_in_words(losses: Losses) -> str:
    """The losses of a read, for messages."""
    return " and ".join(
        f"{removed:,} {kind} {'record' if removed == 1 else 'records'}"
        if stored is None
        else f"{removed:,} of {stored:,} {kind} records"
        for kind, (removed, stored) in losses.items()
    )


def split_advice(reason: str) -> tuple[str, str]:
    """The reason and the advice of a stored ``StagedRead.refusal``; the advice is empty if there is none."""
    reason, _, rest = reason.partition(f"; {IF_INTENDED}")
    return reason, rest and IF_INTENDED + rest


def how_to_accept(name: str, option: str = "--accept-shrink") -> str:
    """The advice with the command that accepts a source which is empty, or has shrunk, on purpose."""
    return f"{IF_INTENDED}, confirm it once: usher directory refresh {option} {quote(name)}"


def refuse_shrunk(
    connection: Connection,
    reads: Sequence[StagedRead],
    guards: Mapping[int, Guard],
    overall: Guard | None,
    accepted: Collection[str],
    *,
    all_or_nothing: bool = False,
) -> list[StagedRead]:
    """The reads with their losses. Those that would remove too much are partial, and the deltas do not contain their
    removals; with ``all_or_nothing`` they are failed, and the deltas contain none of their changes.

    ``guards``: source → its own guard. The other sources are checked by ``overall``, each by itself and all of them
    together; None: they are not checked. ``accepted``: the names of sources that may remove any number.
    """
    removed = _count_losses(connection)
    checked = {
        read.source_id: guards.get(read.source_id, overall)
        for read in reads
        if read.verdict != FAILED and read.name not in accepted
    }
    reasons: dict[int, str] = {}
    with_losses: list[StagedRead] = []
    for read in reads:
        guard = checked.get(read.source_id)
        # Counting all stored records takes as long as reading them, which is too long after a few changes.
        count_from = guard.count + 1 if guard is not None and read.answered else 1
        losses = _with_stored(connection, removed.get(read.source_id, Counter()), [read.source_id], count_from)
        with_losses.append(replace(read, losses=losses))
        if too_many := _too_many(guard, losses):
            reasons[read.source_id] = f"would take away {losses_in_words(too_many)}, {guard}"
    if overall is not None:
        together = [source_id for source_id in checked if source_id not in guards and source_id not in reasons]
        sums = sum((removed[source_id] for source_id in together if source_id in removed), Counter[str]())
        if too_many := _too_many(overall, _with_stored(connection, sums, together, overall.count + 1)):
            in_words = f"together with the other sources, would take away {losses_in_words(too_many)}, {overall}"
            reasons |= {key: in_words for key in together if too_many.keys() & removed.get(key, {}).keys()}
    if reasons:
        for tables in REFRESH_TABLES:
            _drop_from_delta(connection, tables, list(reasons), all_changes=all_or_nothing)
    applied = "" if all_or_nothing else "; additions and changes were applied, removals were not"
    verdict = FAILED if all_or_nothing else PARTIAL
    return [
        _refuse(read, f"{reasons[read.source_id]}{applied}", how_to_accept(read.name), verdict)
        if read.source_id in reasons
        else read
        for read in with_losses
    ]


def _too_many(guard: Guard | None, losses: Losses) -> Losses:
    """The losses that the guard refuses."""
    return {
        kind: (removed, stored)
        for kind, (removed, stored) in losses.items()
        if guard is not None and stored is not None and guard.refuses(removed, stored)
    }


# Lost keys: those that the deltas remove. A key that another object or rule of the source provides is not lost.

_REMOVED_KEYS = """
SELECT DISTINCT {written_keys:d} FROM {source_delta} d
WHERE d.change = {remove}
AND NOT EXISTS (SELECT 1 FROM {source_delta} o WHERE {written_keys:o=d} AND o.change <> {remove})
AND NOT EXISTS (
  SELECT 1 FROM {source} s WHERE {written_keys:s=d} AND NOT EXISTS (
    SELECT 1 FROM {source_delta} r WHERE {source_keys:r=s} AND r.change = {remove}))
"""

# Keys that were disabled and are not any more, although they remain.
_ENABLED_KEYS = """
SELECT DISTINCT {written_keys:d} FROM {source_delta} d JOIN {source} b ON {source_keys:b=d}
WHERE d.change <> {add} AND b.disabled
AND NOT EXISTS (
  SELECT 1 FROM {source_delta} o JOIN {staged} t ON {source_keys:t=o}
  WHERE {written_keys:o=d} AND o.change <> {remove} AND t.disabled)
AND NOT EXISTS (
  SELECT 1 FROM {source} s WHERE {written_keys:s=d} AND s.disabled AND NOT EXISTS (
    SELECT 1 FROM {source_delta} r WHERE {source_keys:r=s}))
"""

_REMAINS = """
AND (EXISTS (SELECT 1 FROM {source_delta} o WHERE {written_keys:o=d} AND o.change <> {remove})
  OR EXISTS (SELECT 1 FROM {source} s WHERE {written_keys:s=d} AND NOT EXISTS (
    SELECT 1 FROM {source_delta} r WHERE {source_keys:r=s} AND r.change = {remove})))
"""


def _lost_keys(tables: RefreshTables) -> dict[str, str]:
    """Name in ``Losses`` → the query for the lost keys: of removed records, and of disabled ones that are enabled."""
    if not tables.may_be_disabled:
        return {tables.kind: _REMOVED_KEYS}
    # A fill that is removed enables a user of another record.
    enabled = _ENABLED_KEYS if tables.kind == Fill.kind else _ENABLED_KEYS + _REMAINS
    return {tables.kind: _REMOVED_KEYS, f"disabled {tables.kind}": enabled}


def _count_losses(connection: Connection) -> dict[int, Counter[str]]:
    """Source → kind (or ``disabled`` and kind) → how many keys the deltas remove."""
    losses: dict[int, Counter[str]] = {}
    for tables in REFRESH_TABLES:
        for name, keys in _lost_keys(tables).items():
            counts = f"SELECT source_id, COUNT(*) AS keys FROM ({keys}) AS lost GROUP BY source_id"  # noqa: S608
            for row in tables.run(connection, counts):
                losses.setdefault(row.source_id, Counter())[name] = row.keys
    return losses


_DROP = "DELETE FROM {source_delta} WHERE source_id IN (@numbers(source_ids))"


def _drop_from_delta(
    connection: Connection, tables: RefreshTables, source_ids: Sequence[int], *, all_changes: bool
) -> None:
    of_sources = {"source_ids": json_list(source_ids)}
    if all_changes:
        tables.run(connection, _DROP, of_sources)
        return
    for keys in _lost_keys(tables).values():
        tables.run(connection, f"{_DROP} AND ({{written_keys}}) IN ({keys})", of_sources)


def _with_stored(
    connection: Connection, removed: Mapping[str, int], source_ids: Sequence[int], count_from: int
) -> Losses:
    """The losses, with how many such records these sources have if at least ``count_from`` are lost."""
    return {
        name: (
            removed[name],
            _count_stored(connection, tables, source_ids, name) if removed[name] >= count_from else None,
        )
        for tables in REFRESH_TABLES
        for name in _lost_keys(tables)
        if name in removed
    }


def _count_stored(connection: Connection, tables: RefreshTables, source_ids: Sequence[int], name: str) -> int:
    source = tables.source
    keys = select(*(source.c[name] for name in tables.written_keys)).where(source.c.source_id.in_(source_ids))
    if name != tables.kind:
        keys = keys.where(source.c.disabled)
    return connection.execute(select(func.count()).select_from(keys.distinct().subquery())).scalar_one()
