"""Merges the records of all sources: for each key, the record of the most authoritative source wins.

The rules: ``app/access/README.md``, "The merge".

``Merge`` merges the keys whose records changed, or all keys, and computes the deltas of the access model
(``model_changes.py`` writes them). No row depends on another row: whether a record's organization, user, group,
folder or document exists is for readers to check (``app.access.effective``). Only aliases are replaced by the id of
their only holder (``aliases.py``), and fills add to users (``fills.py``).

The head of ``tables.py`` explains the temporary tables and the placeholders of statements, such as ``{keys:s=c}``;
``app.foundation.database.statements`` the markers, such as ``@bytes``. Few keys must be looked up in large tables one
by one. On SQLite the cross joins ensure that, on PostgreSQL ``RefreshSession.look_up_rows``.
"""

from collections import Counter
from collections.abc import Collection

from sqlalchemy import Connection

from app.access.records import Fill, User
from app.access.refresh.aliases import update_aliases
from app.access.refresh.fills import (
    apply_fills,
    has_fills,
    store_changed_fills,
    store_filled_users,
    update_bindings,
)
from app.access.refresh.session import RefreshSession
from app.access.refresh.tables import MODEL_TABLES, MODEL_TABLES_OF_KIND, ModelTables
from app.foundation.database.statements import run

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

# One statement, because few changed aliases are used.
_KINDS_OF_CHANGED_ALIASES = " UNION ALL ".join(
    tables.text("""
SELECT '{kind}' WHERE EXISTS (
  SELECT 1 FROM refresh_changed_alias a CROSS JOIN {source} s WHERE s.user_alias = a.alias AND s.user_alias <> '')
""")
    for tables in MODEL_TABLES
    if tables.record_kind.may_use_alias
)

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


class Merge:
    """One merge. Aliases depend on the merged users, so kinds that name users are merged after them."""

    def __init__(self, session: RefreshSession, connection: Connection, changed_kinds: Collection[str] | None) -> None:
        """``changed_kinds``: those with rows in ``source_delta``. None: all keys are merged."""
        self._session = session
        self._connection = connection
        self._all = changed_kinds is None
        self._kinds = {tables.kind for tables in MODEL_TABLES} | {Fill.kind} if changed_kinds is None else changed_kinds
        self._changed = Counter[str]()
        """Kind → how many keys are merged."""
        self._kinds_of_aliases: Collection[str] = ()
        """The kinds with records that name a user by a changed alias."""

    def compute_deltas(self) -> list[ModelTables]:
        """Fills the deltas of the access model, and updates aliases and bindings. Returns the kinds with a delta."""
        rows = "source" if self._all else "source_delta"
        for tables in MODEL_TABLES:
            if tables.kind not in self._kinds:
                continue
            if not tables.record_kind.may_use_alias:
                self._add_keys(tables, _CHANGED_KEYS, rows)
                if self._all:
                    self._add_keys(tables, _CHANGED_KEYS, "model")
                self._merge_keys(tables, _MERGE_FIRST)
            elif not self._all:
                # By the holders before the change: what was removed is under their keys.
                self._add_keys(tables, _CHANGED_KEYS_BY_ID, rows)
                self._add_keys(tables, _CHANGED_KEYS_BY_ALIAS, rows)
        self._merge_users()
        for tables in MODEL_TABLES:
            if tables.record_kind.may_use_alias:
                self._merge_kind_that_names_users(tables)
        return [tables for tables in MODEL_TABLES if self._compare(tables)]

    def _merge_users(self) -> None:
        """Updates the aliases, then applies fills to the merged users: a fill may name its user by an alias.

        Fills can affect further users, whose own records did not change. ``_MERGE_FIRST`` merges all changed users, not
        only these, so the merged users are deleted first.
        """
        connection, users = self._connection, MODEL_TABLES_OF_KIND[User.kind]
        if self._changed[User.kind] and update_aliases(self._session, connection) and not self._all:
            self._kinds_of_aliases = set(run(connection, _KINDS_OF_CHANGED_ALIASES).scalars())
        fills_change = Fill.kind in self._kinds and store_changed_fills(connection, all_fills=self._all)
        if not fills_change and not (self._changed[User.kind] and has_fills(connection)):
            return
        more = store_filled_users(connection)
        if more:
            self._changed[User.kind] += more
            users.run(self._connection, "DELETE FROM {merged}")
            self._merge_keys(users, _MERGE_FIRST)
        update_bindings(self._session, connection)
        if self._changed[User.kind]:
            apply_fills(connection)

    def _merge_kind_that_names_users(self, tables: ModelTables) -> None:
        if self._all:
            self._add_keys(tables, _CHANGED_KEYS_BY_ID, "source")
            self._add_keys(tables, _CHANGED_KEYS_BY_ALIAS, "source")
            self._add_keys(tables, _CHANGED_KEYS, "model")
        elif tables.kind in self._kinds_of_aliases:
            self._add_keys(tables, _KEYS_OF_CHANGED_ALIASES, "")
        self._merge_keys(tables, _MERGE_COMBINED)

    def _add_keys(self, tables: ModelTables, statement: str, rows: str) -> None:
        self._changed[tables.kind] += tables.run(self._connection, statement, rows=rows).rowcount

    def _merge_keys(self, tables: ModelTables, statement: str) -> None:
        keys = self._changed[tables.kind]
        if keys:
            self._session.count_rows(keys)
            self._session.analyze_if_many(tables.changed, keys)
            tables.run(self._connection, statement)
            self._session.analyze_if_many(tables.merged, keys)

    def _compare(self, tables: ModelTables) -> bool:
        return bool(self._changed[tables.kind]) and tables.run(self._connection, _COMPARE).rowcount > 0
