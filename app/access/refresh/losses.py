"""Counts the losses of reads: the keys that ``source_delta`` would remove from a source's records, or enable again.

A key that another object or rule of the source provides is not lost. An organization, user or fill that was disabled
and would no longer be is a loss of its own, as a share of the disabled ones. Such keys are *enabled*.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, func, select

from app.access.records import Fill
from app.access.refresh.reads import Loss, Losses
from app.access.refresh.tables import REFRESH_TABLES, RefreshTables
from app.foundation.database.statements import json_list
from app.foundation.text import counted

# Aliases: ``d`` the delta of a key, ``o`` another delta of the same key, ``r`` the delta of another row of the source,
# ``s`` the stored row that ``r`` is about, ``b`` the stored row of ``d``, ``t`` the staged row that replaces it.

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


def count_lost_keys(connection: Connection) -> dict[int, Counter[str]]:
    """Source → name in ``Losses`` → how many keys the delta removes or enables."""
    lost: dict[int, Counter[str]] = {}
    for tables in REFRESH_TABLES:
        for name, keys in _lost_keys(tables).items():
            counts = f"SELECT source_id, COUNT(*) AS keys FROM ({keys}) AS lost GROUP BY source_id"  # noqa: S608
            for row in tables.run(connection, counts):
                lost.setdefault(row.source_id, Counter())[name] = row.keys
    return lost


def find_losses(connection: Connection, lost: Mapping[str, int], source_ids: Sequence[int], count_from: int) -> Losses:
    """The losses of some sources together, from their numbers of lost keys. Counts how many such keys they have if at
    least ``count_from`` are lost: it takes as long as to read them all."""
    losses: dict[str, Loss] = {}
    for tables in REFRESH_TABLES:
        for name in _lost_keys(tables):
            if name in lost:
                is_counted = lost[name] >= count_from
                losses[name] = Loss(
                    lost[name], _count_stored(connection, tables, source_ids, name) if is_counted else None
                )
    return losses


def _count_stored(connection: Connection, tables: RefreshTables, source_ids: Sequence[int], name: str) -> int:
    source = tables.source
    keys = select(*(source.c[key] for key in tables.written_keys)).where(source.c.source_id.in_(source_ids))
    if name != tables.kind:
        keys = keys.where(source.c.disabled)
    return connection.execute(select(func.count()).select_from(keys.distinct().subquery())).scalar_one()


_DROP = "DELETE FROM {source_delta} WHERE source_id IN (@numbers(source_ids))"


def drop_losses(connection: Connection, source_ids: Sequence[int]) -> None:
    """Drops from ``source_delta`` what would remove or enable keys of these sources."""
    for tables in REFRESH_TABLES:
        for keys in _lost_keys(tables).values():
            statement = f"{_DROP} AND ({{written_keys}}) IN ({keys})"
            tables.run(connection, statement, {"source_ids": json_list(source_ids)})


def drop_changes(connection: Connection, source_ids: Sequence[int]) -> None:
    """Drops all changes of these sources from ``source_delta``."""
    for tables in REFRESH_TABLES:
        tables.run(connection, _DROP, {"source_ids": json_list(source_ids)})


def losses_in_words(losses: Losses) -> str:
    """The losses of a read, for messages."""
    return " and ".join(
        f"{counted(removed, f'{kind} record')}" if stored is None else f"{removed:,} of {stored:,} {kind} records"
        for kind, (removed, stored) in losses.items()
    )
