"""The merge: for each key, what the most authoritative source provides; and the changes of the access model.

The rules: ``app/access/README.md``, "The merge".

``merge`` merges the keys whose records changed, or all keys, and computes the deltas of the access model. No row
depends on another row: whether a record's organization, user, group, folder or document exists is for readers to check
(``app.access.effective``). Only aliases are replaced by the id of their only holder, and fills add to users
(``aliases_and_fills.py``). ``carry_out`` carries out the deltas, and updates what is stored beside the access model:
the numbers of records, the search names, and the former payloads.

Few keys must be looked up in large tables one by one. On SQLite the cross joins ensure that, on PostgreSQL
``RefreshSession.look_up_rows``.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from app.access.candidate import shadow
from app.access.records import Fill, User
from app.access.refresh.aliases_and_fills import (
    apply_fills,
    has_fills,
    store_changed_fills,
    store_filled_users,
    update_aliases,
    update_bindings,
)
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import MODEL_TABLES, MODEL_TABLES_OF_KIND, ChangeCounts, ModelTables
from app.access.search import compute_name_changes, store_name_changes
from app.access.tables import FormerPayloadRow
from app.foundation.database.statements import run

FORMER_PAYLOAD = FormerPayloadRow.__table__

_CHANGED_KEYS = "INSERT INTO {changed} ({keys}) SELECT {keys} FROM {rows} WHERE true ON CONFLICT DO NOTHING"

_CHANGED_KEYS_BY_ID = """
INSERT INTO {changed} ({keys}) SELECT {keys} FROM {rows} WHERE user_alias = '' ON CONFLICT DO NOTHING
"""

_CHANGED_KEYS_BY_ALIAS = """
INSERT INTO {changed} ({other_keys}, user_id)
SELECT {other_keys:r}, h.user_id FROM {rows} r CROSS JOIN model_user_alias h
WHERE r.user_alias <> '' AND h.alias = r.user_alias
AND NOT EXISTS (SELECT 1 FROM model_user_alias o WHERE o.alias = h.alias AND o.user_id <> h.user_id)
ON CONFLICT DO NOTHING
"""

_KEYS_OF_CHANGED_ALIASES = """
INSERT INTO {changed} ({other_keys}, user_id)
SELECT {other_keys:s}, a.user_id
FROM (SELECT alias, former_user_id AS user_id FROM refresh_changed_alias WHERE former_user_id IS NOT NULL
  UNION ALL SELECT alias, user_id FROM refresh_changed_alias WHERE user_id IS NOT NULL) a
CROSS JOIN {source} s
WHERE s.user_alias = a.alias AND s.user_alias <> ''
ON CONFLICT DO NOTHING
"""

# Of each key the first row in this order is stored; the others conflict with it. Pushed rows, whose origin is empty,
# come before those of objects.
_MERGE_FIRST = """
INSERT INTO {merged} ({merged_columns})
SELECT {merged_columns:s} FROM {changed} c CROSS JOIN {source} s CROSS JOIN directory_source d
WHERE {keys:s=c} AND d.source_id = s.source_id
ORDER BY {keys:s}, d.position, d.source_id, s.origin @bytes, LENGTH(s.rule), s.rule @bytes
ON CONFLICT DO NOTHING
"""

# The rows of each source are combined; of each key the first source is stored. A pushed row hides the rows of objects
# with the same written key. Counting holders is faster on PostgreSQL, which underestimates the rows of ``NOT EXISTS``.
_MERGE_COMBINED = """
INSERT INTO {merged} ({keys}, {values})
SELECT {keys:n}, {combined}
FROM (
  SELECT {keys:c}, {values:s} FROM {changed} c CROSS JOIN {source} s
  WHERE {keys:s=c} AND s.user_alias = ''
  AND (s.origin = '' OR NOT EXISTS (SELECT 1 FROM {source} p WHERE {written_keys:p=s} AND p.origin = ''))
  UNION ALL
  SELECT {keys:c}, {values:s} FROM {changed} c CROSS JOIN model_user_alias h CROSS JOIN {source} s
  WHERE c.user_id <> '' AND h.user_id = c.user_id
  AND (SELECT COUNT(*) FROM model_user_alias o WHERE o.alias = h.alias) = 1
  AND {other_keys:s=c} AND s.user_id = '' AND s.user_alias = h.alias
  AND (s.origin = '' OR NOT EXISTS (SELECT 1 FROM {source} p WHERE {written_keys:p=s} AND p.origin = ''))
) AS n CROSS JOIN directory_source d
WHERE d.source_id = n.source_id
GROUP BY {keys:n}, d.position, n.source_id
ORDER BY {keys:n}, d.position, n.source_id
ON CONFLICT DO NOTHING
"""

_COMPARE = """
INSERT INTO {delta} ({keys}, change)
SELECT {keys:c}, CASE WHEN a.source_id IS NULL THEN {add} WHEN m.source_id IS NULL THEN {remove}
  WHEN ({content:m}) IS DISTINCT FROM ({content:a}) THEN {update} ELSE {owner} END
FROM {changed} c LEFT JOIN {merged} m ON {keys:m=c} LEFT JOIN {model} a ON {keys:a=c}
WHERE (m.source_id IS NOT NULL OR a.source_id IS NOT NULL)
AND (m.source_id IS DISTINCT FROM a.source_id OR ({content:m}) IS DISTINCT FROM ({content:a}))
"""


def merge(session: RefreshSession, connection: Connection, changed_kinds: Collection[str] | None) -> list[ModelTables]:
    """Fills the deltas of the access model, and returns the kinds that have one; aliases and bindings are updated.

    ``changed_kinds``: those of which ``source_delta`` has rows, which are carried out; None: all keys are merged.
    """
    return _Merge(session, connection, changed_kinds).compute()


class _Merge:
    def __init__(self, session: RefreshSession, connection: Connection, changed_kinds: Collection[str] | None) -> None:
        self._session = session
        self._connection = connection
        self._all = changed_kinds is None
        self._kinds = {tables.kind for tables in MODEL_TABLES} | {Fill.kind} if changed_kinds is None else changed_kinds
        self._changed = Counter[str]()
        """Kind → how many keys are merged."""

    def compute(self) -> list[ModelTables]:
        rows = "source" if self._all else "source_delta"
        for tables in MODEL_TABLES:
            if tables.kind not in self._kinds:
                continue
            if not tables.record_kind.names_user:
                self._add_keys(tables, _CHANGED_KEYS, rows)
                if self._all:
                    self._add_keys(tables, _CHANGED_KEYS, "model")
                self._merge(tables, _MERGE_FIRST)
            elif not self._all:
                # By the holders before the change: what was removed is under their keys.
                self._add_keys(tables, _CHANGED_KEYS_BY_ID, rows)
                self._add_keys(tables, _CHANGED_KEYS_BY_ALIAS, rows)
        self._merge_users()
        for tables in MODEL_TABLES:
            if tables.record_kind.names_user:
                self._merge_kind_that_names_users(tables)
        return [tables for tables in MODEL_TABLES if self._compare(tables)]

    def _merge_users(self) -> None:
        connection, users = self._connection, MODEL_TABLES_OF_KIND[User.kind]
        if self._changed[User.kind]:
            update_aliases(self._session, connection)
        fills_change = Fill.kind in self._kinds and store_changed_fills(connection, all_fills=self._all)
        if not fills_change and not (self._changed[User.kind] and has_fills(connection)):
            return
        more = store_filled_users(connection)
        if more:
            self._changed[User.kind] += more
            users.run(self._connection, "DELETE FROM {merged}")
            self._merge(users, _MERGE_FIRST)
        update_bindings(self._session, connection)
        if self._changed[User.kind]:
            apply_fills(connection)

    def _merge_kind_that_names_users(self, tables: ModelTables) -> None:
        if self._all:
            self._add_keys(tables, _CHANGED_KEYS_BY_ID, "source")
            self._add_keys(tables, _CHANGED_KEYS_BY_ALIAS, "source")
            self._add_keys(tables, _CHANGED_KEYS, "model")
        elif self._changed[User.kind]:
            self._add_keys(tables, _KEYS_OF_CHANGED_ALIASES, "")
        self._merge(tables, _MERGE_COMBINED)

    def _add_keys(self, tables: ModelTables, statement: str, rows: str) -> None:
        self._changed[tables.kind] += tables.run(self._connection, statement, rows=rows).rowcount

    def _merge(self, tables: ModelTables, statement: str) -> None:
        keys = self._changed[tables.kind]
        if keys:
            self._session.count_rows(keys)
            self._session.analyze_if_many(tables.changed, keys)
            tables.run(self._connection, statement)
            self._session.analyze_if_many(tables.merged, keys)

    def _compare(self, tables: ModelTables) -> bool:
        return bool(self._changed[tables.kind]) and tables.run(self._connection, _COMPARE).rowcount > 0


# Carrying out.

_COUNTS = """
SELECT COUNT(*) FILTER (WHERE change = {add}), COUNT(*) FILTER (WHERE change = {update}),
  COUNT(*) FILTER (WHERE change = {remove}), COUNT(*)
FROM {delta}
"""

_REMOVE_ROWS = "DELETE FROM {model} WHERE ({keys}) IN (SELECT {keys} FROM {delta} WHERE change <> {add})"

# An outer join stops SQLite from swapping the sides.
_ADD_ROWS = """
INSERT INTO {model} ({columns})
SELECT {columns:m} FROM {delta} d LEFT JOIN {merged} m ON {keys:m=d} WHERE d.change <> {remove} ORDER BY {keys:d}
"""


def carry_out(session: RefreshSession, connection: Connection, kinds: Sequence[ModelTables]) -> dict[str, ChangeCounts]:
    """Carries out the deltas of these kinds, which have rows; returns kind → counts, for every kind."""
    changes = {tables.kind: ChangeCounts() for tables in MODEL_TABLES}
    for tables in kinds:
        added, updated, removed, rows = tables.run(connection, _COUNTS).one()
        changes[tables.kind] = counts = ChangeCounts(added, updated, removed)
        is_payload_replaced = (updated or removed) and "payload" in tables.model.c
        if session.on_candidate:
            shadow(connection, tables.model)
            if is_payload_replaced:
                shadow(connection, FORMER_PAYLOAD)
        else:
            compute_name_changes(session, connection, tables)
            _update_counts(connection, tables, counts)
        if is_payload_replaced:
            tables.run(connection, _STORE_FORMER)
        if rows > added:
            tables.run(connection, _REMOVE_ROWS)
        if rows > removed:
            tables.run(connection, _ADD_ROWS)
        session.analyze_if_many(tables.model, rows)
    if kinds and not session.on_candidate:
        store_name_changes(connection)
    return changes


# Former payloads. The ledger stores digests. The payload of a digest is in the access model as long as the record stays
# as it is; when the record changes, its payload moves to ``former_payload``, so that plans can show it.

# Outer joins stop SQLite from swapping the sides and reading whole tables for a small delta.
_STORE_FORMER = """
INSERT INTO former_payload (kind, organization_id, item_id, digest, payload)
SELECT '{kind}', {organization:a}, {item:a}, a.digest, a.payload
FROM {delta} d LEFT JOIN {model} a ON {keys:a=d} LEFT JOIN {merged} m ON {keys:m=d}
WHERE d.change IN ({update}, {remove}) AND a.digest IS NOT NULL AND m.digest IS DISTINCT FROM a.digest
ORDER BY 2, 3, 4
ON CONFLICT DO NOTHING
"""

_DELETE_UNUSED = """
DELETE FROM former_payload WHERE NOT EXISTS (
  SELECT 1 FROM ledger b CROSS JOIN ledger_item l
  WHERE l.ledger_id = b.ledger_id AND l.item_id = former_payload.item_id AND l.digest = former_payload.digest
    AND l.kind IN (former_payload.kind, 'organizationUser', 'folderUser', 'documentUser'))
AND digest NOT IN (
  SELECT i.digest FROM plan_part p CROSS JOIN plan_item i
  WHERE p.organization_id = '' AND p.action = 'delete'
    AND p.kind IN ('organization', 'folder', 'document', 'group', 'organizationUser')
    AND i.plan_id = p.plan_id AND i.ordinal BETWEEN p.first_ordinal AND p.last_ordinal)
"""


def delete_unused_payloads(connection: Connection) -> int:
    """Deletes the former payloads whose digest no ledger and no delete in a plan has; returns how many."""
    return run(connection, _DELETE_UNUSED).rowcount


# The number of records of each organization, and of all: the empty organization id.

_COUNT_IN_EACH = """
INSERT INTO access_count (organization_id, kind, records)
SELECT organization_id, '{kind}', SUM(CASE change WHEN {add} THEN 1 ELSE -1 END)
FROM {delta} WHERE change IN ({add}, {remove}) GROUP BY organization_id
HAVING SUM(CASE change WHEN {add} THEN 1 ELSE -1 END) <> 0
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_COUNT_IN_ALL = """
INSERT INTO access_count (organization_id, kind, records) VALUES ('', '{kind}', :more)
ON CONFLICT (organization_id, kind) DO UPDATE SET records = access_count.records + excluded.records
"""

_DELETE_ZERO = """
DELETE FROM access_count WHERE records = 0 AND kind = '{kind}'
AND organization_id IN (SELECT organization_id FROM {delta} WHERE change = {remove})
"""


def _update_counts(connection: Connection, tables: ModelTables, counts: ChangeCounts) -> None:
    if not counts.added and not counts.removed:
        return
    if len(tables.keys) > 1:
        tables.run(connection, _COUNT_IN_EACH)
        tables.run(connection, _DELETE_ZERO)
    tables.run(connection, _COUNT_IN_ALL, {"more": counts.added - counts.removed})
