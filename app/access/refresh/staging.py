"""Stages the records of the sources that a refresh reads: in temporary tables, with the result of each read.

A complete read replaces what the source provided before; a partial one adds and updates; a failed one changes nothing.
A read of changes or of a part does the same, but only for the objects that it reports.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from sqlalchemy import Connection, func, select

from app.access.kinds import KINDS
from app.access.record_tables import VALUES_FROM_RECORD, Values
from app.access.records import Record
from app.access.refresh.pushed_keys import has_pushed_keys
from app.access.refresh.reads import FAILED, ReadResult, StagedRead, StartedRead
from app.access.refresh.session import RefreshSession
from app.access.refresh.sources import begin_reads, find_objects, make_state, select_aliases
from app.access.refresh.tables import REFRESH_TABLES
from app.foundation.database.statements import json_list, run

_BATCH_ROWS = 5_000
"""Buffered records are written when there are so many."""

_BATCH_CHARACTERS = 4 * 1024 * 1024
"""Buffered records are written when their payloads have so many characters."""

_BATCH_OBJECTS = 500
"""Buffered ids of gone or malformed objects are written when they exceed this number."""

_EMPTY: Mapping[str, int] = MappingProxyType({})


class Staging:
    """The reads of one refresh.

    ``position`` is that of a source in the configuration. None: the only source that is read.
    """

    def __init__(self, session: RefreshSession) -> None:
        self._session = session
        self._buffer: dict[str, list[Values]] = {tables.kind: [] for tables in REFRESH_TABLES}
        self._buffered_rows = 0
        self._buffered_characters = 0
        self._gone: dict[int, set[str]] = {}
        """Position → objects that are gone, until they are written."""
        self._malformed: dict[int, dict[str, bool]] = {}
        """Position → malformed objects, and whether they are disabled, until they are written."""
        self._last_before_changes: dict[int, Mapping[str, int]] = {}
        """Position → the highest ``seq`` of each kind when the complete read ended."""
        self._started: dict[int, StartedRead] = {}
        """Position → the state of the source. All sources, read or not."""
        self._open: dict[int, StartedRead] = {}
        self._ended: dict[int, StagedRead] = {}

    def begin(self, names: Sequence[str], *, read: Collection[str]) -> None:
        """Sets the sources, in the order of the configuration, and numbers the reads that begin. ``read``: the sources
        that are read."""
        with self._session.change() as connection:
            make_state(connection)
            self._started = dict(enumerate(begin_reads(connection, names, read)))
        self._open = {position: started for position, started in self._started.items() if started.number}

    @property
    def positions(self) -> Mapping[int, int]:
        """Source → its position, for all sources of the configuration."""
        return {started.source_id: position for position, started in self._started.items()}

    @property
    def reads(self) -> list[StagedRead]:
        """The finished reads, in the order of the configuration."""
        return [read for _, read in sorted(self._ended.items())]

    def started(self, position: int) -> StartedRead:
        """The state of the source when its read began."""
        return self._started[position]

    def find_objects(
        self, position: int, organization_ids: Collection[str], user_ids: Collection[str]
    ) -> Sequence[tuple[str, str]] | None:
        """The objects of the source whose records name some of these (``sources.find_objects``). None: they are
        unknown."""
        source_id = self._started[position].source_id
        with self._session.snapshot() as connection:
            # It is not known to which objects the pushed records belong.
            if has_pushed_keys(connection, source_id):
                return None
            return find_objects(connection, source_id, organization_ids, user_ids)

    def find_aliases(self, user_ids: Collection[str]) -> Sequence[str]:
        """The aliases of these users in the access model, sorted."""
        with self._session.snapshot() as connection:
            return sorted(connection.execute(select_aliases(user_ids)).scalars())

    def open_source(self, source_id: int) -> None:
        """Stages what is added from here on for this source without a read. For ``Refresh.changing``."""
        self._open = {0: StartedRead(source_id)}

    def add(self, record: Record, place: str, *, origin: str = "", rule: str = "", position: int | None = None) -> None:
        """Stages a record.

        ``origin``: the object that it was made from (``app.access.source_tables.origin_text``). ``rule``: the rule
        that made it. Both are empty if the source has no objects.
        """
        position = self._position(position)
        if self._gone and origin in self._gone.get(position, ()):
            self.flush()
        kind = record.kind
        values = VALUES_FROM_RECORD[kind](record)
        self._buffer[kind].append((*values, self._open[position].source_id, origin, rule, place))
        self._buffered_rows += 1
        if KINDS[kind].has_extra_fields:
            payload, _digest = values[-2:]
            self._buffered_characters += len(str(payload))
        if self._buffered_rows >= _BATCH_ROWS or self._buffered_characters >= _BATCH_CHARACTERS:
            self.flush()

    def add_gone(self, origin: str, *, position: int | None = None) -> None:
        """Removes an object in a read of changes, and the records of it that were added before."""
        gone = self._gone.setdefault(self._position(position), set())
        gone.add(origin)
        if len(gone) >= _BATCH_OBJECTS:
            self.flush()

    def add_malformed(self, origin: str, *, disabled: bool, position: int | None = None) -> None:
        """Keeps the earlier records of a malformed object. ``disabled``: the object is disabled."""
        malformed = self._malformed.setdefault(self._position(position), {})
        malformed[origin] = malformed.get(origin, False) or disabled
        if len(malformed) >= _BATCH_OBJECTS:
            self.flush()

    def replace_objects(self, origins: Collection[str]) -> None:
        """Makes the staged records replace all earlier ones of these objects, in the transaction of a change."""
        self.flush()
        (started,) = self._open.values()
        with self._session.scratch() as connection:
            self._session.index_staged()
            if origins:
                run(connection, _STORE_GONE, {"source_id": started.source_id, "origins": json_list(origins)})

    def restart(self, position: int) -> None:
        """Drops the records added for the source, which is read again from the beginning."""
        self.flush()
        self._last_before_changes.pop(position, None)
        with self._session.scratch() as connection:
            _drop_staged(connection, self._open[position].source_id)

    def begin_changes(self, position: int) -> None:
        """Ends the complete read. Records added from now on are changes since it began.

        A complete read may take long, and has no snapshot: it contains an object as it was when it was read, and may
        lack one that moved. The changes correct that.
        """
        self.flush()
        with self._session.scratch() as connection:
            self._last_before_changes[position] = {
                tables.kind: connection.execute(select(func.coalesce(func.max(tables.staged.c.seq), 0))).scalar_one()
                for tables in REFRESH_TABLES
            }

    def end_changes(self, position: int, *, usable: bool) -> None:
        """Ends the changes after ``begin_changes``. Drops them unless they are ``usable``."""
        self.flush()
        source_id, before = self._open[position].source_id, self._last_before_changes.pop(position)
        with self._session.scratch() as connection:
            if usable:
                _store_reread_objects(connection, source_id, before)
                for tables in REFRESH_TABLES:
                    tables.run(connection, _DROP_REREAD, {"source_id": source_id, "before": before[tables.kind]})
                # The rest is a complete read.
                run(connection, _FORGET_REREAD, {"source_id": source_id})
            else:
                _drop_staged(connection, source_id, after=before)

    def end(self, result: ReadResult, *, position: int | None = None) -> None:
        """Ends the read of the source. Drops the records of a failed read."""
        self.flush()
        position = self._position(position)
        started = self._open.pop(position)
        source_id = started.source_id
        self._ended[position] = StagedRead(
            source_id=source_id, name=started.name, number=started.number, **asdict(result)
        )
        with self._session.scratch() as connection:
            if result.verdict == FAILED:
                _drop_staged(connection, source_id)
            elif result.answered:
                _store_reread_objects(connection, source_id, _EMPTY)
                run(connection, _KEEP_MALFORMED, {"source_id": source_id})

    def _position(self, position: int | None) -> int:
        if position is None:
            (position,) = self._open
        return position

    def flush(self) -> None:
        """Writes everything that is buffered to the temporary tables."""
        if self._buffered_rows:
            self._session.stage(self._buffer)
            for values in self._buffer.values():
                values.clear()
            self._buffered_rows = self._buffered_characters = 0
        for position, origins in self._gone.items():
            after = self._last_before_changes.get(position, _EMPTY)
            objects = {"source_id": self._open[position].source_id, "origins": json_list(sorted(origins))}
            with self._session.scratch() as connection:
                for tables in REFRESH_TABLES:
                    tables.run(connection, _DROP_OBJECTS, {**objects, "after": after.get(tables.kind, 0)})
                run(connection, _STORE_GONE, objects)
        self._gone.clear()
        for position, malformed in self._malformed.items():
            source_id = self._open[position].source_id
            rows = [
                {"source_id": source_id, "origin": origin, "disabled": disabled}
                for origin, disabled in sorted(malformed.items())
            ]
            with self._session.scratch() as connection:
                run(connection, _STORE_MALFORMED, rows)
        self._malformed.clear()


# Objects of a read.

_STORE_REREAD = """
INSERT INTO refresh_reread_object (source_id, origin)
SELECT DISTINCT source_id, origin FROM {staged} WHERE source_id = :source_id AND seq > :after
ON CONFLICT DO NOTHING
"""

_STORE_GONE = """
INSERT INTO refresh_reread_object (source_id, origin)
SELECT CAST(:source_id AS INTEGER), value FROM (@list(origins)) AS gone WHERE true
ON CONFLICT DO NOTHING
"""

_STORE_MALFORMED = """
INSERT INTO refresh_malformed_object (source_id, origin, disabled) VALUES (:source_id, :origin, :disabled)
ON CONFLICT (source_id, origin) DO UPDATE SET disabled = refresh_malformed_object.disabled OR excluded.disabled
"""

# A read of changes does not replace malformed objects: what else they provided before is kept.
_KEEP_MALFORMED = """
DELETE FROM refresh_reread_object WHERE source_id = :source_id
AND origin IN (SELECT origin FROM refresh_malformed_object WHERE source_id = :source_id)
"""

_DROP = "DELETE FROM {staged} WHERE source_id = :source_id AND seq > :after"

_DROP_OBJECTS = """
DELETE FROM {staged} WHERE source_id = :source_id AND seq > :after AND origin IN (@list(origins))
"""

_DROP_REREAD = """
DELETE FROM {staged} WHERE source_id = :source_id AND seq <= :before
AND origin IN (SELECT origin FROM refresh_reread_object WHERE source_id = :source_id)
"""

_FORGET_REREAD = "DELETE FROM refresh_reread_object WHERE source_id = :source_id"

_FORGET_MALFORMED = "DELETE FROM refresh_malformed_object WHERE source_id = :source_id"


def _drop_staged(connection: Connection, source_id: int, *, after: Mapping[str, int] = _EMPTY) -> None:
    """Drops what was staged for a source. ``after``: kind → only records behind this number."""
    for tables in REFRESH_TABLES:
        tables.run(connection, _DROP, {"source_id": source_id, "after": after.get(tables.kind, 0)})
    run(connection, _FORGET_REREAD, {"source_id": source_id})
    if not after:
        run(connection, _FORGET_MALFORMED, {"source_id": source_id})


def _store_reread_objects(connection: Connection, source_id: int, after: Mapping[str, int]) -> None:
    """Stores the objects whose records were staged. ``after``: kind → only records behind this number."""
    for tables in REFRESH_TABLES:
        tables.run(connection, _STORE_REREAD, {"source_id": source_id, "after": after.get(tables.kind, 0)})
