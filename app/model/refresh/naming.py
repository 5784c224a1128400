"""The names under which records are searched for, brought in line with what a merge changes in the access model.

They are worked out with the merge, into a temporary table, from what the records were and what they become, and carried
out with the access model's own changes, in two statements. A record whose names stay as they are has no part in it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row

from app.database.statements import run, statement
from app.model.names import NAMED_KINDS, names_of
from app.model.refresh.scope import MergeScope
from app.model.refresh.scratch import CHANGED_NAME, ModelTables, RowChange
from app.model.refresh.session import RefreshSession
from app.store.record_tables import Values

_ROWS_AT_A_TIME = 100
"""Few, because the fields of a single record may be as long as a line of its source."""
_NAMES_AT_A_TIME = 4_000

# Outer joins keep SQLite from turning the joins round and reading whole tables for a small delta.
_DIFFERING = """
SELECT {organization}, d.{item}, a.payload, s.payload
FROM {delta} d LEFT JOIN {access} a ON d.change <> {add} AND {same_record} LEFT JOIN {given} s ON {same_row}
WHERE a.digest IS NULL OR s.digest IS NULL OR a.digest <> s.digest
"""

_ARE_GONE = f"""
DELETE FROM access_name WHERE (kind, name, organization_id, item_id) IN (
  SELECT kind, name, organization_id, item_id FROM refresh_changed_name WHERE change = {int(RowChange.REMOVE)})
"""  # noqa: S608 - a number of our own

# In the order of the key, so that a large table is written from its beginning to its end.
_ARE_NEW = f"""
INSERT INTO access_name (kind, name, organization_id, item_id)
SELECT kind, name, organization_id, item_id FROM refresh_changed_name WHERE change = {int(RowChange.ADD)}
ORDER BY kind, name, organization_id, item_id
ON CONFLICT DO NOTHING
"""  # noqa: S608 - as above

_NONE: set[str] = set()


class Naming:
    """The changed names of one merge. On a candidate nobody searches: there are none."""

    def __init__(self, session: RefreshSession) -> None:
        self._session = session
        self._added = self._removed = 0

    @property
    def is_wanted(self) -> bool:
        return not self._session.on_candidate

    def begin(self) -> None:
        """Forgets what was noted, in the transaction that is open."""
        self._added = self._removed = 0
        if self.is_wanted:
            self._session.run_all([f"DELETE FROM {CHANGED_NAME.name}"])  # noqa: S608 - our own table

    def note(self, connection: Connection, tables: ModelTables, scope: MergeScope) -> None:
        """Notes what becomes of the names of a kind, whose delta is that of the access model."""
        if not self.is_wanted or tables.kind not in NAMED_KINDS:
            return
        kind, names = tables.kind, names_of(tables.kind)
        changed: list[Values] = []
        for rows in self._differing(connection, tables, scope):
            for row in rows:
                organization_id, item_id, payload_before, payload_after = tuple(row)
                new = _NONE if payload_after is None else names(item_id, payload_after)
                if payload_before is not None:
                    former = names(item_id, payload_before)
                    gone = former - new
                    changed += [(_REMOVE, kind, name, organization_id, item_id) for name in gone]
                    self._removed += len(gone)
                    new = new - former
                changed += [(_ADD, kind, name, organization_id, item_id) for name in new]
                self._added += len(new)
            if len(changed) >= _NAMES_AT_A_TIME:
                self._session.fill(CHANGED_NAME, changed)
                changed = []
        if changed:
            self._session.fill(CHANGED_NAME, changed)

    def carry_out(self, connection: Connection) -> None:
        """Does what was noted."""
        if self._added or self._removed:
            self._session.analyze(CHANGED_NAME)
        if self._removed:
            run(connection, _ARE_GONE)
        if self._added:
            run(connection, _ARE_NEW)

    def _differing(
        self, connection: Connection, tables: ModelTables, scope: MergeScope
    ) -> Iterator[Sequence[Row[Any]]]:
        *within, item = tables.keys
        query = statement(
            connection,
            _DIFFERING,
            organization="d.organization_id" if within else "''",
            item=item,
            delta=tables.delta.name,
            access=tables.access.name,
            given=scope.given(tables).name,
            same_record=" AND ".join(f"a.{name} = d.{name}" for name in tables.keys),
            same_row=" AND ".join(f"s.{name} = d.{name}" for name in tables.given_keys),
            add=str(int(RowChange.ADD)),
        )
        if self._session.is_small:
            yield connection.execute(query).all()
            return
        found = connection.execute(query, execution_options={"yield_per": _ROWS_AT_A_TIME})
        yield from found.partitions(_ROWS_AT_A_TIME)


_ADD, _REMOVE = int(RowChange.ADD), int(RowChange.REMOVE)
