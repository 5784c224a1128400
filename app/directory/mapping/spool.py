"""The spool: a SQLite file that resolves group members by joins.

A directory names members by DN or by another name, and may return a group before or after its members. So a read stores
the names of each object, the names of its members, and the values that rules use. When everything has been read,
members are looked up, through nested groups and cycles.

A full read creates a new spool, which replaces the one before at the end of the read. An incremental read changes the
spool in one transaction, and finds the groups that it touches: those that name a changed object, and those above. The
spool stores its cursor, and the touched groups since the cursor before, so that the last incremental read can be
repeated.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, Self

import orjson
from filelock import FileLock

from app.directory.connector import DirectoryObject
from app.directory.source import ObjectId
from app.foundation.batches import batches

_BUSY_TIMEOUT = 5.0
"""Seconds to wait for another connection to the file."""


class SpoolError(Exception):
    """The spool cannot be used. The message is one line."""


class _ObjectRow(NamedTuple):
    """A row of ``object`` without its number."""

    set_name: str
    id: str
    place: str
    holds: bool
    """Whether the object is a group."""
    value: bytes | None
    """Of groups, the value of ``it`` in expressions."""
    member: bytes | None
    """Of others, the value of ``member``."""
    round: int
    """The read that returned the object last."""


class Member(NamedTuple):
    """A member of a group, as a row of ``object``."""

    number: int
    set: str
    object_id: str
    place: str
    packed: bytes | None

    @property
    def id(self) -> ObjectId:
        return ObjectId(self.set, self.object_id)

    @property
    def value(self) -> Mapping[str, object]:
        """The value of ``member`` in expressions."""
        return orjson.loads(self.packed) if self.packed is not None else {}


class SpooledGroup(NamedTuple):
    """A group in the spool."""

    number: int
    id: ObjectId
    place: str
    value: dict[str, object]
    """The value of ``it`` in expressions."""
    is_seen: bool
    """Whether this read returned it."""


class Spool:
    """An open spool, in a transaction that ``keep`` commits and ``close`` rolls back. Raises ``sqlite3.Error``."""

    def __init__(
        self, path: Path, *, is_new: bool, replace: Callable[[Path], None] | None = None, lock: FileLock | None = None
    ) -> None:
        """``replace`` moves a new spool to its permanent path. None: it is deleted after the read."""
        self._path = path
        self._is_new = is_new
        self._replace = replace
        self._lock = lock
        # Any thread may close it.
        self._connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        self._round = 1
        self._cursor_before = ""
        if is_new:
            # A new spool is not used before it is complete, so it need not survive a crash.
            self._connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE;")
            self._connection.execute("BEGIN")
            self._run(_TABLES)

    def begin_changes(self, cursor: str, digest: str) -> bool:
        """Begins an incremental read. False unless the spool is of this cursor (also the one before its last changes;
        "": any) and of these rules."""
        self._connection.execute("BEGIN IMMEDIATE")
        belongs = self._connection.execute("SELECT digest, cursor, cursor_before, round FROM belongs").fetchone()
        own_digest, last, before_last, last_round = belongs or ("", "", "", 0)
        if own_digest != digest or cursor not in ("", last, before_last):
            return False
        if cursor in ("", last):
            self._connection.execute("DELETE FROM pending")
        self._cursor_before = cursor
        self._round = last_round + 1
        self._run(_INDEXES_OF_CHANGES, "CREATE TEMP TABLE touched (name TEXT PRIMARY KEY)")
        return True

    # Writing.

    def put(
        self, object_: DirectoryObject, *, value: Mapping[str, object] | None, member: Mapping[str, object] | None
    ) -> None:
        """Stores an object: a group has a ``value``, and a possible member has the value of ``member``."""
        row = _ObjectRow(
            *object_.id,
            object_.place,
            holds=value is not None,
            value=None if value is None else orjson.dumps(value),
            member=None if member is None else orjson.dumps(member, option=orjson.OPT_SORT_KEYS),
            round=self._round,
        )
        if not self._is_new:
            self._upsert(object_, row)
            return
        number = self._insert(row)
        self._insert_names("name", number, object_.names)
        if value is not None:
            self._put_members(number, object_.members)

    def _put_members(self, number: int, names: Sequence[str]) -> None:
        """Stores the members of a new object, of which there may be hundreds of thousands."""
        for batch in batches(names, 1_000):
            if "\0" in "".join(batch):
                # SQLite's JSON functions end text at a NUL.
                self._insert_names("member", number, batch)
            else:
                # Several times as fast as row by row.
                packed = orjson.dumps(batch).decode()
                self._connection.execute("INSERT INTO member SELECT ?, value FROM json_each(?)", (number, packed))

    def remove(self, object_id: ObjectId) -> None:
        row = self._row(object_id)
        if row is not None:
            number, *_ = row
            self._touch(self._names_of(number))
            for statement in (
                "DELETE FROM name WHERE object = ?",
                "DELETE FROM member WHERE object = ?",
                "DELETE FROM pending WHERE object = ?",
                "DELETE FROM object WHERE number = ?",
            ):
                self._connection.execute(statement, (number,))

    def remove_unseen(self) -> None:
        """Deletes all objects that this read did not return."""
        unseen = self._connection.execute("SELECT set_name, id FROM object WHERE round < ?", (self._round,)).fetchall()
        for set_name, id_ in unseen:
            self.remove(ObjectId(set_name, id_))

    def index(self) -> None:
        """Prepares the lookup of members, after the last object has been stored."""
        if self._is_new:
            self._run(_INDEXES)
            if self._connection.execute(_ANY_DUPLICATE).fetchone() is not None:
                for table, column in (("name", "object"), ("member", "object"), ("object", "number")):
                    self._connection.execute(_DELETE_DUPLICATES.format(table, column))
            self._run(_AMBIGUOUS, _EDGES.format("TABLE"))
            self._run("CREATE INDEX temp.edge_outer ON edge (outer_object, inner_object)", _NESTED)
        else:
            self._run(_TOUCHED, _AMBIGUOUS, _EDGES.format("VIEW"), _NESTED_OF_CHANGES)
        self._run("CREATE INDEX temp.nested_outer ON nested (outer_object, inner_object)")

    # Reading.

    def groups(self, *, changed: bool) -> Iterator[SpooledGroup]:
        """All groups. ``changed``: those that this read returned, and those that its changes touch."""
        condition = "(round = :round OR number IN (SELECT object FROM pending))" if changed else "TRUE"
        columns = "number, set_name, id, place, value, round"
        statement = f"SELECT {columns} FROM object WHERE holds AND {condition} ORDER BY number"  # noqa: S608 - one of two
        with closing(self._connection.execute(statement, {"round": self._round})) as rows:
            for number, set_name, id_, place, value, round_ in rows:
                object_id = ObjectId(set_name, id_)
                yield SpooledGroup(number, object_id, place, orjson.loads(value), round_ == self._round)

    def members(self, group: int) -> Iterator[Member]:
        """The members of a group, including those of nested groups, each once."""
        with closing(self._connection.execute(_MEMBERS, {"object": group})) as rows:
            yield from map(Member._make, rows)

    def ambiguous_members(self) -> tuple[int, str]:
        """The number of members whose name belongs to several objects, and an example."""
        return self._count(_AMBIGUOUS_MEMBERS)

    def unknown_members(self) -> tuple[int, str]:
        """The number of members whose name belongs to no object, and an example."""
        return self._count("SELECT count(lost), min(lost) FROM edge")

    def _count(self, statement: str) -> tuple[int, str]:
        count, example = self._connection.execute(statement).fetchone()
        return count, example or ""

    def path(self, group: int, member: int) -> list[str]:
        """The places of the groups through which an object is a member, the given group first."""
        paths = {group: [group]}
        waiting = deque([group])
        while waiting:
            outer = waiting.popleft()
            if self._connection.execute(_IS_DIRECT_MEMBER, (outer, member)).fetchone() is not None:
                rows = (self._connection.execute(_PLACE, (number,)).fetchone() for number in paths[outer])
                return [place for (place,) in rows]
            for (inner,) in self._connection.execute(_NESTED_GROUPS, (outer,)).fetchall():
                if inner not in paths:
                    paths[inner] = [*paths[outer], inner]
                    waiting.append(inner)
        return []

    # The end of a read.

    def keep(self, cursor: str, digest: str) -> None:
        """Commits the spool as that of this cursor. Raises ``SpoolError``, ``OSError``."""
        if self._is_new and (self._replace is None or not cursor):
            return
        self._connection.execute("DELETE FROM belongs")
        self._connection.execute(
            "INSERT INTO belongs VALUES (?, ?, ?, ?)", (digest, cursor, self._cursor_before, self._round)
        )
        self._connection.execute("COMMIT")
        if self._is_new and self._replace is not None:
            self._connection.close()
            self._replace(self._path)

    def close(self) -> None:
        """Rolls back what was not kept."""
        with suppress(sqlite3.Error):
            self._connection.close()
        if self._is_new:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Rows.

    def _run(self, *scripts: str) -> None:
        """Runs statements within the transaction, which ``executescript`` would end."""
        for script in scripts:
            for statement in script.split(";"):
                self._connection.execute(statement)

    def _insert(self, row: _ObjectRow) -> int:
        """Inserts a row of ``object``, and returns its number."""
        cursor = self._connection.execute(
            "INSERT INTO object (set_name, id, place, holds, value, member, round) VALUES (?, ?, ?, ?, ?, ?, ?)", row
        )
        return int(cursor.lastrowid or 0)

    def _insert_names(self, table: str, number: int, names: Iterable[str]) -> None:
        self._connection.executemany(
            f"INSERT INTO {table} (object, name) VALUES (?, ?)",  # noqa: S608 - one of two tables
            ((number, name) for name in names),
        )

    def _upsert(self, object_: DirectoryObject, row: _ObjectRow) -> None:
        """Stores a changed object, and touches its names if the difference matters to groups above."""
        existing = self._row(object_.id)
        if existing is None:
            number, is_changed = self._insert(row), True
        else:
            number, held, earlier_member = existing
            is_changed = (bool(held), earlier_member) != (row.holds, row.member)
            self._connection.execute(
                "UPDATE object SET place = ?, holds = ?, value = ?, member = ?, round = ? WHERE number = ?",
                (row.place, row.holds, row.value, row.member, row.round, number),
            )
        old_names, names = self._names_of(number), set(object_.names)
        rows = self._connection.execute("SELECT name FROM member WHERE object = ?", (number,))
        old_members, members = {name for (name,) in rows}, set(object_.members) if row.holds else set[str]()
        self._update_names("name", number, old_names, names)
        self._update_names("member", number, old_members, members)
        self._touch(old_names | names if is_changed or members != old_members else old_names ^ names)

    def _update_names(self, table: str, number: int, before: set[str], after: set[str]) -> None:
        self._connection.executemany(
            f"DELETE FROM {table} WHERE object = ? AND name = ?",  # noqa: S608 - one of two tables
            [(number, name) for name in before - after],
        )
        self._insert_names(table, number, after - before)

    def _row(self, id_: ObjectId) -> tuple[int, int, bytes | None] | None:
        row: tuple[int, int, bytes | None] | None = self._connection.execute(
            "SELECT number, holds, member FROM object WHERE id = ? AND set_name = ?", (id_.id, id_.set)
        ).fetchone()
        return row

    def _names_of(self, number: int) -> set[str]:
        return {name for (name,) in self._connection.execute("SELECT name FROM name WHERE object = ?", (number,))}

    def _touch(self, names: Iterable[str]) -> None:
        self._connection.executemany("INSERT OR IGNORE INTO touched VALUES (?)", [(name,) for name in names])


# The columns of ``object`` are those of ``_ObjectRow``. ``pending``: groups that changes touch.
_TABLES = """
CREATE TABLE object (
    number INTEGER PRIMARY KEY,
    set_name TEXT NOT NULL,
    id TEXT NOT NULL,
    place TEXT NOT NULL,
    holds INTEGER NOT NULL,
    value BLOB,
    member BLOB,
    round INTEGER NOT NULL
);
CREATE TABLE name (name TEXT NOT NULL, object INTEGER NOT NULL);
CREATE TABLE member (object INTEGER NOT NULL, name TEXT NOT NULL);
CREATE TABLE pending (object INTEGER PRIMARY KEY);
CREATE TABLE belongs (
    digest TEXT NOT NULL, cursor TEXT NOT NULL, cursor_before TEXT NOT NULL, round INTEGER NOT NULL
);
"""

_INDEXES = """
CREATE INDEX IF NOT EXISTS object_id ON object (set_name, id);
CREATE INDEX IF NOT EXISTS name_name ON name (name, object);
"""

_INDEXES_OF_CHANGES = """
CREATE INDEX IF NOT EXISTS name_object ON name (object);
CREATE INDEX IF NOT EXISTS member_object ON member (object, name);
CREATE INDEX IF NOT EXISTS member_name ON member (name, object);
"""
"""Created by the first incremental read."""

_ANY_DUPLICATE = "SELECT 1 FROM object GROUP BY set_name, id HAVING count(*) > 1 LIMIT 1"
_DELETE_DUPLICATES = """
DELETE FROM {} WHERE {} IN (
    SELECT number FROM object WHERE number NOT IN (SELECT max(number) FROM object GROUP BY set_name, id)
)
"""
"""If a read returned an object twice, the last one is used."""

_AMBIGUOUS = """
CREATE TEMP TABLE ambiguous (name TEXT PRIMARY KEY);
INSERT INTO ambiguous
SELECT name.name FROM name JOIN object ON object.number = name.object
WHERE name.name IN (SELECT name FROM name GROUP BY name HAVING count(*) > 1)
GROUP BY name.name
HAVING count(DISTINCT object.place) > 1 OR count(DISTINCT object.number) > count(DISTINCT object.set_name)
"""
"""Names of several objects, such as a uid that two entries have. One object may be in several sets."""

_EDGES = """
CREATE TEMP {} edge AS
SELECT
    member.object AS outer_object, name.object AS inner_object,
    CASE WHEN name.object IS NULL THEN member.name END AS lost
FROM member LEFT JOIN name ON name.name = member.name
WHERE member.name NOT IN (SELECT name FROM ambiguous)
"""
"""Groups and their direct members. It is a table after a full read, and a view if only a few groups are needed."""

_NESTED = """
CREATE TEMP TABLE nested AS
SELECT DISTINCT outer_object, inner_object FROM edge WHERE inner_object IN (SELECT number FROM object WHERE holds)
"""

# In this order of joins, because few objects are groups, and many names are members.
_NESTED_OF_CHANGES = """
CREATE TEMP TABLE nested AS
SELECT DISTINCT member.object AS outer_object, inner_object.number AS inner_object
FROM object AS inner_object
CROSS JOIN name ON name.object = inner_object.number
CROSS JOIN member ON member.name = name.name
WHERE inner_object.holds AND name.name NOT IN (SELECT name FROM ambiguous)
"""

_MEMBERS = """
WITH RECURSIVE inside (object) AS (
    SELECT :object
    UNION
    SELECT nested.inner_object FROM inside JOIN nested ON nested.outer_object = inside.object
)
SELECT number, set_name, id, place, member FROM object WHERE NOT holds AND number IN (
    SELECT edge.inner_object FROM inside JOIN edge ON edge.outer_object = inside.object
) ORDER BY number
"""

_PLACE = "SELECT place FROM object WHERE number = ?"
_NESTED_GROUPS = "SELECT inner_object FROM nested WHERE outer_object = ? ORDER BY 1"
_IS_DIRECT_MEMBER = "SELECT 1 FROM edge WHERE outer_object = ? AND inner_object = ? LIMIT 1"

_TOUCHED = """
WITH RECURSIVE above (object) AS (
    SELECT member.object FROM touched JOIN member ON member.name = touched.name
    UNION
    SELECT member.object FROM above JOIN name ON name.object = above.object JOIN member ON member.name = name.name
)
INSERT OR IGNORE INTO pending SELECT object FROM above
"""

_AMBIGUOUS_MEMBERS = "SELECT count(*), min(name) FROM member WHERE name IN (SELECT name FROM ambiguous)"
